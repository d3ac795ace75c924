package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// The budgets in words.
const (
	wordsInAll      = 35_000 // of all pages that are not generated
	wordsOfDesign   = 9_500  // of all pages of design
	wordsAParagraph = 90
	wordsASentence  = 28
)

// budgets are the most words of each page, including code and outputs; 0: there is no limit.
var budgets = []struct {
	pages string // a pattern of files
	words int
}{
	{"../README.md", 900},
	{"start.md", 1000},
	{"concepts.md", 1500},
	{"performance.md", 1500},
	{"faq.md", 1000},
	{"contributing/*.md", 0},
	{"guarantees.md", 2000},
	{"security.md", 1500},
	{"design.md", 600},
	{"design/*.md", 2000},
	{"howto/*.md", 600},
	{"runbook.md", 0},
	{"reference/*.md", 0},
}

// longer are pages that may have more words than others of their folder, because two tasks belong together.
var longer = map[string]int{"howto/sms-codes.md": 1400}

// newPages returns the pages of the folder that have a budget.
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

// TestPagesAreShort compares the lengths of pages, paragraphs and sentences with their budgets.
func TestPagesAreShort(t *testing.T) {
	for _, b := range budgets {
		pages, err := filepath.Glob(b.pages)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text := read(t, page)
			most := max(b.words, longer[page])
			if words := wordsOf(text); most > 0 && words > most {
				t.Errorf("%s has %d words, want at most %d", page, words, most)
			}
			if isGenerated(text) {
				continue
			}
			for _, paragraph := range paragraphs(text) {
				checkWords(t, page, paragraph)
			}
		}
	}
}

// TestDocsAreShort compares the lengths of all pages together, and of those of design, with their budgets.
func TestDocsAreShort(t *testing.T) {
	all, design := 0, 0
	for _, page := range pages(t) {
		text := read(t, page)
		if isGenerated(text) {
			continue
		}
		all += wordsOf(text)
		if strings.HasPrefix(page, "design/") {
			design += wordsOf(text)
		}
	}
	if all > wordsInAll {
		t.Errorf("all pages have %d words, want at most %d: what can go instead?", all, wordsInAll)
	}
	if design > wordsOfDesign {
		t.Errorf("the pages of design have %d words, want at most %d: what can go instead?", design, wordsOfDesign)
	}
}

// isGenerated reports whether a program writes page.
func isGenerated(page string) bool { return strings.Contains(page, "<!-- Made from ") }

// wordsOf counts the words of text, including those of tables and code.
func wordsOf(text string) (n int) {
	for _, field := range strings.Fields(text) {
		if strings.ContainsFunc(field, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

func checkWords(t *testing.T, page, paragraph string) {
	t.Helper()
	if words := wordsOf(paragraph); words > wordsAParagraph {
		t.Errorf("%s: a paragraph of %d words, want at most %d: %.60s…", page, words, wordsAParagraph, paragraph)
	}
	for _, sentence := range sentenceEnd.Split(paragraph, -1) {
		if words := wordsOf(sentence); words > wordsASentence {
			t.Errorf("%s: a sentence of %d words, want at most %d: %.60s…", page, words, wordsASentence, sentence)
		}
	}
}

var (
	fenced      = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	target      = regexp.MustCompile(`\]\([^)]*\)`)
	sentenceEnd = regexp.MustCompile(`[.?!:;]["*)_]*(\s|$)`)
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

// TestParagraphs checks that paragraphs of each kind are found.
func TestParagraphs(t *testing.T) {
	found := paragraphs("One [two](three.md#four).\n\n- five\n- six\n\n```sh\nno no\n```\n\n| a | b c |\n|---|---|\n")
	if got := strings.Join(found, "/"); got != "One [two]./five/six/ a / b c " {
		t.Errorf("%q", got)
	}
}
