package cluster

import "context"

// Listing is the latest view and the state of its members.
type Listing struct {
	View    View // the zero View if there is none
	Members []ListedMember
	Shares  []int // number of slots of each of Members
}

// ListedMember is a member as the store knows it.
type ListedMember struct {
	Member
	Alive     bool  // it sent a heartbeat within HeartbeatTTL
	In        bool  // it may decide
	Confirmed int64 // the latest view that it has confirmed
}

// List returns the view and members in store.
func List(ctx context.Context, store Store) (Listing, error) {
	view, _, err := readView(ctx, store, true)
	if err != nil {
		return Listing{}, err
	}
	beats, err := store.Heartbeats(ctx)
	if err != nil {
		return Listing{}, err
	}
	alive := make(map[ID]bool)
	for _, b := range beats {
		alive[b.ID] = !b.Left
	}
	list := Listing{View: view, Shares: view.Shares()}
	for _, m := range view.Members {
		st, err := standingOf(ctx, store, m.ID)
		if err != nil {
			return Listing{}, err
		}
		list.Members = append(list.Members, ListedMember{Member: m, Alive: alive[m.ID], In: !st.out, Confirmed: st.confirmed})
	}
	return list, nil
}
