package peer

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
	"github.com/ratelimitd/ratelimitd/internal/seen"
)

// Messages between instances are here as earlier builds send them, written down once, and nothing makes them anew: in
// a rolling upgrade instances of both builds hand calls on to each other. A new field has a number of its own, and an
// instance that does not know it does nothing wrong.

// TestEarlierCalls reads calls of earlier builds, and sends the same.
func TestEarlierCalls(t *testing.T) {
	key := store.KeyFrom([store.KeySize]byte{1})
	for name, c := range map[string]struct {
		charge demand.Charge
		sent   string
	}{
		"take": {demand.Charge{
			Target:     demand.Target{Key: key, OldKeys: []store.Key{store.KeyFrom([store.KeySize]byte{4})}},
			Definition: &demand.Definition{Policy: "sms-send", Print: 2, Text: []byte("{}")},
			Op:         count.OpTake, Cost: 5, View: 6, Prepare: store.EventID{7}, AtOnce: true,
		}, "10062208736d732d73656e64290200000000000000322001000000000000000000000000000000000000000000000000" +
			"00000000000000322004000000000000000000000000000000000000000000000000000000000000003a0474616b6540" +
			"0552100700000000000000000000000000000058018a01027b7d"},
		"give back": {demand.Charge{
			Target: demand.Target{Key: key}, Definition: &demand.Definition{Policy: "sms-send"}, Op: owner.OpGiveBack,
			Back: &count.Entry{ID: store.EventID{1}, At: 2, Cost: 3, Claimed: 4, Confirmed: true},
		}, "2208736d732d73656e64322001000000000000000000000000000000000000000000000000000000000000003a096769" +
			"76655f6261636b7a1a0a10010000000000000000000000000000001002180320042801"},
		"reserve": {demand.Charge{
			Target: demand.Target{Key: key}, Definition: &demand.Definition{Policy: "sms-send"}, Op: count.OpReserve,
			Cost: 2, Hold: time.Hour,
		}, "2208736d732d73656e64322001000000000000000000000000000000000000000000000000000000000000003a077265" +
			"73657276654002980180dddb01"},
	} {
		sent := earlier(t, name, callOf(&c.charge), c.sent, new(peerpb.Call))
		if got, err := chargeOf(sent); err != nil || !reflect.DeepEqual(*got, c.charge) {
			t.Errorf("%s of an earlier build reads as %+v, %v", name, got, err)
		}
	}
}

// TestEarlierOpenings refuses what earlier builds sent to count for a key beside its owner: they count nothing then.
func TestEarlierOpenings(t *testing.T) {
	sent := readEarlier(t, "2208736d732d73656e64322001000000000000000000000000000000000000000000000000000000000000003a046f70"+
		"656e40f4034880dddb01", new(peerpb.Call))
	if call, err := chargeOf(sent); !errors.Is(err, owner.ErrRefused) {
		t.Errorf("it reads as %+v, %v", call, err)
	}
}

// TestEarlierCallsWithAVersion reads a call of builds that sent the version of their policies.
func TestEarlierCallsWithAVersion(t *testing.T) {
	want := &demand.Charge{
		Target: demand.Target{
			Key: store.KeyFrom([store.KeySize]byte{1}), OldKeys: []store.Key{store.KeyFrom([store.KeySize]byte{4})},
		},
		Definition: &demand.Definition{Policy: "sms-send", Print: 2},
		Op:         count.OpTake, Cost: 5, View: 6, Prepare: store.EventID{7}, AtOnce: true,
	}
	sent := readEarlier(t, "10062208736d732d73656e64290200000000000000322001000000000000000000000000000000000000000000000000"+
		"00000000000000322004000000000000000000000000000000000000000000000000000000000000003a0474616b6540"+
		"0552100700000000000000000000000000000058017003", new(peerpb.Call))
	if got, err := chargeOf(sent); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it reads as %+v, %v", got, err)
	}
}

