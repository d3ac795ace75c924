package cassandra_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/members"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
)

func TestMembersChangeByCompareAndSetAlone(t *testing.T) {
	members := newStore(t, commonConfig(t)).Members(rand.Text())
	ctx := t.Context()
	if cell, err := members.Get(ctx, "view", true); err != nil || cell.Version != (cluster.Version{}) {
		t.Fatalf("what was never set is %+v, error %v", cell, err)
	}
	first, err := members.Set(ctx, "view", cluster.Version{}, []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := members.Set(ctx, "view", cluster.Version{}, []byte("2")); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("set where something is already: %v, want %v", err, cluster.ErrConflict)
	}
	second, err := members.Set(ctx, "view", first, []byte("2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := members.Set(ctx, "view", first, []byte("3")); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("set over what has changed: %v, want %v", err, cluster.ErrConflict)
	}
	for _, latest := range []bool{false, true} {
		if cell, err := members.Get(ctx, "view", latest); err != nil || cell.Version != second || string(cell.Value) != "2" {
			t.Errorf("latest %t: %+v, error %v; want 2 of version %x", latest, cell, err, second)
		}
	}
}

func TestBeatsOfMembersAreKeptApartByNamespace(t *testing.T) {
	store := newStore(t, commonConfig(t))
	shop, office := store.Members(rand.Text()), store.Members(rand.Text())
	for count := range int64(3) {
		sent := cluster.Heartbeat{Member: cluster.Member{ID: "a", Address: "127.0.0.1:1"}, Count: count}
		if err := shop.Heartbeat(t.Context(), sent); err != nil {
			t.Fatal(err)
		}
	}
	beats, err := shop.Heartbeats(t.Context())
	if err != nil || len(beats) != 1 || beats[0].Count != 2 || beats[0].Address != "127.0.0.1:1" {
		t.Errorf("heartbeats %+v, error %v; want the last of a", beats, err)
	}
	if beats, err := office.Heartbeats(t.Context()); err != nil || len(beats) != 0 {
		t.Errorf("another namespace has heartbeats %+v, error %v", beats, err)
	}
}

// TestThreeMembersOfOneCluster holds that members which start at once agree on who owns what, and
// agree anew when one leaves.
func TestThreeMembersOfOneCluster(t *testing.T) {
	store := newStore(t, commonConfig(t))
	namespace, all := rand.Text(), make([]*member, 3)
	for i := range all {
		all[i] = startMember(t, store.Members(namespace), string(rune('a'+i)))
	}
	awaitMembers(t, 3, all...)
	owners := make(map[cluster.ID]int)
	for slot := range cluster.Slots {
		for _, m := range all {
			place, err := m.cluster.Enter(t.Context(), slot)
			if err != nil {
				t.Fatal(err)
			}
			if place.Term == nil {
				continue
			}
			owners[m.cluster.Self()]++
			place.Term.Leave()
		}
	}
	owned := 0
	for _, n := range owners {
		owned += n
	}
	if len(owners) != 3 || owned != cluster.Slots {
		t.Errorf("%d members own %d slots, want 3 that own %d", len(owners), owned, cluster.Slots)
	}
	place, err := all[0].cluster.Enter(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if place.Term != nil {
		if err := place.Term.Verify(t.Context()); err != nil {
			t.Errorf("a member that is in reads of its row: %v", err)
		}
		place.Term.Leave()
	}
	all[2].leave()
	awaitMembers(t, 2, all[:2]...)
}

// member is a cluster that runs.
type member struct {
	cluster *cluster.Cluster
	leave   func()
}

func startMember(t *testing.T, kept *members.Members, address string) *member {
	ctx, stop := context.WithCancel(context.Background())
	m := &member{cluster: cluster.New(kept, &cluster.Options{Address: address, AllOwn: true})}
	done := make(chan error, 1)
	go func() { done <- m.cluster.Run(ctx) }()
	left := false
	m.leave = func() {
		if left {
			return
		}
		left = true
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(m.leave)
	return m
}

// awaitMembers waits until all of members know a view of n that is in force.
func awaitMembers(t *testing.T, n int, members ...*member) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(20 * time.Second); ; <-tick.C {
		agreed := 0
		for _, m := range members {
			if st := m.cluster.Status(); st.Installed && len(st.View.Members) == n {
				agreed++
			}
		}
		if agreed == len(members) {
			return
		}
		if time.Now().After(until) {
			for _, m := range members {
				t.Logf("%+v", m.cluster.Status())
			}
			t.Fatalf("%d of %d agree on a view of %d members", agreed, len(members), n)
		}
	}
}
