package limiter

import "sync"

// handed is what was handed out of an allowance of a log, event by event: an event has an
// instant, which decides when it no longer counts. Only this process knows of them. The zero
// value is of nothing.
type handed struct{ shards [handedShards]handedShard }

const (
	handedShards = 64
	// maxHanded bounds the events of a shard: a million in all, at some 60 bytes. Beyond, the
	// store is asked.
	maxHanded = 1 << 14
)

// handedShard holds what was handed out of some keys, each a chain through events.
type handedShard struct {
	mu     sync.Mutex
	last   map[handedKey]int32 // where each key's latest is
	events []handedEvent
}

// handedKey is half of a key's hash: enough to tell any number of keys apart.
type handedKey [KeySize / 2]byte

// handedEvent is one of a key.
type handedEvent struct {
	id     EventID
	cost   int32 // 0: it was given back, or is none
	before int32 // where the key's one before is; noneBefore: it is the first
	ended  bool  // nothing more is handed out of the key
}

const noneBefore = -1

// add hands out an event of cost, if no more than most is handed out of key with it.
func (h *handed) add(key Key, id EventID, cost, most int64) bool {
	s, k := h.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	sum, free := cost, (*handedEvent)(nil)
	for e := range s.of(k) {
		if e.ended {
			return false
		}
		if sum += int64(e.cost); e.cost == 0 {
			free = e
		}
	}
	if sum > most {
		return false
	}
	if free != nil {
		free.id, free.cost = id, int32(cost)
		return true
	}
	return s.push(k, handedEvent{id: id, cost: int32(cost)})
}

// end has nothing more handed out of key. That holds as well where there is no room to
// remember it: then there is none to hand out either.
func (h *handed) end(key Key) {
	s, k := h.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.last[k]; ok {
		s.events[at].ended = true
		return
	}
	s.push(k, handedEvent{ended: true})
}

// giveBack forgets the event called id, and reports whether it was handed out of key.
func (h *handed) giveBack(key Key, id EventID) (known bool) {
	s, k := h.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.of(k) {
		if e.id == id {
			e.cost, known = 0, true
		}
	}
	return known
}

// forget forgets what was handed out of key until an instant.
func (h *handed) forget(key Key, until Instant) {
	s, k := h.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.of(k) {
		if e.id.Instant() <= until {
			e.cost = 0
		}
	}
}

// appendTo appends to events what was handed out of key and not given back, and reports
// whether that has ended.
func (h *handed) appendTo(events []Event, key Key) (all []Event, ended bool) {
	s, k := h.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.of(k) {
		ended = ended || e.ended
		if e.cost > 0 {
			events = append(events, Event{ID: e.id, At: e.id.Instant(), Cost: int64(e.cost)})
		}
	}
	return events, ended
}

func (h *handed) shard(key Key) (*handedShard, handedKey) {
	return &h.shards[key.sum[0]%handedShards], handedKey(key.sum[KeySize/2:])
}

// of returns the events of k, the latest first.
func (s *handedShard) of(k handedKey) func(func(*handedEvent) bool) {
	return func(yield func(*handedEvent) bool) {
		at, ok := s.last[k]
		for ok && at != noneBefore {
			e := &s.events[at]
			if !yield(e) {
				return
			}
			at = e.before
		}
	}
}

// push adds e to the events of k, if there is room.
func (s *handedShard) push(k handedKey, e handedEvent) bool {
	if len(s.events) == maxHanded {
		return false
	}
	if s.last == nil {
		s.last = make(map[handedKey]int32)
	}
	e.before = noneBefore
	if at, ok := s.last[k]; ok {
		e.before = at
	}
	s.last[k] = int32(len(s.events))
	s.events = append(s.events, e)
	return true
}
