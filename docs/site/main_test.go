package main

import "testing"

func TestLinks(t *testing.T) {
	s := site{files: map[string]bool{"docs/start.md": true, "clients/python/README.md": true}}
	for given, want := range map[string]string{
		"[a](../start.md#one)":         "[a](../start.md#one)",
		"[a](../../clients/python)":    "[a](../../clients/python/README.md)",
		"[a](../../examples/a.yaml#x)": "[a](" + source + "examples/a.yaml#x)",
		"[a](#here)":                   "[a](#here)",
		"[a](https://example.com/b)":   "[a](https://example.com/b)",
	} {
		if got := s.links("docs/howto/api.md", given); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
}

func TestTabs(t *testing.T) {
	got := tabs("**Go**\n\n```go\na\n\n\tb\n```\n\n**Python**\n\n```python\nc\n```\n\n**Java**\n\n```java\nd\n```\n\nEnd: **Go**.\n")
	want := "=== \"Go\"\n\n    ```go\n    a\n    \n    \tb\n    ```\n\n=== \"Python\"\n\n" +
		"    ```python\n    c\n    ```\n\n=== \"Java\"\n\n    ```java\n    d\n    ```\n\nEnd: **Go**.\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestEveryPageIsInTheNavigation checks that the navigation has all pages, including those of new folders.
func TestEveryPageIsInTheNavigation(t *testing.T) {
	t.Chdir("../..")
	s := site{files: map[string]bool{}, titles: map[string]string{}}
	if err := s.layOut(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	var listed int
	for _, g := range groups {
		for _, pattern := range g.pages {
			found := s.matching(pattern)
			if listed += len(found); len(found) == 0 {
				t.Errorf("no page matches %s", pattern)
			}
		}
	}
	if listed != len(s.titles) {
		t.Errorf("%d of %d pages are in the navigation", listed, len(s.titles))
	}
}
