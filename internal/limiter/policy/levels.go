package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Level is a consistency level of the store, by its Cassandra name. The empty
// Level means the server's default. Stores with a single copy ignore it.
type Level string

// The consistency levels that a policy or the server may name.
const (
	LevelAny         Level = "ANY"
	LevelOne         Level = "ONE"
	LevelTwo         Level = "TWO"
	LevelThree       Level = "THREE"
	LevelQuorum      Level = "QUORUM"
	LevelAll         Level = "ALL"
	LevelLocalQuorum Level = "LOCAL_QUORUM"
	LevelLocalOne    Level = "LOCAL_ONE"
	LevelEachQuorum  Level = "EACH_QUORUM"

	LevelSerial      Level = "SERIAL"       // compare-and-set over all data centres
	LevelLocalSerial Level = "LOCAL_SERIAL" // compare-and-set within one data centre
)

// readLevels, writeLevels and serialLevels list the levels of reads, writes and compare-and-set.
var (
	readLevels   = []Level{LevelOne, LevelTwo, LevelThree, LevelQuorum, LevelAll, LevelLocalQuorum, LevelLocalOne}
	writeLevels  = append(slices.Clone(readLevels), LevelAny, LevelEachQuorum)
	serialLevels = []Level{LevelSerial, LevelLocalSerial}
)

// Consistency is the pair of levels at which a policy writes and reads.
type Consistency struct {
	Write Level
	Read  Level
}

// WithDefault returns c with def in place of the levels that are not set.
func (c Consistency) WithDefault(def Consistency) Consistency {
	if c.Write == "" {
		c.Write = def.Write
	}
	if c.Read == "" {
		c.Read = def.Read
	}
	return c
}

// ParseReadLevel returns the read level called name, in any case of letters. The error lists the valid levels.
func ParseReadLevel(name string) (Level, error) { return parseLevel("read", name, readLevels) }

// ParseWriteLevel returns the write level called name, in any case of letters. The error lists the valid levels.
func ParseWriteLevel(name string) (Level, error) { return parseLevel("write", name, writeLevels) }

// ParseSerialLevel returns the level of compare-and-set called name, in any case of letters. The error lists the valid
// levels.
func ParseSerialLevel(name string) (Level, error) { return parseLevel("serial", name, serialLevels) }

// Quorum returns the level of plain reads and commits beside compare-and-set at l: any two of its quorums overlap.
func (l Level) Quorum() Level {
	if l == LevelSerial {
		return LevelQuorum
	}
	return LevelLocalQuorum
}

// Scope returns the scope of a guarantee by compare-and-set at l.
func (l Level) Scope() Scope {
	if l == LevelSerial {
		return ScopeCluster
	}
	return ScopeDatacenter
}

// Caveat returns a sentence that says how the limit may be exceeded with compare-and-set at l; empty if it holds over the
// whole cluster.
func (l Level) Caveat() string {
	if l == LevelSerial {
		return ""
	}
	return "LOCAL_SERIAL holds the limit within each data centre; over several of them each admits up to the limit (SERIAL holds it over all)"
}

func parseLevel(kind, name string, levels []Level) (Level, error) {
	level := Level(strings.ToUpper(name))
	if slices.Contains(levels, level) {
		return level, nil
	}
	return "", fmt.Errorf("%q is not a %s level: use one of %s", name, kind, joined(levels, ", "))
}

// Scope is the extent of a guarantee.
type Scope string

// The scopes of a guarantee: over the whole cluster, within each data centre on its own, or nowhere.
const (
	ScopeCluster    Scope = "cluster"
	ScopeDatacenter Scope = "datacenter"
	ScopeNone       Scope = "none"
)

// Scope returns where "never more than the limit" holds at these levels: every set of replicas that a read asks must
// overlap every set of replicas that a write waits for. For levels that count replicas (ONE, TWO, THREE), it assumes a
// replication factor of three in one data centre.
func (c Consistency) Scope() Scope {
	w, r := c.Write, c.Read
	switch {
	case w == LevelAny:
		return ScopeNone
	case w == LevelAll || r == LevelAll:
		return ScopeCluster
	case w == LevelEachQuorum && (r == LevelQuorum || r == LevelLocalQuorum):
		return ScopeCluster
	case w == LevelQuorum && r == LevelQuorum:
		return ScopeCluster
	case w == LevelLocalQuorum && r == LevelLocalQuorum:
		return ScopeDatacenter
	case c.replicasOfThree() > 3:
		return ScopeCluster
	}
	return ScopeNone
}

// replicasOfThree returns the number of three replicas that the write waits for plus the number that the read asks; 0
// if a level is bound to a data centre.
func (c Consistency) replicasOfThree() int {
	count := map[Level]int{LevelOne: 1, LevelTwo: 2, LevelThree: 3, LevelQuorum: 2}
	w, r := count[c.Write], count[c.Read]
	if w == 0 || r == 0 {
		return 0
	}
	return w + r
}

// Caveat returns a sentence that says how the limit may be exceeded at these levels; empty if it holds over the whole
// cluster.
func (c Consistency) Caveat() string {
	switch {
	case c.Write == LevelAny:
		return "write ANY promises nothing: an event may sit as a hint on a coordinator, unseen by every read, until its node is back"
	case c.Scope() == ScopeDatacenter:
		return "LOCAL_QUORUM holds the limit within each data centre; over several of them each admits up to the limit " +
			"(QUORUM with QUORUM, or EACH_QUORUM writes, holds it over all)"
	case c.dependsOnReplication():
		return fmt.Sprintf("write %s with read %s holds the limit at a replication factor of 3 or less, not above", c.Write, c.Read)
	case c.Scope() == ScopeNone:
		return fmt.Sprintf("write %s with read %s: a read may miss what was just recorded, so more than the limit can get through",
			c.Write, c.Read)
	}
	return ""
}

// dependsOnReplication reports whether the levels overlap only at a replication factor of three or less.
func (c Consistency) dependsOnReplication() bool {
	fixed := func(l Level) bool { return l == LevelOne || l == LevelTwo || l == LevelThree }
	return c.replicasOfThree() > 3 && (fixed(c.Write) || fixed(c.Read))
}

// WithinDatacenter reports whether some policy's guarantee holds within one data centre only: by its levels of writes
// and reads or, for compare-and-set, by serial.
func WithinDatacenter(policies []Policy, levels Consistency, serial Level) bool {
	local := []Level{LevelLocalOne, LevelLocalQuorum}
	return slices.ContainsFunc(policies, func(p Policy) bool {
		c := p.Consistency.WithDefault(levels)
		return slices.Contains(local, c.Write) || slices.Contains(local, c.Read) ||
			serial == LevelLocalSerial && slices.ContainsFunc(p.Limits, Limit.InCell)
	})
}
