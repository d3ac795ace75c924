package limiter

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// secrets seal what callers are given to bring back, and hash what they call their
// requests. They come from one secret of the namespace that the store keeps, so that
// any instance opens what another one sealed, whatever hash keys come and go.
type secrets struct {
	claims *claims
	loaded atomic.Pointer[keyring]
}

// keyring is what is derived from the namespace's secret.
type keyring struct {
	aead cipher.AEAD
	mac  []byte // for HMAC-SHA-256

	sealings sync.Pool // of *sealing
}

const secretLen = 32 // bytes: as many as AES-256 and HMAC-SHA-256 take

// known reports whether the keys are in memory: nothing has to be asked for them.
func (s *secrets) known() bool { return s.loaded.Load() != nil }

// keyring returns the namespace's keys; the first instance of all makes the secret.
func (s *secrets) keyring(ctx context.Context) (*keyring, error) {
	if k := s.loaded.Load(); k != nil {
		return k, nil
	}
	secret, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	k, err := newKeyring(secret)
	if err != nil {
		return nil, err
	}
	s.loaded.Store(k)
	return k, nil
}

// load reads the secret, or makes it if there is none: the same for all data centres,
// which takes most of all replicas once. A read in this one suffices to find it.
func (s *secrets) load(ctx context.Context) ([]byte, error) {
	key := s.claims.key(spaceSecret, []byte("tokens"))
	cell, err := s.claims.get(ctx, key, s.claims.opts.Serial.Quorum())
	if err != nil || len(cell.Value) > 0 {
		return cell.Value, err
	}
	made := make([]byte, secretLen)
	_, _ = rand.Read(made) // never fails: crypto/rand ends the process instead
	_, err = s.claims.swap(ctx, key, store.EventID{}, made, 0)
	if errors.Is(err, store.ErrConflict) { // another instance was first
		cell, err = s.claims.get(ctx, key, s.claims.serial)
		return cell.Value, err
	}
	return made, err
}

func newKeyring(secret []byte) (*keyring, error) {
	block, err := aes.NewCipher(derive(secret, "seal"))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &keyring{aead: aead, mac: derive(secret, "mac")}, nil
}

func derive(secret []byte, use string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(use))
	return mac.Sum(nil)
}

// sum returns the HMAC of parts, each preceded by its length.
func (k *keyring) sum(parts ...string) []byte {
	mac := hmac.New(sha256.New, k.mac)
	var b []byte
	for _, part := range parts {
		b = keys.AppendPart(b[:0], part)
		mac.Write(b)
	}
	return mac.Sum(nil)
}

// tokenKind tells apart what tokens are for.
type tokenKind byte

const (
	tokenReceipt     tokenKind = 'r'
	tokenReservation tokenKind = 'h'
)

// token is what a caller is given to bring back: which units were counted where. It
// says nothing to anyone who can't open it, and can't be made by anyone else.
type token struct {
	kind    tokenKind
	ends    store.Instant // of a reservation
	entries []tokenEntry
}

// tokenEntry is one demand's part of a token.
type tokenEntry struct {
	policy string
	space  uint64 // of the policy's keys then: it may count elsewhere now
	sums   uint64 // of its limits then: it may have others now
	key    store.Key
	cell   store.Key // of the target, if it has one
	count.Entry
}

var errToken = errors.New("not a token that this service made")

const (
	tokenFormat = 1
	// maxTokenLen is longer than any token: MaxDemands entries of the longest names.
	maxTokenLen = 4096
)

// sealing is memory to seal a token in: in plain, sealed and as text, one after the
// other. That of a call of one demand fits; append makes what does not.
type sealing [1 << 10]byte

// dash is what base64 for URLs writes as '-'.
const dash = 62

// seal returns t in a form that nobody else can read or make. It begins with no dash, which a
// command line would take for a flag.
func (k *keyring) seal(t *token) string {
	memory, ok := k.sealings.Get().(*sealing)
	if !ok {
		memory = new(sealing)
	}
	defer k.sealings.Put(memory)
	plain := t.append(memory[:0])
	sealed := k.aead.Seal(plain[len(plain):], nil, plain, nil)
	for sealed[0]>>2 == dash { // one of 64: the nonce, which it begins with, is random
		sealed = k.aead.Seal(plain[len(plain):], nil, plain, nil)
	}
	return string(base64.RawURLEncoding.AppendEncode(sealed[len(sealed):], sealed))
}

// append appends what t says to b.
func (t *token) append(b []byte) []byte {
	b = append(b, tokenFormat, byte(t.kind))
	b = binary.AppendVarint(b, int64(t.ends))
	b = binary.AppendUvarint(b, uint64(len(t.entries)))
	for i := range t.entries {
		e := &t.entries[i]
		b = keys.AppendPart(b, e.policy)
		b = binary.AppendUvarint(binary.AppendUvarint(b, e.space), e.sums)
		b = append(e.key.AppendTo(b), e.ID[:]...)
		b = append(b, boolByte(e.cell != store.Key{}))
		if e.cell != (store.Key{}) {
			b = e.cell.AppendTo(b)
		}
		for _, n := range []int64{int64(e.At), int64(e.Epoch), e.Cost} {
			b = binary.AppendVarint(b, n)
		}
	}
	return b
}

// open reads what seal returned, if it is of this kind.
func (k *keyring) open(text string, kind tokenKind) (*token, error) {
	if len(text) > maxTokenLen {
		return nil, errToken
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, errToken
	}
	b, err := k.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, errToken
	}
	r := reader{b: b}
	if r.byte() != tokenFormat || tokenKind(r.byte()) != kind {
		return nil, errToken
	}
	t := &token{kind: kind, ends: store.Instant(r.int())}
	for range r.len() {
		e := tokenEntry{policy: r.text(), space: r.uint(), sums: r.uint()}
		e.key = r.key()
		e.ID = r.id()
		if r.byte() == 1 {
			e.cell = r.key()
		}
		e.At, e.Epoch, e.Cost = store.Instant(r.int()), store.Instant(r.int()), r.int()
		t.entries = append(t.entries, e)
	}
	if r.bad || len(t.entries) == 0 {
		return nil, errToken
	}
	return t, nil
}

// tokenOf returns the token for what was counted for charges, without those that
// counted nothing.
func tokenOf(kind tokenKind, charges []charge) *token {
	return &token{kind: kind, entries: appendEntries(nil, charges)}
}

// appendEntries appends what was counted for charges, without those that counted nothing.
func appendEntries(entries []tokenEntry, charges []charge) []tokenEntry {
	for i := range charges {
		c := &charges[i]
		if c.decision.Recorded == count.RecordedYes && c.decision.Entry != (count.Entry{}) {
			entries = append(entries, c.entryOf(&c.decision.Entry))
		}
	}
	return entries
}

// entryOf returns what a token says of n, which was counted for t.
func (t *target) entryOf(n *count.Entry) tokenEntry {
	p := t.plan
	return tokenEntry{policy: p.Name, space: p.keys[0].ID(), sums: p.sums, key: t.key, cell: t.cell, Entry: *n}
}

// planFor returns the plan that counts where e was counted.
func (e *Engine) planFor(t *tokenEntry) (*plan, error) {
	p := e.plans.Load().of(t.policy)
	if p == nil {
		return nil, fmt.Errorf("%w: its policy is not in force", errToken)
	}
	for _, keys := range p.keys {
		if keys.ID() == t.space {
			return p.at(t.key), nil
		}
	}
	return nil, fmt.Errorf("%w: its policy has begun to count anew", errToken)
}