// TestEarlierAnswers reads answers of earlier builds, and sends the same.
func TestEarlierAnswers(t *testing.T) {
	one := demand.NewPlan(policy.Policy{Name: "p", Limits: sms.Limits[:1]}, demand.Settings{}.WithDefaults(), false)
	want := demand.Charge{Target: demand.Target{Plan: one}, Op: count.OpTake, Steady: 8}
	one.Begin(&want.Decision)[0].Verdict = count.Verdict{Allowed: true, Used: 1, Remaining: 2, ResetAfter: 3, RetryAfter: -1}
	want.Decision.Conclude()
	want.Decision.Remembered, want.Decision.Recorded = true, count.RecordedYes
	want.Decision.Entry = count.Entry{ID: store.EventID{4}, At: 5, Epoch: 6, Cost: 7}
	sent := earlier(t, "answer", answerOf(9, &want, nil),
		"08092203796573280130013a13080110011802200328ffffffffffffffffff0142180a10040000000000000000000000"+
			"000000001005180620075008", new(peerpb.Answer))
	got := demand.Charge{Target: demand.Target{Plan: one}, Op: count.OpTake}
	if err := read(sent, &got); err != nil || !reflect.DeepEqual(got, want) || sent.GetNumber() != 9 {
		t.Errorf("an answer of an earlier build reads as %+v, %v", got, err)
	}
	refusal := answerOf(9, nil, owner.ErrUndefined)
	refusal.Reason = "of people"
	sent = earlier(t, "refusal", refusal, "080910051a096f662070656f706c6522026e6f", new(peerpb.Answer))
	if err := read(sent, &got); !errors.Is(err, owner.ErrUndefined) {
		t.Errorf("a refusal of an earlier build reads as %v", err)
	}
	// Some told their version of the policies.
	sent = readEarlier(t, "080910031a096f662070656f706c6522026e6f580a", new(peerpb.Answer))
	if err := read(sent, &got); !errors.Is(err, owner.ErrRefused) || errors.Is(err, owner.ErrUndefined) {
		t.Errorf("a refusal with a version reads as %v", err)
	}
}

// TestEarlierKnowledge takes over what an instance of an earlier build knows of its keys: an owner that takes a key for
// new does not read what is counted for it.
func TestEarlierKnowledge(t *testing.T) {
	key := store.KeyFrom([store.KeySize]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24})
	var set seen.Set
	set.Add(hashOf(key), time.Now().Add(time.Hour))
	sent := knowledgeOf(3, []cluster.Handed{{Slot: SlotOf(key), Layers: set.Layers()}})
	for _, of := range sent.GetSlots() {
		for _, l := range of.GetLayers() {
			l.LeftMillis = 60_000
		}
	}
	handed, err := handedOf(earlier(t, "knowledge", sent,
		"0803124d08880e12480a4000000000000200000000000800000000002000000000008000000000000000000000010000"+
			"000000040000000000100000000000400000000000000100000000102318e0d403", new(peerpb.Knowledge)))
	if err != nil || len(handed) != 1 || handed[0].Slot != SlotOf(key) {
		t.Fatalf("what an earlier build knows reads as %+v, %v", handed, err)
	}
	var taken seen.Set
	if !taken.Absorb(handed[0].Layers) || !taken.Has(hashOf(key)) {
		t.Error("a key that an earlier build handed over is taken for new")
	}
}

// TestEarlierSecrets derives the key that instances of earlier builds show.
func TestEarlierSecrets(t *testing.T) {
	const want = "ba13db7059608cbdf1a92795343ca2beba16725d84b638c9f7dde941a2e389de"
	key, err := peerKey([]byte("sixteen bytes or more"))
	if err != nil {
		t.Fatal(err)
	}
	public, _ := key.Public().(ed25519.PublicKey)
	if got := hex.EncodeToString(public); got != want {
		t.Errorf("the key is %s, and of earlier builds it is %s: they would refuse each other's connections", got, want)
	}
}

// earlier compares message with what earlier builds sent, and returns that, read into into.
func earlier[M proto.Message](t *testing.T, what string, message proto.Message, sent string, into M) M {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil || hex.EncodeToString(b) != sent {
		t.Errorf("%s is sent as\n%x, and by earlier builds as\n%s", what, b, sent)
	}
	return readEarlier(t, sent, into)
}

// readEarlier returns what earlier builds sent, read into into.
func readEarlier[M proto.Message](t *testing.T, sent string, into M) M {
	t.Helper()
	b, err := hex.DecodeString(sent)
	if err == nil {
		err = proto.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return into
}
