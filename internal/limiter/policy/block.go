package policy

import "time"

// BlockLength returns the length of the last of strikes blocks in a row: block_for × block_factor^(strikes − 1), and
// block_max at most.
func (p *Policy) BlockLength(strikes int) time.Duration {
	length := p.BlockFor
	for i := 1; i < strikes && p.BlockFactor > 1 && length < p.BlockMax; i++ {
		length *= time.Duration(p.BlockFactor)
	}
	return min(length, p.BlockMax)
}

// checkBlock adds the problems of p's blocks.
func (p Policy) checkBlock(found *problems) {
	if p.BlockFor == 0 {
		const cure = "has no meaning without block_for: give that too, such as 10m, or remove it"
		if p.BlockFactor != 0 {
			found.add("block_factor", cure)
		}
		if p.BlockMax != 0 {
			found.add("block_max", cure)
		}
		return
	}
	checkBlockTime(found, "block_for", p.BlockFor)
	if p.BlockFactor < 1 || p.BlockFactor > MaxBlockFactor {
		found.add("block_factor", "%d is out of range: use 1 (blocks do not grow) to %d", p.BlockFactor, MaxBlockFactor)
	}
	switch {
	case p.BlockMax < p.BlockFor:
		found.add("block_max", "%s is shorter than block_for: use %s or more", FormatWindow(p.BlockMax), FormatWindow(p.BlockFor))
	case p.BlockMax == p.BlockFor && p.BlockFactor > 1:
		found.add("block_max", "blocks grow by block_factor %d, and block_for is %s already: "+
			"use more than that, up to %s, or remove block_factor", p.BlockFactor, FormatWindow(p.BlockFor), FormatWindow(MaxWindow))
	case p.BlockMax != p.BlockFor:
		checkBlockTime(found, "block_max", p.BlockMax)
	}
}

func checkBlockTime(found *problems, path string, d time.Duration) {
	switch {
	case d < MinWindow || d > MaxWindow:
		found.add(path, "%s is out of range: use %s to %s", FormatWindow(d), FormatWindow(MinWindow), FormatWindow(MaxWindow))
	case d%time.Millisecond != 0:
		found.add(path, "%v is not whole milliseconds", d)
	}
}

// OverrideKind is the kind of an override.
type OverrideKind string

// The kinds of overrides.
const (
	OverrideAllow  OverrideKind = "allow"  // checks and takes are allowed without reading counts, and count nothing
	OverrideBlock  OverrideKind = "block"  // checks and takes are denied until its end without reading counts
	OverrideLimits OverrideKind = "limits" // some limits have other numbers; the counts stay
)
