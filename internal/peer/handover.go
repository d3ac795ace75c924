package peer

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
	"github.com/ratelimitd/ratelimitd/internal/seen"
)

// HandOver sends a member the key sets of slots that this instance owned up to the view before view. It is a
// cluster.HandOver.
func (p *Pool) HandOver(ctx context.Context, to cluster.Member, view int64, slots []cluster.Handed) error {
	conn, err := grpc.NewClient(to.Address, grpc.WithTransportCredentials(p.creds))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = peerpb.NewPeerClient(conn).HandOver(addressedTo(ctx, to), knowledgeOf(view, slots))
	return err
}

// Views is the state of views as this instance knows it. A cluster.Cluster implements it.
type Views interface {
	// Known returns the number of the latest view.
	Known() int64
	// Self returns the id of this instance as a member, empty if it is not a member.
	Self() cluster.ID
	// Take accepts the key sets of members that owned the slots up to the view before view.
	Take(view int64, slots []cluster.Handed)
}

// HandOver accepts a peer's key sets.
func (s *Server) HandOver(ctx context.Context, k *peerpb.Knowledge) (*peerpb.Taken, error) {
	if err := checkAddressee(ctx, s.members.Self()); err != nil {
		return nil, err
	}
	slots, err := handedOf(k)
	if err != nil {
		return nil, err
	}
	s.members.Take(k.GetView(), slots)
	return &peerpb.Taken{}, nil
}

// knowledgeOf returns the message with the key sets of slots.
func knowledgeOf(view int64, slots []cluster.Handed) *peerpb.Knowledge {
	k := &peerpb.Knowledge{View: view}
	for _, h := range slots {
		slot := &peerpb.Slot{Number: uint32(h.Slot)} //nolint:gosec // one of cluster.Slots
		for _, l := range h.Layers {
			slot.Layers = append(slot.Layers, &peerpb.Layer{
				Bits: l.Bits, Room: uint32(max(0, l.Room)), LeftMillis: time.Until(l.Until).Milliseconds() + 1, //nolint:gosec // of some thousand
			})
		}
		k.Slots = append(k.Slots, slot)
	}
	return k
}

// maxLeft is longer than any unit affects decisions.
const maxLeft = 100 * 24 * time.Hour

// handedOf returns the key sets in k, or an error that names an invalid value.
func handedOf(k *peerpb.Knowledge) (all []cluster.Handed, err error) {
	for _, slot := range k.GetSlots() {
		h := cluster.Handed{Slot: int(slot.GetNumber())}
		for _, l := range slot.GetLayers() {
			if l.GetLeftMillis() < 0 || l.GetLeftMillis() > maxLeft.Milliseconds() || h.Slot >= cluster.Slots {
				return nil, fmt.Errorf("%w: slot %d, %d ms", errNonsense, h.Slot, l.GetLeftMillis())
			}
			left := time.Duration(l.GetLeftMillis()) * time.Millisecond
			h.Layers = append(h.Layers, seen.Layer{Bits: l.GetBits(), Room: int(l.GetRoom()), Until: time.Now().Add(left)})
		}
		all = append(all, h)
	}
	return all, nil
}
