package cluster

import "time"

// Members that are cut off from each other decide in mode Shared, until all have reached each other for wholeFor. That
// time doubles after each further cut, up to wholeFor << (maxCuts - 1).
const (
	wholeFor = time.Minute
	maxCuts  = 5
)

// isCut reports whether members should decide in mode Shared in the next view. If members do not reach a sole owner, all
// of them own slots first, because the sole owner may only be too busy to answer.
func (s *membership) isCut(members []Member) bool {
	switch {
	case s.view.wasCut():
		return time.Since(s.whole) < s.view.wholeFor()
	case s.view.Mode == Sole:
		return false
	}
	return time.Since(s.owned) >= cutFor && len(s.heartbeats.lost(members, cutFor)) > 0
}

// wasCut reports whether v is in mode Shared because some members did not reach others.
func (v *View) wasCut() bool { return v.Mode == Shared && modeFor(v.Members) == Owners }

// wholeFor returns how long v's members must reach each other before keys have owners again.
func (v *View) wholeFor() time.Duration { return wholeFor << (max(v.Cuts, 1) - 1) }

// cuts returns the Cuts of next. The count begins at one again if keys have had owners for more than twice v's
// wholeFor.
func (s *membership) cuts(next *View) int {
	if !next.wasCut() || s.view.wasCut() {
		return s.view.Cuts
	}
	for _, w := range s.heartbeats.lost(next.Members, cutFor) {
		s.cluster.opts.Logger.Warn("a member does not reach another one: all members decide for all keys until it does",
			"from", w.From.ID, "from_address", w.From.Address, "to", w.To.ID, "to_address", w.To.Address)
	}
	if time.Since(s.since) > 2*s.view.wholeFor() {
		return 1
	}
	return min(s.view.Cuts+1, maxCuts)
}
