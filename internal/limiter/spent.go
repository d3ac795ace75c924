package limiter

import (
	"sync"
)

// spent is how much of an allowance was handed out of each key, or a little more: two bytes
// in one line of memory stand for a key and all others that fall on them.
type spent struct {
	locks [spentLocks]sync.Mutex
	lines [spentLines][64]uint8
}

const (
	spentLines, spentLocks = 1 << 16, 64 // 4 MiB
	allSpent               = 255
)

// add adds cost, if no more than most is spent of key with it, and returns what was before.
func (s *spent) add(key Key, cost, most int64) (before int64, ok bool) {
	line, i, j := s.place(key)
	lock := &s.locks[line%spentLocks]
	lock.Lock()
	defer lock.Unlock()
	a, b := &s.lines[line][i], &s.lines[line][j]
	before = int64(min(*a, *b))
	if before+cost > most {
		return before, false
	}
	*a, *b = uint8(min(int64(*a)+cost, allSpent)), uint8(min(int64(*b)+cost, allSpent))
	return before, true
}

// end has nothing more spent of key, and returns how much was.
func (s *spent) end(key Key) int64 {
	line, i, j := s.place(key)
	lock := &s.locks[line%spentLocks]
	lock.Lock()
	defer lock.Unlock()
	a, b := &s.lines[line][i], &s.lines[line][j]
	before := int64(min(*a, *b))
	*a, *b = allSpent, allSpent
	return before
}

// of returns how much was spent of key.
func (s *spent) of(key Key) int64 {
	line, i, j := s.place(key)
	lock := &s.locks[line%spentLocks]
	lock.Lock()
	defer lock.Unlock()
	return int64(min(s.lines[line][i], s.lines[line][j]))
}

// place returns where key's two bytes are.
func (s *spent) place(key Key) (line, i, j int) {
	line = (int(key.sum[8])<<8 | int(key.sum[9])) % spentLines
	i, j = int(key.sum[10]%64), int(key.sum[11]%63)
	if j >= i {
		j++
	}
	return line, i, j
}
