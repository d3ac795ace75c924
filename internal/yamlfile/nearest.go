package yamlfile

import "strings"

// maxWord is the maximum length of compared words: the cost is the product of their lengths.
const maxWord = 64

// Nearest returns the candidate with the smallest edit distance from word, the first of several, and whether it is
// likely to be meant. It returns "" if there are no candidates.
func Nearest(word string, candidates []string) (nearest string, likely bool) {
	fewest := 0
	for _, c := range candidates {
		if d := distance(word, c); nearest == "" || d < fewest {
			nearest, fewest = c, d
		}
	}
	return nearest, nearest != "" && 2*fewest <= len(nearest)
}

// DidYouMean returns a hint for an unknown word: the nearest candidate if it is likely to be meant, else all candidates
// if they are few.
func DidYouMean(word string, candidates []string) string {
	const readable = 20
	nearest, likely := Nearest(word, candidates)
	switch {
	case likely:
		return "did you mean " + nearest + "?"
	case len(candidates) == 0:
		return "there are none"
	case len(candidates) <= readable:
		return "known ones: " + strings.Join(candidates, ", ")
	}
	return "it is like none of the known ones"
}

// distance returns the optimal string alignment distance of the first 64 bytes of two words.
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
