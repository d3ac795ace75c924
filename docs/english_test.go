package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

// cured are words that hide an actor or a term, and what to write instead.
type cured struct {
	words *regexp.Regexp
	cure  string
}

// strange are the words that comments don't have, by the rules in CONTRIBUTING.md.
var strange = []cured{
	{regexp.MustCompile(`(?i)\bwhoever\b`), "name the actor: a caller, the instance"},
	{regexp.MustCompile(`(?i)\b(?:is|are|be) (?:\w+ )?gone by\b`), "say used, or in force"},
	{regexp.MustCompile(`\b(?:by|for|from|of|to|with) who [a-z]+\b`), "name the actor: of the caller, for the next owner"},
	{regexp.MustCompile(`\b(?:ask|asks|asked) nobody who\b|\bnobody is asked who\b`), "say without authentication"},
	{regexp.MustCompile(`\b(?:as|deny|denies|only|refuses?|than|that|through|when) who [a-z]+\b`), "name the actor: that a caller that asks"},
	{regexp.MustCompile(`\b(?:all|nobody|one|somebody|those) who [a-z]+\b`), "name the actor: callers that ask, the new members"},
	{regexp.MustCompile(`(?i)\bnil: nobody\b`), "say may be nil"},
	{regexp.MustCompile(`(?i)\bwho \w+ again\b`), "name the actor: a caller that returns"},
	{regexp.MustCompile(`\b(?:what|units that are) given back\b`), "say refunded units"},
	{regexp.MustCompile(`\bwhat became of\b`), "say the outcome of"},
	{
		regexp.MustCompile(`\breturns what (?:answers|has|makes|opens|publishes|reads|says|sends|serves|tells)\b`),
		"name it: a collector, a parser, a check",
	},
	{regexp.MustCompile(`\bgo(?:es)? by what\b`), "say depends on"},
	{regexp.MustCompile(`\bas [a-z]+ has it\b`), "name it: in the form of RFC 9457"},
	{regexp.MustCompile(`\b(?:comes?|came) to be\b`), "say how it starts, or is made"},
	{regexp.MustCompile(`\bhow it (?:came|comes)\b`), "name it: the outcome, the cause"},
	{regexp.MustCompile(`\bfinds? fault\b`), "say reports a violation"},
	{regexp.MustCompile(`\b[Tt]he error says what is wrong\b`), "say when it fails"},
	{regexp.MustCompile(`\b(?:is|are) no (?:confirm|denial|error|problem)\b`), "say is not a denial"},
	{regexp.MustCompile(`\b(?:Cassandra|database|server|store) (?:is|was) away\b`), "say down"},
	{regexp.MustCompile(`(?i)\b(?:begin|count|start)s? anew\b`), "say starts over, or count again"},
	{regexp.MustCompile(`\b(?:stand or fall|stands or falls) together\b`), "say are allowed or denied together"},
	{regexp.MustCompile(`\bin good order\b`), "say what works"},
	{regexp.MustCompile(`(?:^|[^.][.!] )(?:Who|What|Whatever) [a-z]+\b[^?]*?\.(?: |$)`), "begin with a noun, and not with a clause"},
}

// strangeInPages are the words that pages don't have either.
var strangeInPages = []cured{
	{regexp.MustCompile(`(?i)\bgo(?:es)? by\b`), "say depends on, uses"},
	{regexp.MustCompile(`(?i)\bwhat (?:becomes?|comes?) of\b|\bwhat it came to\b`), "say the outcome of"},
	{regexp.MustCompile(`(?i)\b(?:stands?|stood|standing) still\b`), "say hangs, is frozen, is idle"},
	{regexp.MustCompile(`(?i)\bfor ever\b`), "say forever, or without an end"},
	{regexp.MustCompile(`\bbut for\b`), "say except"},
	{regexp.MustCompile(`(?i)\bsurely\b`), "say certainly, or leave it out"},
	{regexp.MustCompile(`(?i)\bnobody decide[sd]\b`), "say without a decision"},
	{regexp.MustCompile(`\b(?:is|are|was|were) told\b|\btells? of\b`), "say is reported, learns, is informed"},
	{regexp.MustCompile(`\bknows? nothing of\b`), "say does not know, or depend on"},
	{regexp.MustCompile(`\bthe longest ago\b`), "say the oldest"},
	{regexp.MustCompile(`\bwithout a look\b`), "say whatever the counts"},
	{regexp.MustCompile(`\bnot (?:\w+ )?any more(?:[.,:;]| and\b)`), "say no longer"},
}

// strangeInTests are the words that comments of tests don't have either.
var strangeInTests = regexp.MustCompile(`(?i)\bwhoever\b|\b(?:as|by|for|from|of|only|than|through|to|when|with) who [a-z]+\b`)

// strangeInMessages are the words that errors, help and log lines don't have either.
var strangeInMessages = regexp.MustCompile(`\b(?:that|those|the ones) there are\b|\bis none of\b|` +
	`\b(?:as|by|for|from|of|than|to|with) who [a-z]+\b|%[qs] is no [a-z ]+:|\bwho asks\b|\bgo(?:es)? by\b|\bsays what it\b`)

