package cluster

import (
	"cmp"
	"crypto/rand"
	"hash/fnv"
	"slices"
)

// Slots is the number of parts into which the keys fall. Each has one owner. With twenty members each has some 200, so
// that shares differ by a few percent.
const Slots = 4096

// ID is the id of a member. It is never used again: an instance that joins again has a new one.
type ID string

// NewID returns a new ID: 130 random bits.
func NewID() ID { return ID(rand.Text()) }

// Member is an instance that may decide.
type Member struct {
	ID      ID     `json:"id"`
	Address string `json:"address,omitempty"` // host:port at which others reach it; empty: they can't
	Joined  int64  `json:"joined,omitempty"`  // the number of the first view that lists it; 0: none yet
}

// Mode is the way in which the members of a view decide.
type Mode string

// The modes.
const (
	Sole   Mode = "sole"   // one member owns every slot. An older build does not know this mode, and decides nothing
	Owners Mode = "owners" // each slot's owner alone decides for it
	Shared Mode = "shared" // every member decides for all slots, by writing and then counting
)

// View is a numbered list of members. Views follow each other by number, and are immutable. The zero View means that there
// is none.
type View struct {
	Number  int64    `json:"number"` // 1 and up
	Mode    Mode     `json:"mode"`
	Members []Member `json:"members"`        // in order of their ids
	Must    []ID     `json:"must"`           // members that must confirm the view, or be out, before it is in force
	Cuts    int      `json:"cuts,omitempty"` // number of recent times that members were cut off from each other

	Sole      ID    `json:"sole,omitempty"`       // the owner of every slot, in mode Sole
	SoleSince int64 `json:"sole_since,omitempty"` // the number of the view since which it is the sole owner without a gap
	All       Why   `json:"all,omitempty"`        // why all members own slots; empty: there is no reason against a sole owner
}

// Lists reports whether id is a member of v.
func (v *View) Lists(id ID) bool {
	return slices.ContainsFunc(v.Members, func(m Member) bool { return m.ID == id })
}

// hasOwners reports whether each slot has one owner. It is false for the zero View.
func (v *View) hasOwners() bool { return v.Mode == Owners || v.Mode == Sole }

// idsOf returns the ids of members, in their order.
func idsOf(members []Member) (ids []ID) {
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

// standing is what other members need to know of a member's row.
type standing struct {
	out       bool
	confirmed int64 // the latest view that it confirmed; 0: none
}

// next returns the view after v, with these members and owners. known has the standings of the members of v and of
// those for which v waits; a member without one counts as in, without a confirmation.
//
// The next view waits for all members that may still decide by v or by an earlier view: the members of v, and those for
// which v waits, less those that are out, and less those that v does not list and that have confirmed v.
func (v *View) next(members []Member, own ownership, known map[ID]standing) View {
	w := View{
		Number: v.Number + 1, Members: slices.Clone(members), Cuts: v.Cuts,
		Mode: own.mode, Sole: own.sole, All: own.all,
	}
	switch {
	case w.Sole == "":
	case v.Mode == Sole && v.Sole == w.Sole:
		w.SoleSince = v.SoleSince
	default:
		w.SoleSince = w.Number
	}
	for i := range w.Members {
		if w.Members[i].Joined == 0 {
			w.Members[i].Joined = w.Number
		}
	}
	slices.SortFunc(w.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	for _, id := range v.involved() {
		s := known[id]
		if s.out || !v.Lists(id) && s.confirmed >= v.Number {
			continue
		}
		w.Must = append(w.Must, id)
	}
	return w
}

// involved returns the members of v and those for which it waits, each once, in order.
func (v *View) involved() []ID {
	ids := slices.Clone(v.Must)
	for _, m := range v.Members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// installed reports whether v is in force, by the standings of the members for which it waits.
func (v *View) installed(known map[ID]standing) bool {
	for _, id := range v.Must {
		if s := known[id]; !s.out && s.confirmed < v.Number {
			return false
		}
	}
	return true
}

// modeFor returns the best mode for members: owners if a member has an address, or if there is only one member.
func modeFor(members []Member) Mode {
	if len(members) == 1 || slices.ContainsFunc(members, func(m Member) bool { return m.Address != "" }) {
		return Owners
	}
	return Shared
}

// owners returns the owner of each slot as an index into v's Members: by rendezvous hashing (Thaler and Ravishankar,
// 1996) over those with an address, so that a member that joins or leaves moves only its own slots. In mode Sole one
// member owns all. In mode Shared all are -1.
func (v *View) owners() (owner [Slots]int16) {
	first := int16(-1)
	if v.Mode == Sole {
		first = int16(slices.IndexFunc(v.Members, func(m Member) bool { return m.ID == v.Sole })) //nolint:gosec // few
	}
	for s := range owner {
		owner[s] = first
	}
	if v.Mode != Owners {
		return owner
	}
	var weights [Slots]uint64
	for i, m := range v.Members {
		if m.Address == "" && len(v.Members) > 1 {
			continue
		}
		sum := fnv.New64a()
		sum.Write([]byte(m.ID))
		seed := sum.Sum64()
		for s := range owner {
			if w := mix(seed + uint64(s)*0x9e3779b97f4a7c15); owner[s] < 0 || w > weights[s] {
				owner[s], weights[s] = int16(i), w
			}
		}
	}
	return owner
}

// mix spreads every bit of x over all bits. It is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
