package events

import (
	"encoding/json"
	"time"
)

// auditLine is the part of a line of the audit log that is read.
type auditLine struct {
	Act     string
	Who     string
	Outcome string

	Policy    string
	Key       string
	Prefix    string
	Kind      string
	Limits    []OverrideLimit
	ExpiresAt *time.Time `json:"expires_at"`

	Version   int64
	Replaced  int64
	Unchanged bool
	Added     []string
	Removed   []string
	Changed   []string
}

// AuditLine sends an event for a line of the audit log, a JSON document, about an override or policies that came into
// force. The audit log has no identifiers, so no event has one.
func (s *Sender) AuditLine(line []byte) {
	var l auditLine
	if json.Unmarshal(line, &l) != nil || l.Outcome != "done" {
		return
	}
	override := Override{Policy: l.Policy, Key: l.Key, Prefix: l.Prefix, By: l.Who}
	policies := Policies{Version: l.Version, Added: l.Added, Removed: l.Removed, Changed: l.Changed, By: l.Who}
	switch {
	case l.Act == "override.set":
		override.Kind, override.Limits, override.EndsAt = l.Kind, l.Limits, l.ExpiresAt
		s.TellForAll(OverrideMade, override)
	case l.Act == "override.delete":
		s.TellForAll(OverrideEnded, override)
	case l.Act == "policies.apply" && l.Version != l.Replaced: // otherwise the text was the same
		s.TellForAll(PoliciesChanged, policies)
	case l.Act == "policies.reload" && l.Who == "file" && !l.Unchanged: // the one that applies to the store sends it
		s.Tell(PoliciesChanged, policies)
	}
}
