package yamlfile_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

func TestNodesKnowWhereTheyAre(t *testing.T) {
	f := yamlfile.Parse("f.yaml", []byte("\ufeff# first\r\nlist:\r\n  - one: 1\r\n    two: 'x'\r\n  - {three: true}\r\n"))
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path, found  string
		line, column int
		kind         yamlfile.Kind
		text         string
	}{
		{"", "", 2, 1, yamlfile.Map, ""},
		{"list", "list", 2, 1, yamlfile.List, ""},
		{"list[0]", "list[0]", 3, 5, yamlfile.Map, ""},
		{"list[0].one", "list[0].one", 3, 5, yamlfile.Number, "1"},
		{"list[0].two", "list[0].two", 4, 5, yamlfile.Text, "x"},
		{"list[1].three", "list[1].three", 5, 6, yamlfile.Bool, "true"},
		{"list[1].four", "list[1]", 5, 5, yamlfile.Map, ""},
		{"list[2].one", "list", 2, 1, yamlfile.List, ""},
		{"other.thing", "", 2, 1, yamlfile.Map, ""},
	} {
		n := f.Root.Find(test.path)
		if n.Path != test.found || n.Line != test.line || n.Column != test.column || n.Kind != test.kind || n.Text != test.text {
			t.Errorf("Find(%q) is %+v, want %+v", test.path, *n, test)
		}
	}
}