// TestCommentsAreEnglish checks that comments and messages have none of the strange words. It checks fewer words in comments
// of tests.
func TestCommentsAreEnglish(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine reads all Go files")
	}
	seen := 0
	for _, top := range []string{
		"../bench", "../client", "../clients", "../cmd", "../deploy", "../examples", "../inprocess", "../internal", "../ratelimittest",
		"../schema",
	} {
		err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, ".pb.go"):
				return nil
			}
			seen++
			checkComments(t, path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 100 {
		t.Errorf("%d files were read", seen)
	}
}

// checkComments checks the comments of a file and, outside of tests, its messages.
func checkComments(t *testing.T, path string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(path, "_test.go") {
		ast.Inspect(file, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
				if found := strangeInMessages.FindString(text.Value); found != "" {
					t.Errorf("%s: %q in a message: write as in the table of CONTRIBUTING.md", files.Position(text.Pos()), found)
				}
			}
			return true
		})
	}
	for _, group := range file.Comments {
		if strings.HasSuffix(path, "_test.go") {
			if found := strangeInTests.FindString(group.Text()); found != "" {
				t.Errorf("%s: %q: name the actor", files.Position(group.Pos()), found)
			}
		} else if found, cure := strangeIn(strange, group.Text()); found != "" {
			t.Errorf("%s: %q: %s", files.Position(group.Pos()), found, cure)
		}
	}
}

// inline is code within a sentence.
var inline = regexp.MustCompile("`[^`]*`")

// TestPagesAreEnglish checks that pages have none of the strange words, neither those of comments nor those of pages.
func TestPagesAreEnglish(t *testing.T) {
	all := pages(t)
	for _, pattern := range []string{
		"../*.md", "../bench/*.md", "../clients/*/*.md", "../deploy/*.md", "../deploy/*/*.md", "../examples/*/*.md",
	} {
		some, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, some...)
	}
	words := slices.Concat(strange, strangeInPages)
	for _, page := range all {
		text := read(t, page)
		if isGenerated(text) || page == "../CHANGELOG.md" {
			continue
		}
		for _, paragraph := range paragraphs(text) {
			if page == "../CONTRIBUTING.md" && strings.HasPrefix(paragraph, " ") {
				continue // a cell of its tables, which have words to avoid
			}
			if found, cure := strangeIn(words, inline.ReplaceAllString(paragraph, "code")); found != "" {
				t.Errorf("%s: %q: %s: %.60s…", page, found, cure, paragraph)
			}
		}
	}
}

// strangeIn returns the first of words in text, and what to write instead.
func strangeIn(words []cured, text string) (found, cure string) {
	text = strings.Join(strings.Fields(text), " ")
	for _, s := range words {
		if found := s.words.FindString(text); found != "" {
			return found, s.cure
		}
	}
	return "", ""
}

// TestStrangeWordsAreFound checks that a sentence of each kind is found, and that plain ones are not.
func TestStrangeWordsAreFound(t *testing.T) {
	for _, comment := range []string{
		"Whoever takes the last unit knows.", "so that whoever asks waits", "A clock that was set is not gone by.", "who tries again is denied",
		"What is given back stays.", "Set parses text. What was set before stays when that fails.", "Who is over the limit waits.",
		"start for who has locked w", "It must not block. nil: nobody does.", "a server that asks nobody who they are",
		"It holds that who counts is told.", "It refuses those who have no scope.",
		"a header, as ratelimitd has it", "how services come to be", "It finds fault with a slow answer.",
		"New opens it. The error says what is wrong.",
		"A denial is no error.",
		"It shows how it came.", "f returns what publishes counts", "Result is what became of a call.", "policies that go by what is confirmed",
		"while the store is away", "A restart counts anew.", "demands that stand or fall together", "It shows that all is in good order.",
	} {
		if found, _ := strangeIn(strange, comment); found == "" {
			t.Errorf("%q passes", comment)
		}
	}
	for _, comment := range []string{
		"A caller that returns is denied.", "What if the store fails? The policy decides.", "all have gone by then", "It says what it reads.",
		"units that are gone", "it reports who decided, and what was counted",
		"for people who ask, it waits", "nil: none", "a store that is down", "All results are in order.", "files that are made anew",
	} {
		if found, _ := strangeIn(strange, comment); found != "" {
			t.Errorf("%q is strange in %q", found, comment)
		}
	}
}

// TestStrangeWordsOfPagesAreFound checks that a sentence of each kind is found, and that a plain one is not.
func TestStrangeWordsOfPagesAreFound(t *testing.T) {
	for strange, plain := range map[string]string{
		"Limits go by the answer.":                     "A minute can go past while it waits.",
		"The log has what comes of it.":                "The log shows what comes next.",
		"A server that stands still is removed.":       "The numbers still stand.",
		"Such keys are kept for ever.":                 "Such keys are kept forever.",
		"All are retried, but for refunds.":            "It may pass, if not for long.",
		"It was surely not counted.":                   "It was certainly not counted.",
		"The calls that nobody decided are counted.":   "Calls without a decision are counted.",
		"Each owner is told of it once.":               "A denial tells callers when to retry.",
		"The core knows nothing of HTTP.":              "It knows nothing else.",
		"It drops the entry put the longest ago.":      "It drops the oldest entry.",
		"A block denies without a look at the counts.": "Look at the counts.",
		"It does not wait any more.":                   "It does not make any more calls.",
	} {
		if found, _ := strangeIn(strangeInPages, strange); found == "" {
			t.Errorf("%q passes", strange)
		}
		if found, _ := strangeIn(strangeInPages, plain); found != "" {
			t.Errorf("%q is strange in %q", found, plain)
		}
	}
}
