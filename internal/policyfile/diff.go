package policyfile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Diff is the difference of two lists of policies: names, and for changed ones their changed members.
type Diff struct{ Added, Removed, Changed []string }

// DiffOf returns how after differs from before.
func DiffOf(before, after []*policy.Policy) *Diff {
	c := new(Diff)
	old, now := policiesByName(before), policiesByName(after)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if old[name] == nil {
			c.Added = append(c.Added, name)
		} else if differs := policyDiffers(old[name], now[name]); len(differs) > 0 {
			c.Changed = append(c.Changed, name+": "+strings.Join(differs, ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if now[name] == nil {
			c.Removed = append(c.Removed, name)
		}
	}
	return c
}

// DiffOfFiles returns how after differs from before, with nothing filled in.
func DiffOfFiles(before, after File) *Diff {
	pointers := func(policies []policy.Policy) (all []*policy.Policy) {
		for i := range policies {
			all = append(all, &policies[i])
		}
		return all
	}
	d := DiffOf(pointers(before.Policies), pointers(after.Policies))
	if !reflect.DeepEqual(before.Envoy, after.Envoy) {
		d.Changed = append(d.Changed, EnvoyChanged)
	}
	return d
}

// EnvoyChanged is the change of a section for Envoy that differs.
const EnvoyChanged = "the mapping for Envoy"

func policiesByName(list []*policy.Policy) map[string]*policy.Policy {
	byName := make(map[string]*policy.Policy, len(list))
	for _, p := range list {
		byName[p.Name] = p
	}
	return byName
}

// policyDiffers returns the changed members of a policy.
func policyDiffers(old, now *policy.Policy) (all []string) {
	all = membersDiffer("", reflect.ValueOf(*old), reflect.ValueOf(*now))
	of := func(p *policy.Policy, name string) *policy.Limit {
		i := slices.IndexFunc(p.Limits, func(l policy.Limit) bool { return l.Name == name })
		if i < 0 {
			return nil
		}
		return &p.Limits[i]
	}
	for i := range now.Limits {
		l := &now.Limits[i]
		if was := of(old, l.Name); was == nil {
			all = append(all, "limit "+l.Name+" added")
		} else {
			all = append(all, membersDiffer(l.Name+" ", reflect.ValueOf(*was), reflect.ValueOf(*l))...)
		}
	}
	for i := range old.Limits {
		if of(now, old.Limits[i].Name) == nil {
			all = append(all, "limit "+old.Limits[i].Name+" removed")
		}
	}
	return all
}

// membersDiffer returns the fields that differ in two structs of one type, except lists of limits.
func membersDiffer(of string, old, now reflect.Value) (all []string) {
	for i := range old.NumField() {
		field := old.Type().Field(i)
		was, is := old.Field(i).Interface(), now.Field(i).Interface()
		switch {
		case field.Name == "Limits" || reflect.DeepEqual(was, is):
		case field.Name == "Description" || field.Type.Kind() == reflect.Slice:
			all = append(all, of+memberName(field.Name))
		default:
			all = append(all, fmt.Sprintf("%s%s %v -> %v", of, memberName(field.Name), was, is))
		}
	}
	return all
}

// memberName returns the name of a field in a file: on_store_error for OnStoreError.
func memberName(field string) string {
	var name strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	return name.String()
}
