package once

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
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Secrets has the keys that seal tokens and hash idempotency keys. They derive from one secret of the namespace, which is
// in the store. So every instance can open the tokens of others, whatever the hash key.
type Secrets struct {
	Claims *Claims
	loaded atomic.Pointer[Keyring]
}

// Keyring is the keys derived from the namespace's secret.
type Keyring struct {
	aead cipher.AEAD
	mac  []byte // for HMAC-SHA-256

	sealings sync.Pool // of *sealing
}

const secretLen = 32 // bytes, as AES-256 and HMAC-SHA-256 use

// Known reports whether the keys are in memory. Otherwise Keyring reads the store.
func (s *Secrets) Known() bool { return s.loaded.Load() != nil }

// Keyring returns the namespace's keys. The first instance that needs them makes the secret.
func (s *Secrets) Keyring(ctx context.Context) (*Keyring, error) {
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

// load reads the secret, or makes it if there is none. All data centres have the same one, so its first write needs a
// majority of all replicas. Later, a read within this data centre finds it.
func (s *Secrets) load(ctx context.Context) ([]byte, error) {
	key := s.Claims.Key(spaceSecret, []byte("tokens"))
	cell, err := s.Claims.Get(ctx, key, s.Claims.opts.Serial.Quorum())
	if err != nil || len(cell.Value) > 0 {
		return cell.Value, err
	}
	made := make([]byte, secretLen)
	_, _ = rand.Read(made)                           // never fails: crypto/rand ends the process instead
	cell, _, err = s.Claims.first(ctx, key, made, 0) // another instance may have been first
	return cell.Value, err
}

func newKeyring(secret []byte) (*Keyring, error) {
	block, err := aes.NewCipher(derive(secret, "seal"))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Keyring{aead: aead, mac: derive(secret, "mac")}, nil
}

func derive(secret []byte, use string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(use))
	return mac.Sum(nil)
}

// Sum returns the HMAC of parts, each preceded by its length.
func (k *Keyring) Sum(parts ...string) []byte {
	mac := hmac.New(sha256.New, k.mac)
	var b []byte
	for _, part := range parts {
		b = keys.AppendPart(b[:0], part)
		mac.Write(b)
	}
	return mac.Sum(nil)
}

// Kind is the kind of a token.
type Kind byte

// The kinds.
const (
	Receipt  Kind = 'r'
	Denied   Kind = 'd' // a receipt of a denied attempt that counts, which can be refunded
	Reserved Kind = 'h'
)

// Token is a receipt or a reservation, which a caller gets and later returns: it has the counted units and their keys. When
// it is sealed, only this service can read or make it.
type Token struct {
	Kind    Kind
	Ends    store.Instant // of a reservation
	Entries []Entry
	Marks   []Mark // parts of identifiers that a confirmation makes known
}

// Mark is a part of an identifier that a confirmation makes known.
type Mark struct {
	Policy string
	Space  uint64 // of the policy's keys at that time
	Key    store.Key
}

// MarksOf returns the marks of charges.
func MarksOf(charges []demand.Charge) (all []Mark) {
	for i := range charges {
		for _, m := range charges[i].Marks {
			all = append(all, Mark{Policy: m.Plan.Name, Space: m.Plan.Keys[0].ID(), Key: m.Key})
		}
	}
	return all
}

// Entry is one demand's part of a token.
type Entry struct {
	Policy string
	Space  uint64 // of the policy's keys at that time; they may differ now
	Sums   uint64 // of its limits at that time; they may differ now
	Key    store.Key
	Cell   store.Key // of the target, if it has one
	count.Entry

	Concurrent bool // its limit is concurrent, so it counts until it is released; not part of sealed tokens
}

// ErrToken means that this service did not make a token.
var ErrToken = errors.New("not a token that this service made")

const (
	tokenFormat = 1
	// maxTokenLen is longer than any token: policy.MaxDemands entries of the longest names.
	maxTokenLen = 4096
)

// sealing is memory for sealing a token: for its plain, sealed and text forms, one after the other. It has room for a token
// of one demand; append allocates memory for larger ones.
type sealing [1 << 10]byte

// dash is the value of 6 bits that base64 for URLs encodes as '-'.
const dash = 62

// Seal returns t in a form that only this service can read or make. It never begins with a dash, which a command line
// would take for a flag.
func (k *Keyring) Seal(t *Token) string {
	memory, ok := k.sealings.Get().(*sealing)
	if !ok {
		memory = new(sealing)
	}
	defer k.sealings.Put(memory)
	plain := t.append(memory[:0])
	sealed := k.aead.Seal(plain[len(plain):], nil, plain, nil)
	for sealed[0]>>2 == dash { // one of 64, as the text begins with a random nonce
		sealed = k.aead.Seal(plain[len(plain):], nil, plain, nil)
	}
	return string(base64.RawURLEncoding.AppendEncode(sealed[len(sealed):], sealed))
}

