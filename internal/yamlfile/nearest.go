package yamlfile

import "strings"

// maxWord bounds the words that are compared, whose cost is their product.
const maxWord = 64

// Nearest returns the candidate that takes the fewest inserted, removed, replaced
// or swapped letters to become word, the first of several, and whether word is
// likely to be meant for it; "" when there are none.
func Nearest(word string, candidates []string) (nearest string, likely bool) {
	fewest := 0
	for _, c := range candidates {
		if d := distance(word, c); nearest == "" || d < fewest {
			nearest, fewest = c, d
		}
	}
	return nearest, nearest != "" && 2*fewest <= len(nearest)
}

// DidYouMean returns the cure for an unknown word: the nearest candidate where that one is
// likely to be meant, else all of them where they are few enough to read.
func DidYouMean(word string, candidates []string) string {
	const readable = 20
	nearest, likely := Nearest(word, candidates)
	switch {
	case likely:
		return "did you mean " + nearest + "?"
	case len(candidates) == 0:
		return "there are none"
	case len(candidates) <= readable:
		return "the ones there are: " + strings.Join(candidates, ", ")
	}
	return "it is like none of those there are"
}

// distance is the optimal string alignment distance of two words, of which the
// first 64 bytes count.
func distance(a, b string) int {
	a, b = a[:min(len(a), maxWord)], b[:min(len(b), maxWord)]
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
