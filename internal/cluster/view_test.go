package cluster

import (
	"fmt"
	"slices"
	"testing"
)

func membersOf(ids ...ID) (members []Member) {
	for _, id := range ids {
		members = append(members, Member{ID: id, Address: string(id)})
	}
	return members
}

// TestWhoTheNextViewWaitsFor walks along chains of views. Each must wait for all members that may still decide by an earlier one.
func TestWhoTheNextViewWaitsFor(t *testing.T) {
	for _, test := range []struct {
		name  string
		from  View
		known map[ID]standing
		want  []ID
	}{
		{"the members of the view before", View{Number: 4, Members: membersOf("a", "b")}, nil, []ID{"a", "b"}},
		{"not those that are out", View{Number: 4, Members: membersOf("a", "b")}, map[ID]standing{"b": {out: true}}, []ID{"a"}},
		{
			"a member that was left out and never confirmed that",
			View{Number: 4, Members: membersOf("a"), Must: []ID{"m"}}, map[ID]standing{"m": {confirmed: 3}}, []ID{"a", "m"},
		},
		{
			"not one that was left out and confirmed that",
			View{Number: 4, Members: membersOf("a"), Must: []ID{"m"}}, map[ID]standing{"m": {confirmed: 4}}, []ID{"a"},
		},
		{
			"a member that confirmed, and that the view lists",
			View{Number: 4, Members: membersOf("a"), Must: []ID{"a"}}, map[ID]standing{"a": {confirmed: 4}}, []ID{"a"},
		},
	} {
		next := test.from.next(membersOf("n"), ownership{mode: Owners}, test.known)
		if next.Number != 5 || !slices.Equal(next.Must, test.want) {
			t.Errorf("%s: view %d waits for %v, want view 5 that waits for %v", test.name, next.Number, next.Must, test.want)
		}
	}
}

func TestViewIsInForceOnceAllHaveConfirmedOrAreOut(t *testing.T) {
	v := View{Number: 5, Must: []ID{"a", "b"}}
	for _, test := range []struct {
		known map[ID]standing
		want  bool
	}{
		{nil, false},
		{map[ID]standing{"a": {confirmed: 5}}, false},
		{map[ID]standing{"a": {confirmed: 5}, "b": {confirmed: 4}}, false},
		{map[ID]standing{"a": {confirmed: 5}, "b": {confirmed: 7}}, true},
		{map[ID]standing{"a": {out: true}, "b": {confirmed: 5}}, true},
	} {
		if got := v.installed(test.known); got != test.want {
			t.Errorf("in force by %v: %t, want %t", test.known, got, test.want)
		}
	}
}

func TestOwnersAreAllMembersAndMoveLittle(t *testing.T) {
	var ids []ID
	for i := range 20 {
		ids = append(ids, ID(fmt.Sprintf("member-%d", i)))
	}
	for n := 1; n < len(ids); n++ {
		before := View{Number: 1, Mode: Owners, Members: membersOf(ids[:n]...)}
		after := before.next(membersOf(ids[:n+1]...), ownership{mode: Owners}, nil)
		moved, was, is := 0, before.owners(), after.owners()
		for s := range was {
			switch a, b := before.Members[was[s]].ID, after.Members[is[s]].ID; {
			case a == b:
			case b != ids[n]:
				t.Fatalf("of %d members and one more, slot %d moved from %s to %s", n, s, a, b)
			default:
				moved++
			}
		}
		fair := Slots / (n + 1)
		if moved < fair*3/5 || moved > fair*7/5 {
			t.Errorf("the member that joins %d others owns %d slots of %d, want some %d", n, moved, Slots, fair)
		}
	}
}

func TestWhoHasNoAddressOwnsNothingAmongOthers(t *testing.T) {
	alone := View{Mode: modeFor([]Member{{ID: "a"}}), Members: []Member{{ID: "a"}}}
	if alone.Mode != Owners || alone.Shares()[0] != Slots {
		t.Errorf("alone in mode %s with %d slots, want all", alone.Mode, alone.Shares()[0])
	}
	mixed := []Member{{ID: "a"}, {ID: "b", Address: "b"}}
	two := View{Mode: modeFor(mixed), Members: mixed}
	if two.Mode != Owners || two.Shares()[0] != 0 || two.Shares()[1] != Slots {
		t.Errorf("mode %s, shares %v: want all slots with the one that has an address", two.Mode, two.Shares())
	}
	if mode := modeFor([]Member{{ID: "a"}, {ID: "b"}}); mode != Shared {
		t.Errorf("two that nobody reaches decide in mode %s, want %s", mode, Shared)
	}
}
