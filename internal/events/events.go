// Package events sends signed CloudEvents to a receiver over HTTP when something happens that an operator wants to know
// soon: a denied country, a store that does not answer, an override, another version of the policies.
//
// It knows policies by name and identifiers by their keys, and nothing about decisions. It does not delay them: events that
// the receiver does not accept wait within bounds, are retried, and are dropped in the end.
package events

import "time"

// Kind is the subject of an event. Events of one kind arrive in order.
type Kind string

// The kinds.
const (
	KindConversion Kind = "conversion" // a conversion limit denies
	KindDenials    Kind = "denials"    // a policy denies a large share of its calls
	KindDegraded   Kind = "degraded"   // the store does not answer
	KindBlock      Kind = "block"      // a denial blocks a key
	KindOverride   Kind = "override"   // an administrator overrides a policy
	KindPolicies   Kind = "policies"   // other policies come into force
)

// Kinds are all kinds.
var Kinds = []Kind{KindConversion, KindDenials, KindDegraded, KindBlock, KindOverride, KindPolicies}

// Type is the type of an event.
type Type struct {
	kind Kind
	what string
}

// The types.
var (
	ConversionBegan = Type{KindConversion, "began"}
	ConversionEnded = Type{KindConversion, "ended"}
	DenialsBegan    = Type{KindDenials, "began"}
	DenialsEnded    = Type{KindDenials, "ended"}
	DegradedBegan   = Type{KindDegraded, "began"}
	DegradedEnded   = Type{KindDegraded, "ended"}
	BlockMade       = Type{KindBlock, "made"}
	BlockEnded      = Type{KindBlock, "ended"} // before its time
	OverrideMade    = Type{KindOverride, "made"}
	OverrideEnded   = Type{KindOverride, "ended"} // before its time
	PoliciesChanged = Type{KindPolicies, "changed"}
)

// Types are all types.
var Types = []Type{
	ConversionBegan, ConversionEnded, DenialsBegan, DenialsEnded, DegradedBegan, DegradedEnded,
	BlockMade, BlockEnded, OverrideMade, OverrideEnded, PoliciesChanged,
}

// String returns the type of CloudEvents, such as "ratelimitd.block.made".
func (t Type) String() string { return "ratelimitd." + string(t.kind) + "." + t.what }

// event is an event to be sent.
type event struct {
	id     string
	source string
	of     Type
	at     time.Time
	data   any // one of the structs below
}

// Conversion is about a conversion limit that denies a key, such as that of a country or of a range of numbers.
type Conversion struct {
	Policy  string     `json:"policy"`
	Limit   string     `json:"limit"`
	Key     string     `json:"key"`               // the first digits
	Country string     `json:"country,omitempty"` // of the key; empty: the key is not a country's
	Name    string     `json:"name,omitempty"`    // the identifier of the key, if the policy names it; empty: it does not
	Since   *time.Time `json:"since,omitempty"`   // of an end
	Denied  int64      `json:"denied,omitempty"`  // calls since; of an end
}

// Denials is about a policy that denied a large share of its calls within the last minute.
type Denials struct {
	Policy  string     `json:"policy"`
	Calls   int64      `json:"calls"`
	Denied  int64      `json:"denied"`          // of Calls
	Percent int64      `json:"percent"`         // threshold, from Options.DeniedShare
	Since   *time.Time `json:"since,omitempty"` // of an end
}

// Degraded is about decisions by on_store_error.
type Degraded struct {
	Since    time.Time        `json:"since"`
	Policies map[string]int64 `json:"policies"` // decisions since, by policy
}

// Block is about a key that a denial blocks, or that a reset freed.
type Block struct {
	Policy  string     `json:"policy"`
	Key     string     `json:"key"` // the first digits
	EndsAt  *time.Time `json:"ends_at,omitempty"`
	Strikes int        `json:"strikes,omitempty"` // blocks in a row, including this one
}

// Override is about an override that an administrator made or ended.
type Override struct {
	Policy string          `json:"policy"`
	Key    string          `json:"key,omitempty"`    // the first digits
	Prefix string          `json:"prefix,omitempty"` // in place of a key
	Kind   string          `json:"kind,omitempty"`
	Limits []OverrideLimit `json:"limits,omitempty"`
	EndsAt *time.Time      `json:"ends_at,omitempty"` // nil: never, if it was made
	By     string          `json:"by"`
}

// OverrideLimit is a limit in the place of one of a policy's.
type OverrideLimit struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Burst int64  `json:"burst,omitempty"`
}

// Policies is about policies that come into force.
type Policies struct {
	Version int64    `json:"version,omitempty"` // in the store; 0: they are in a file
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"` // a sentence for each
	By      string   `json:"by"`                // "file": of a file
}