func TestLinesAfterTextOfSeveralLines(t *testing.T) {
	for _, text := range []string{
		"a: |\n  one\n\n  two\n\nkey: 1\n",
		"a: >-\n  one\n  two\n# comment\n\nkey: 1\n",
		"a: \"one\n\n  two\n  three\"\n\nkey: 1\n",
		"a: 'one\n\n  two\n  three'\n\nkey: 1\n",
		"a: one\n  two\n  three\n\n\nkey: 1\n",
		"# é\n\n# b\na: [1, # c\n  2]\nkey: 1\n",
		"---\n\n\n\n\nkey: 1\n",
	} {
		f := yamlfile.Parse("f", []byte(text))
		if err := f.Err(); err != nil {
			t.Errorf("%q: %v", text, err)
		} else if key := f.Root.Member("key"); key == nil || key.Line != 6 || key.Column != 1 {
			t.Errorf("%q: key is at %+v, want line 6, column 1", text, key)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"brackets", strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "f:1: more than 32 maps and lists within each other"},
		{"dashes", strings.Repeat("- ", 1000), "f:1: more than 32 maps and lists within each other"},
		{"a staircase", staircase(40), "more than 32 maps and lists within each other"},
		{"an alias of nothing", "a: 1\nb: *.example.com\n", "f:2: *.example.com stands for an anchor, and there is none: put text"},
		{"aliases", "- &a 1\n- *a\n", "f:2: [1]: aliases such as *name are not supported"},
		{"a tag", "a: !!str b\n", "f:1: a: tags such as !!str are not supported"},
		{"a merge key", "a: &b {c: d}\ne:\n  <<: *b\n", "f:3: e.<<: merge keys are not supported"},
		{"a list as a key", "a: 1\n? [b]\n: c\n", "f:2: a key that is a list is not supported: use one word"},
		{"a colon too many", "a: 1\nb: c: d\n", "f:2: not YAML: mapping values are not allowed in this context"},
		{"an open bracket", "a: 1\nb: [1, 2\nc: 3\n", "f:3: not YAML: did not find expected ',' or ']'"},
		{"a tab after a value", "a:\n  b: 1\n\tc: 2\n", "f:3: a tab in the indentation"},
		{"a line that few see", "# a\u2028b: 1\n", "f:1: this line has a character that can't be seen (U+2028)"},
		{"a bell", "a: 1\nb: \a\n", "f:2: this line has a character that can't be seen (U+0007)"},
		{"a directive", "%YAML 1.1\n---\na: 1\n", "f:1: a % directive is not supported: remove it"},
		{"a map as a key", "{{a: 1}: 2}", "f:1: "},
		{"too much", strings.Repeat(" ", yamlfile.MaxSize+1), "f:1: 1048577 bytes: a file may have at most 1048576"},
	} {
		t.Run(test.name, func(t *testing.T) {
			start := time.Now()
			err := yamlfile.Parse("f", []byte(test.text)).Err()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestTimeGrowsWithSize parses what took a parser time and memory with its square.
func TestTimeGrowsWithSize(t *testing.T) {
	const size, mostAllocated = 64 << 10, 100 << 20
	many := func(text string) string { return strings.Repeat(text, size/len(text)) }
	apart := ""
	for i := range size / 16 {
		apart += fmt.Sprintf("member%05d: 1\n", i)
	}
	for name, text := range map[string]string{
		"one key": many("k: 1\n"), "keys": apart, "blocks": many("a: |\n b\n"), "empty maps": many("k: {}\n"), "question marks": many("? a\n"),
		"commas": "[" + many(",") + "]", "quotes": "a: " + many(`"" `), "colons": many(":\n"), "items": "[" + many("1,") + "1]",
		"flow": "{" + many("a: 1,") + "}", "brackets": many("["), "closed": many("}"), "documents": many("---\n"), "empty items": many("-\n"),
		"aliases": "- &a 1\n" + many("- *a\n"), "comments": many("#\n"), "lines": "a: " + many("b c\n  "), "percents": many("%\n"),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = yamlfile.Parse("f", []byte(text))
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > mostAllocated {
			t.Errorf("%s: %d MiB were allocated for a sixteenth of one", name, (after.TotalAlloc-before.TotalAlloc)>>20)
		}
	}
}

// staircase returns maps within each other, each on a line of its own.
func staircase(steps int) string {
	text := ""
	for i := range steps {
		text += strings.Repeat(" ", i) + "a:\n"
	}
	return text + strings.Repeat(" ", steps) + "b: 1\n"
}

func TestErrorsAreSortedAndBounded(t *testing.T) {
	f := yamlfile.Parse("f", nil)
	for i := range 60 {
		f.AddAt(yamlfile.Position{Line: 60 - i}, "x", "mistake %d", i)
	}
	var mistakes yamlfile.Errors
	if !errors.As(f.Err(), &mistakes) || len(mistakes) != 60 || mistakes[0].Line != 1 || mistakes[59].Line != 60 {
		t.Errorf("mistakes: %v", mistakes)
	}
	lines := strings.Split(mistakes.Error(), "\n")
	if len(lines) != 51 || lines[0] != "f:1: x: mistake 59" || lines[50] != "… and 10 more" {
		t.Errorf("%d lines, first %q, last %q", len(lines), lines[0], lines[len(lines)-1])
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"name", "limits", "count", "consistency", "on_store_error"}
	for _, test := range []struct {
		word, want string
		likely     bool
	}{
		{"nmae", "name", true},
		{"limit", "limits", true},
		{"on-store-error", "on_store_error", true},
		{"onstoreerror", "on_store_error", true},
		{"colour", "count", false},
		{"", "name", false},
		{strings.Repeat("x", 1<<20), "consistency", false},
	} {
		got, likely := yamlfile.Nearest(test.word, keys)
		if likely != test.likely || likely && got != test.want || got == "" {
			t.Errorf("Nearest(%.20q) is %q, %v; want %q, %v", test.word, got, likely, test.want, test.likely)
		}
	}
	if got, _ := yamlfile.Nearest("widnow", []string{"widow", "wi-now", "window"}); got != "widow" {
		t.Errorf("Nearest of two as near is %q, want the first", got)
	}
	if got, _ := yamlfile.Nearest("abdc", []string{"abxx", "abcd"}); got != "abcd" {
		t.Errorf("Nearest to two letters swapped is %q", got)
	}
	if got, _ := yamlfile.Nearest("x", nil); got != "" {
		t.Errorf("Nearest of no candidates is %q", got)
	}
}
