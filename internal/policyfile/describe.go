package policyfile

import (
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Describe returns the members of p as Format writes them, by name: all of them but those for people only. Those of two
// policies are equal if both decide alike.
func Describe(p policy.Policy) map[string]string {
	p.Description = ""
	const indent = 4 // of members
	members, current := make(map[string]string), ""
	for line := range strings.Lines(string(Format([]policy.Policy{p}))) {
		text := strings.TrimSpace(line)
		switch len(line) - len(strings.TrimLeft(line, " ")) {
		case indent:
			name, value, _ := strings.Cut(text, ":")
			members[name], current = strings.TrimSpace(value), name
		case indent + 2: // items of a list
			if members[current] != "" {
				members[current] += ", "
			}
			members[current] += strings.TrimPrefix(text, "- ")
		}
	}
	return members
}
