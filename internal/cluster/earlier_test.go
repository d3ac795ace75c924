package cluster

import (
	"encoding/json"
	"hash/fnv"
	"reflect"
	"testing"
)

// TestEarlierOwners holds that members of this build and of earlier ones give each key the same owner. The hash was
// written down once, and nothing makes it anew: two members that each take a key for their own admit more than its limit.
// Another way of choosing owners needs a Mode of its own, in which earlier builds decide nothing.
func TestEarlierOwners(t *testing.T) {
	v := View{Number: 1, Mode: Owners, Members: []Member{
		{ID: "A", Address: "a:1"}, {ID: "B", Address: "b:1"}, {ID: "C"}, {ID: "D", Address: "d:1"},
	}}
	sum := fnv.New64a()
	for _, owner := range v.owners() {
		sum.Write([]byte{byte(owner)})
	}
	const want = 13756659018168368864
	if got := sum.Sum64(); got != want {
		t.Errorf("slots have the owners of hash %d, and of earlier builds %d", got, uint64(want))
	}
	for prefix, want := range map[uint64]int{0: 0, 4097: 1, 1<<64 - 1: 4095, 0x0123456789abcdef: 0xdef} {
		if got := SlotOf(prefix); got != want {
			t.Errorf("a key that begins with %x is in slot %d, and of earlier builds in %d", prefix, got, want)
		}
	}
}

// TestEarlierRows reads the rows of members that earlier builds wrote, and writes the same. A new member is
// `json:",omitzero"`, and safe to pass over for a build that does not know it.
func TestEarlierRows(t *testing.T) {
	member := Member{ID: "A", Address: "a:1", Joined: 2}
	for _, c := range []struct {
		kept any
		text string
	}{
		{
			&View{Number: 3, Mode: Sole, Members: []Member{member, {ID: "B"}}, Must: []ID{"A"}, Cuts: 1, Sole: "A", SoleSince: 2, All: "asked"},
			`{"number":3,"mode":"sole","members":[{"id":"A","address":"a:1","joined":2},{"id":"B"}],` +
				`"must":["A"],"cuts":1,"sole":"A","sole_since":2,"all":"asked"}`,
		},
		{&View{Number: 1, Mode: Owners, Members: []Member{{ID: "A"}}}, `{"number":1,"mode":"owners","members":[{"id":"A"}],"must":null}`},
		{&row{State: stateIn, Confirmed: 3, Address: "a:1"}, `{"state":"in","confirmed":3,"address":"a:1"}`},
		{&row{State: stateOut}, `{"state":"out","confirmed":0}`},
		{
			&Heartbeat{Member: member, Count: 4, Left: true, Refused: []ID{"B"}, Unreached: []ID{"C"}, Late: []ID{"D"},
				Load: Load{CPU: 0.5, Memory: 0.25}, All: true},
			`{"id":"A","address":"a:1","joined":2,"count":4,"left":true,"refused":["B"],"unreached":["C"],"late":["D"],` +
				`"load":{"cpu":0.5,"memory":0.25},"all":true}`,
		},
		{&Heartbeat{Member: Member{ID: "A"}, Count: 1}, `{"id":"A","count":1}`},
	} {
		if text := string(encode(c.kept)); text != c.text {
			t.Errorf("%T is kept as\n%s\nand by earlier builds as\n%s", c.kept, text, c.text)
		}
		got := reflect.New(reflect.TypeOf(c.kept).Elem())
		if err := json.Unmarshal([]byte(c.text), got.Interface()); err != nil || !reflect.DeepEqual(got.Interface(), c.kept) {
			t.Errorf("what an earlier build kept reads as %+v, %v", got, err)
		}
	}
}
