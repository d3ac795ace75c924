package peer

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
	"github.com/ratelimitd/ratelimitd/internal/seen"
)

// TestKnowledgeIsHandedOver hands two slots over a real connection, and asks for keys of them there.
func TestKnowledgeIsHandedOver(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taker := new(views)
	server := NewServer(listener, plain, nil, taker, nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	var full, empty seen.Set
	for i := range uint64(500) {
		full.Add(seen.Hash{A: i * 0x9e3779b97f4a7c15, B: i * 0xbf58476d1ce4e5b9}, time.Now().Add(time.Hour))
	}
	pool := NewPool(new(one), plain, slog.New(slog.DiscardHandler))
	err = pool.HandOver(ctx, cluster.Member{ID: "there", Address: listener.Addr().String()}, 7,
		[]cluster.Handed{{Slot: 3, Layers: full.Layers()}, {Slot: 4095, Layers: empty.Layers()}})
	stop()
	if ended := <-done; err != nil || ended != nil {
		t.Fatal(err, ended)
	}
	if taker.view != 7 || len(taker.taken) != 2 || taker.taken[0].Slot != 3 || taker.taken[1].Slot != 4095 {
		t.Fatalf("taken by view %d: %+v", taker.view, taker.taken)
	}
	var there seen.Set
	if !there.Absorb(taker.taken[0].Layers) {
		t.Fatal("what arrived is no set")
	}
	for i := range uint64(500) {
		if !there.Has(seen.Hash{A: i * 0x9e3779b97f4a7c15, B: i * 0xbf58476d1ce4e5b9}) {
			t.Fatalf("key %d did not arrive", i)
		}
	}
	for _, l := range taker.taken[0].Layers {
		if left := time.Until(l.Until); left < 59*time.Minute || left > time.Hour+time.Second {
			t.Errorf("a layer is over in %s, want an hour", left)
		}
	}
}

// TestNonsenseIsNotTaken has a peer hand over what no slot holds.
func TestNonsenseIsNotTaken(t *testing.T) {
	for what, s := range map[string]*peerpb.Slot{
		"no such slot": {Number: cluster.Slots, Layers: []*peerpb.Layer{{Bits: make([]uint64, 8)}}},
		"over already": {Layers: []*peerpb.Layer{{Bits: make([]uint64, 8), LeftMillis: -1}}},
		"for ever":     {Layers: []*peerpb.Layer{{Bits: make([]uint64, 8), LeftMillis: 1 << 62}}},
	} {
		if got, err := handedOf(&peerpb.Knowledge{Slots: []*peerpb.Slot{s}}); err == nil {
			t.Errorf("%s: taken as %+v", what, got)
		}
	}
}
