package policyfile

import (
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Describe returns the members of p as Format writes them, by name, without its description. Policies that decide alike
// have equal members.
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
