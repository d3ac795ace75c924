package ask_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// The documents of testdata/answers.txt, each after a line with the verb, the
// status and what it is about, as tables and JSON.
func TestPrintDecision(t *testing.T) {
	answers, err := os.ReadFile("testdata/answers.txt")
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	for _, asked := range strings.Split(strings.TrimSpace(string(answers)), "\n\n") {
		head, body, _ := strings.Cut(asked, "\n")
		verb, rest, _ := strings.Cut(head, " ")
		status, about, _ := strings.Cut(rest, " ")
		code, err := strconv.Atoi(status)
		if err != nil {
			t.Fatal(err)
		}
		s := pretend(t, reply{status: code, body: body})
		fmt.Fprintf(&printed, "== %s: %s\n", verb, about)
		for _, format := range []string{"table", "json"} {
			code, stdout, stderr := clitest.Execute(t, nil, verb, "p", "i", "--server", s.URL, "-o", format)
			fmt.Fprintf(&printed, "%s%s=> %d\n", stdout, stderr, code)
		}
	}
	clitest.Golden(t, "answers.golden", printed.String())
}
