package once

import (
	"encoding/hex"
	"reflect"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// A receipt that an earlier build gave, with what it says, and what that build hashed. They were written down once, and
// nothing makes them anew: a receipt that can't be opened can't be refunded or confirmed, and under another hash a
// repetition of a call counts twice.
const (
	earlierReceipt = "mtvTd3K2npDcyEDp6ozCCbHN579ASeiE7qz0drA5dfbrFXqMT4iYPzqAlvTio9AtnD3y7_ovPJSA5nQ39XIaAzcF_MNHe1Uv" +
		"b0ubHVRiQDP7KXvgHNowWqBBYCxgl-gwwbeFP1EQ8x0oInzyCjzJel0ONALpYlO_U_tlI-zwXkR6SeZ7A_9r5aqGghaZ9BBS" +
		"3pDq8mUQtweAD__Z8siWmDVr_t2G-REjvjuxgPkazl6xYPDjn-2O4-zpZDyiTlkllysOs1NEsfo_0IsLVtJdRKcmP6dzdWg3" +
		"R8rKzowJ5DQi0R7ZB_k4TaEvRQcpxvvFHQKPug6oxDe_aZG4rmxTP9fyQeEl"
	earlierPlain = "0168c0d1af9495670208736d732d73656e64808080808080808010020300000000000000000000000000000000000000" +
		"000000000000000000000000040000000000000000000000000000000080a8a89495670a0c08736d732d73656e648080" +
		"808080808080100203000000000000000000000000000000000000000000000000000000000000000400000000000000" +
		"000000000000000001070000000000000000000000000000000000000000000000000000000000000080a8a89495670a" +
		"0c01056b6e6f776e080900000000000000000000000000000000000000000000000000000000000000"
	earlierSum   = "c97c7d32b0df9e79a25acb905f07e05af25b10dec7e0f7efe649d6d7c274cc14"
	earlierClaim = "b5d9b8d3 461824fb 3926f7b0 266c9a94 8758235e c4b965b0 1251dddb "
)

// TestEarlierReceipts opens a receipt that an earlier build gave, and seals the same.
func TestEarlierReceipts(t *testing.T) {
	k := fuzzKeyring(t, 1)
	entry := Entry{Policy: "sms-send", Space: 1 << 60, Sums: 2, Key: store.KeyFrom([store.KeySize]byte{3}),
		Entry: count.Entry{ID: store.EventID{4}, At: 1_772_366_400_000, Epoch: 5, Cost: 6}}
	cell := entry
	cell.Cell = store.KeyFrom([store.KeySize]byte{7})
	want := &Token{Kind: Reserved, Ends: 1_772_366_460_000, Entries: []Entry{entry, cell},
		Marks: []Mark{{Policy: "known", Space: 8, Key: store.KeyFrom([store.KeySize]byte{9})}}}
	if got := hex.EncodeToString(want.append(nil)); got != earlierPlain {
		t.Errorf("a token says\n%s, and of earlier builds it says\n%s: a new member comes at the end, where it says anything", got, earlierPlain)
	}
	if got, err := k.Open(earlierReceipt, Reserved); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("a reservation of an earlier build opens as %+v, %v; sealed as it is now: %s", got, err, k.Seal(want))
	}
}

// TestEarlierClaims holds that idempotency keys, receipts and reservations are claimed where earlier builds claim them.
func TestEarlierClaims(t *testing.T) {
	if got := hex.EncodeToString(fuzzKeyring(t, 1).Sum("take", "", "sms-send")); got != earlierSum {
		t.Errorf("the hash of a call is %s, and of earlier builds it is %s", got, earlierSum)
	}
	o := demand.Settings{Keyer: keys.Keyer{Namespace: "prod"}}.WithDefaults()
	c := &Claims{opts: o, Serial: policy.LevelSerial}
	got := ""
	for _, space := range []string{
		spaceSecret, SpaceIdempotency, SpaceRefund, SpaceReservation, SpaceIdentity, SpaceConfirmed, SpaceKnown,
	} {
		got += hex.EncodeToString(c.Key(space, []byte("name")).Bytes()[:4]) + " "
	}
	if got != earlierClaim {
		t.Errorf("claims are under %s, and of earlier builds they are under %s", got, earlierClaim)
	}
}
