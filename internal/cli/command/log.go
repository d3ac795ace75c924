package command

import (
	"errors"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// MaxLogged is the maximum of entries of a list in a log line, which stays readable.
const MaxLogged = 20

// Mistakes returns err as attributes of a log line, with the mistakes of a file as a list.
func Mistakes(err error) []any {
	var mistakes yamlfile.Errors
	if !errors.As(err, &mistakes) {
		return []any{"error", err}
	}
	texts := make(Sentences, min(len(mistakes), MaxLogged))
	for i := range texts {
		texts[i] = mistakes[i].Error()
	}
	return []any{"mistakes", len(mistakes), "error", texts}
}

// Sentences are a list in a log in JSON, and separated by semicolons in one in text.
type Sentences []string

// String returns all with semicolons between.
func (s Sentences) String() string { return strings.Join(s, "; ") }
