package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

// strange are words that stand for the actor or the term in comments, against the rules in CONTRIBUTING.md.
var strange = []struct {
	words *regexp.Regexp
	cure  string
}{
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
	{regexp.MustCompile(`(?:^|[^.][.!] )(?:Who|What|Whatever) [a-z]+\b[^?]*?\.(?: |$)`), "begin with a noun, and not with a clause"},
}

// strangeInTests are the words that comments of tests don't have either.
var strangeInTests = regexp.MustCompile(`(?i)\bwhoever\b|\b(?:as|by|for|from|of|only|than|through|to|when|with) who [a-z]+\b`)

// strangeInMessages are the words that errors, help and log lines don't have either.
var strangeInMessages = regexp.MustCompile(`\b(?:that|those|the ones) there are\b|\bis none of\b|` +
	`\b(?:as|by|for|from|of|than|to|with) who [a-z]+\b|%[qs] is no [a-z ]+:|\bwho asks\b|\bgo(?:es)? by\b|\bsays what it\b`)

// TestCommentsAreEnglish checks that comments and messages have none of the strangest words, and comments of tests fewer.
func TestCommentsAreEnglish(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine reads all Go files")
	}
	seen := 0
	for _, top := range []string{"../client", "../cmd", "../inprocess", "../internal", "../ratelimittest"} {
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
		} else if found, cure := strangeIn(group.Text()); found != "" {
			t.Errorf("%s: %q: %s", files.Position(group.Pos()), found, cure)
		}
	}
}

// strangeIn returns the first strange words of a comment, and what to write instead.
func strangeIn(comment string) (found, cure string) {
	comment = strings.Join(strings.Fields(comment), " ")
	for _, s := range strange {
		if found := s.words.FindString(comment); found != "" {
			return found, s.cure
		}
	}
	return "", ""
}

// TestStrangeWordsAreFound checks that a sentence of each kind is found, and no good one.
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
	} {
		if found, _ := strangeIn(comment); found == "" {
			t.Errorf("%q passes", comment)
		}
	}
	for _, comment := range []string{
		"A caller that returns is denied.", "What if the store fails? The policy decides.", "all have gone by then", "It says what it reads.",
		"units that are gone", "it reports who decided, and what was counted",
		"for people who ask, it waits", "nil: none",
	} {
		if found, _ := strangeIn(comment); found != "" {
			t.Errorf("%q is strange in %q", found, comment)
		}
	}
}
