package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// How long what people read may be, in words.
const (
	wordsAParagraph = 90
	wordsASentence  = 35
)

// budgets are the words of each page that has its new form, code and outputs included;
// 0: as many as it needs.
var budgets = []struct {
	pages string // a pattern of files
	words int
}{
	{"../README.md", 900},
	{"start.md", 1000},
	{"concepts.md", 1500},
	{"performance.md", 1500},
	{"faq.md", 1000},
	{"releasing.md", 300},
	{"guarantees.md", 2400},
	{"security.md", 1700},
	{"design.md", 600},
	{"design/[^o]*.md", 1500}, // all but owners.md, which has another form, and overshoot.md
	{"design/overshoot.md", 600},
	{"howto/*.md", 600},
	{"runbook.md", 0},
	{"reference/*.md", 0},
}

// newPages returns the pages of the folder that have their new form.
func newPages(t *testing.T) (pages []string) {
	t.Helper()
	for _, b := range budgets {
		found, err := filepath.Glob(b.pages)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", b.pages, len(found), err)
		}
		for _, page := range found {
			if !strings.HasPrefix(page, "..") {
				pages = append(pages, page)
			}
		}
	}
	return pages
}

// TestPagesAreShort holds pages, paragraphs and sentences to their words.
func TestPagesAreShort(t *testing.T) {
	for _, b := range budgets {
		pages, err := filepath.Glob(b.pages)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text := read(t, page)
			if words := len(strings.Fields(text)); b.words > 0 && words > b.words {
				t.Errorf("%s has %d words, want at most %d", page, words, b.words)
			}
			if strings.Contains(text, "<!-- Made from ") {
				continue // by another test, of what a program says elsewhere
			}
			for _, paragraph := range paragraphs(text) {
				checkWords(t, page, paragraph)
			}
		}
	}
}

func checkWords(t *testing.T, page, paragraph string) {
	t.Helper()
	if words := len(strings.Fields(paragraph)); words > wordsAParagraph {
		t.Errorf("%s: a paragraph of %d words, want at most %d: %.60s…", page, words, wordsAParagraph, paragraph)
	}
	for _, sentence := range sentenceEnd.Split(paragraph, -1) {
		if words := len(strings.Fields(sentence)); words > wordsASentence {
			t.Errorf("%s: a sentence of %d words, want at most %d: %.60s…", page, words, wordsASentence, sentence)
		}
	}
	if found := stiff.FindString(paragraph); found != "" {
		t.Errorf("%s: %q: name who does it: %.60s…", page, found, paragraph)
	}
}

var (
	fenced      = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	target      = regexp.MustCompile(`\]\([^)]*\)`)
	sentenceEnd = regexp.MustCompile(`[.?!:;]["*)_]*(\s|$)`)
	stiff       = regexp.MustCompile(`(?i)\bwhoever\b|\bwho comes again\b|\bwhat is given back\b`)
	listItem    = regexp.MustCompile(`(?m)^ *([-*]|\d+\.) `)
)

// paragraphs returns the paragraphs, list items, table cells and headings of a page,
// without code.
func paragraphs(page string) (all []string) {
	page = target.ReplaceAllString(fenced.ReplaceAllString(page, "\n"), "]")
	page = listItem.ReplaceAllString(page, "\n\n")
	for _, part := range strings.Split(page, "\n\n") {
		if strings.HasPrefix(strings.TrimSpace(part), "|") {
			all = append(all, strings.FieldsFunc(part, func(r rune) bool { return r == '|' || r == '\n' })...)
		} else {
			all = append(all, strings.TrimSpace(part))
		}
	}
	return slices.DeleteFunc(all, func(p string) bool { return p == "" || strings.HasPrefix(p, "---") })
}

// TestParagraphs makes sure that what is long is found.
func TestParagraphs(t *testing.T) {
	found := paragraphs("One [two](three.md#four).\n\n- five\n- six\n\n```sh\nno no\n```\n\n| a | b c |\n|---|---|\n")
	if got := strings.Join(found, "/"); got != "One [two]./five/six/ a / b c " {
		t.Errorf("%q", got)
	}
}