// append appends t's plain form to b.
func (t *Token) append(b []byte) []byte {
	b = append(b, tokenFormat, byte(t.Kind))
	b = binary.AppendVarint(b, int64(t.Ends))
	b = binary.AppendUvarint(b, uint64(len(t.Entries)))
	for i := range t.Entries {
		e := &t.Entries[i]
		b = keys.AppendPart(b, e.Policy)
		b = binary.AppendUvarint(binary.AppendUvarint(b, e.Space), e.Sums)
		b = append(e.Key.AppendTo(b), e.ID[:]...)
		b = append(b, cas.BoolByte(e.Cell != store.Key{}))
		if e.Cell != (store.Key{}) {
			b = e.Cell.AppendTo(b)
		}
		for _, n := range []int64{int64(e.At), int64(e.Epoch), e.Cost} {
			b = binary.AppendVarint(b, n)
		}
	}
	if len(t.Marks) == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(t.Marks))) // versions without marks read no further
	for _, m := range t.Marks {
		b = m.Key.AppendTo(binary.AppendUvarint(keys.AppendPart(b, m.Policy), m.Space))
	}
	return b
}

// Open returns the token from which Seal made text. It returns ErrToken if there is none of these kinds.
func (k *Keyring) Open(text string, kinds ...Kind) (*Token, error) {
	if len(text) > maxTokenLen {
		return nil, ErrToken
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, ErrToken
	}
	b, err := k.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, ErrToken
	}
	r := store.Reader{B: b}
	format, kind := r.Byte(), Kind(r.Byte())
	if format != tokenFormat || !slices.Contains(kinds, kind) {
		return nil, ErrToken
	}
	t := &Token{Kind: kind, Ends: store.Instant(r.Int())}
	for range r.Len() {
		e := Entry{Policy: string(r.Text()), Space: r.Uint(), Sums: r.Uint()}
		e.Key = r.Key()
		e.ID = r.ID()
		if r.Byte() == 1 {
			e.Cell = r.Key()
		}
		e.At, e.Epoch, e.Cost = store.Instant(r.Int()), store.Instant(r.Int()), r.Int()
		t.Entries = append(t.Entries, e)
	}
	if !r.Bad && len(r.B) > 0 {
		for range r.Len() {
			t.Marks = append(t.Marks, Mark{Policy: string(r.Text()), Space: r.Uint(), Key: r.Key()})
		}
	}
	if r.Bad || len(t.Entries) == 0 {
		return nil, ErrToken
	}
	return t, nil
}

// Releases reports whether t has entries under concurrent limits.
func (t *Token) Releases() bool {
	return slices.ContainsFunc(t.Entries, func(e Entry) bool { return e.Concurrent })
}

// Part returns t with only the entries whose limits are concurrent, or with only the others.
func (t *Token) Part(concurrent bool) *Token {
	part := &Token{Kind: t.Kind, Ends: t.Ends}
	for _, e := range t.Entries {
		if e.Concurrent == concurrent {
			part.Entries = append(part.Entries, e)
		}
	}
	if !concurrent {
		part.Marks = slices.Clone(t.Marks) // part must not retain memory of t, so that t's entries can be on the stack
	}
	return part
}

// TokenOf returns the token for the units counted for charges. It leaves out charges that counted nothing.
func TokenOf(kind Kind, charges []demand.Charge) *Token {
	return &Token{Kind: kind, Entries: AppendEntries(nil, charges), Marks: MarksOf(charges)}
}

// AppendEntries appends the entries of the units counted for charges. It leaves out charges that counted nothing.
func AppendEntries(entries []Entry, charges []demand.Charge) []Entry {
	for i := range charges {
		c := &charges[i]
		if c.Decision.Recorded == count.RecordedYes && c.Decision.Entry != (count.Entry{}) {
			entries = append(entries, EntryOf(&c.Target, &c.Decision.Entry))
		}
	}
	return entries
}

// EntryOf returns a token's entry for n, which was counted for t.
func EntryOf(t *demand.Target, n *count.Entry) Entry {
	p := t.Plan
	return Entry{Policy: p.Name, Space: p.Keys[0].ID(), Sums: p.Sums, Key: t.Key, Entry: *n, Concurrent: p.Releases}
}
