package auth

import (
	"encoding/hex"
	"maps"
	"slices"
)

// known is a caller and its credential.
type known struct {
	*Caller
	by string
}

// byName returns all callers by their names, which are unique.
func (c *Callers) byName() map[string]known {
	all := make(map[string]known, c.Len())
	for of, caller := range c.byToken {
		all[caller.Name] = known{caller, hex.EncodeToString(of[:])}
	}
	for of, caller := range c.byCertificate {
		all[caller.Name] = known{caller, "certificate " + of.name}
	}
	return all
}

// Changes returns the sorted names of callers that were added since before, removed, or changed in their credentials or
// permissions.
func (c *Callers) Changes(before *Callers) (added, removed, changed []string) {
	old, now := before.byName(), c.byName()
	for _, name := range slices.Sorted(maps.Keys(now)) {
		is, was := now[name], old[name]
		switch {
		case was.Caller == nil:
			added = append(added, name)
		case is.by != was.by || is.scopes != was.scopes || is.anyPolicy != was.anyPolicy || !maps.Equal(is.policies, was.policies):
			changed = append(changed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if now[name].Caller == nil {
			removed = append(removed, name)
		}
	}
	return added, removed, changed
}
