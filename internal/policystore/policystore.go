// Package policystore keeps versions of the policies in the store that instances share, and brings each new
// version into force on every instance.
//
// It knows neither how policies are counted nor which callers may change them.
package policystore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"
)

// Store keeps versions of the policies. Their numbers begin with 1 and only grow.
type Store interface {
	// Latest returns the number of the latest version, 0 if there is none. It is called several times a second.
	Latest(ctx context.Context) (int64, error)
	// History returns the versions that are kept, the latest first.
	History(ctx context.Context) ([]Version, error)
	// Read returns a version. The error wraps ErrNoVersion if it is not kept.
	Read(ctx context.Context, number int64) (Set, error)
	// Put keeps set as the latest version if that is still have, and forgets versions beyond Kept. An error that
	// wraps ErrConflict means that set is not kept. After any other error, set may be kept, now or later.
	Put(ctx context.Context, have int64, set *Set) error
}

// Kept is the number of versions that are kept. Those of the longest file take 100 MiB.
const Kept = 100

// Version describes a version, without its text.
type Version struct {
	Number   int64     `json:"number"`
	Digest   string    `json:"digest"` // of the text: SHA-256, in hex
	At       time.Time `json:"at"`     // when it was made
	By       string    `json:"by"`     // who made it
	Policies int       `json:"policies"`
}

// Set is a version with its text, which is that of a file of policies.
type Set struct {
	Version
	Text []byte
}

// DigestOf returns the digest of a text.
func DigestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Errors of a Store.
var (
	// ErrConflict means that the latest version is another one than expected.
	ErrConflict = errors.New("another version of the policies is the latest")
	// ErrNoVersion means that a version is not kept.
	ErrNoVersion = errors.New("this version of the policies is not kept")
	// ErrUnreadable means that the store's answer can't be read, now or later.
	ErrUnreadable = errors.New("the policies in the store can't be read")
)

// Memory is a Store in the memory of this process. The zero value has no version.
type Memory struct {
	mu   sync.Mutex
	sets []Set // the latest first
}

var _ Store = (*Memory)(nil)

// Latest returns the number of the latest version.
func (m *Memory) Latest(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest(), nil
}

func (m *Memory) latest() int64 {
	if len(m.sets) == 0 {
		return 0
	}
	return m.sets[0].Number
}

// History returns the versions.
func (m *Memory) History(context.Context) (all []Version, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.sets {
		all = append(all, m.sets[i].Version)
	}
	return all, nil
}

// Read returns a version.
func (m *Memory) Read(_ context.Context, number int64) (Set, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.IndexFunc(m.sets, func(s Set) bool { return s.Number == number })
	if at < 0 {
		return Set{}, ErrNoVersion
	}
	return m.sets[at], nil
}

// Put keeps a version.
func (m *Memory) Put(_ context.Context, have int64, set *Set) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.latest() != have {
		return ErrConflict
	}
	m.sets = slices.Insert(m.sets, 0, *set)
	m.sets = m.sets[:min(len(m.sets), Kept)]
	return nil
}
