package policyfile

import (
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Describe returns the members of p as Format writes them, by their keys, except the name and the description. Policies
// that decide alike have equal members.
func Describe(p policy.Policy) map[string]string {
	p = p.WithDefaults()
	members := make(map[string]string)
	for _, m := range policyMembers {
		if value := m.write(&p); value != "" && m.key != "name" && m.key != "description" {
			members[m.key] = strings.ReplaceAll(strings.TrimPrefix(value, "\n  - "), "\n  - ", ", ")
		}
	}
	return members
}
