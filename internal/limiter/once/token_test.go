package once

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// fuzzKeyring returns the keys of a namespace whose secret is all of one byte.
func fuzzKeyring(t testing.TB, secret byte) *Keyring {
	t.Helper()
	k, err := newKeyring(bytes.Repeat([]byte{secret}, secretLen))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// FuzzTokens opens what was sealed, and nothing that was changed, cut short, sealed in
// another namespace or made for another use.
func FuzzTokens(f *testing.F) {
	f.Add("sms-send", uint64(1), uint64(2), int64(3), int64(1_700_000_000_000), []byte("id"), uint8(1), uint16(40))
	f.Add("", uint64(0), uint64(0), int64(0), int64(0), []byte{}, uint8(16), uint16(0))
	f.Add("a", ^uint64(0), ^uint64(0), int64(-1)<<63, int64(-1)<<63, bytes.Repeat([]byte{0xff}, 64), uint8(3), uint16(999))
	mine := fuzzKeyring(f, 1)
	f.Fuzz(func(t *testing.T, p string, space, sums uint64, cost, at int64, sum []byte, entries uint8, changed uint16) {
		want := &Token{Kind: Receipt, Ends: store.Instant(at)}
		for i := range 1 + int(entries)%policy.MaxDemands {
			e := Entry{Policy: p[:min(len(p), 63)], Space: space, Sums: sums}
			e.At, e.Epoch, e.Cost = store.Instant(at), store.Instant(at/2), cost
			var key [store.KeySize]byte
			copy(key[:], sum)
			e.Key = store.KeyFrom(key)
			e.ID = store.EventID{byte(i)}
			if i%2 == 1 {
				key = [store.KeySize]byte{}
				copy(key[1:], sum)
				e.Cell = store.KeyFrom(key)
			}
			want.Entries = append(want.Entries, e)
		}
		text := mine.Seal(want)
		if len(text) > maxTokenLen {
			t.Fatalf("a token of %d demands has %d bytes", len(want.Entries), len(text))
		}
		if got, err := mine.Open(text, Receipt); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("opened as %+v, %v, want %+v", got, err, want)
		}
		refuse(t, mine, text, Reserved, "for another use")
		refuse(t, fuzzKeyring(t, 2), text, Receipt, "in another namespace")
		refuse(t, mine, text[:int(changed)%len(text)], Receipt, "cut short")
		sealed, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		sealed[int(changed)%len(sealed)] ^= 1 << (changed >> 8 & 7)
		refuse(t, mine, base64.RawURLEncoding.EncodeToString(sealed), Receipt, "with one bit changed")
	})
}

func refuse(t *testing.T, k *Keyring, text string, kind Kind, how string) {
	t.Helper()
	if _, err := k.Open(text, kind); !errors.Is(err, ErrToken) {
		t.Fatalf("a token %s: %v", how, err)
	}
}

// TestNoTokens opens no text that nobody sealed, and nothing that names no units.
func TestNoTokens(t *testing.T) {
	mine := fuzzKeyring(t, 1)
	none := mine.Seal(&Token{Kind: Receipt})
	for _, text := range []string{"", "b3BhcXVl", "\r\n", "====", none, none + "\n", strings.Repeat("A", maxTokenLen+1)} {
		refuse(t, mine, text, Receipt, fmt.Sprintf("that is %q", text))
	}
}

// FuzzSealedTokens reads what a later version, or a version gone wrong, may have
// sealed: it is refused, or it says the same once it is sealed again.
func FuzzSealedTokens(f *testing.F) {
	mine := fuzzKeyring(f, 1)
	unseal := func(text string) []byte {
		sealed, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		b, err := mine.aead.Open(nil, nil, sealed, nil)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	one := Entry{Policy: "p", Space: 1, Sums: 2, Entry: count.Entry{ID: store.EventID{2}, At: 3, Cost: 4}}
	one.Key = store.KeyFrom([store.KeySize]byte{1})
	two := one
	two.Cell = store.KeyFrom([store.KeySize]byte{5})
	for _, t := range []*Token{
		{Kind: Receipt, Entries: []Entry{one}},
		{Kind: Receipt, Ends: 6, Entries: []Entry{one, two}},
	} {
		f.Add(unseal(mine.Seal(t)))
	}
	f.Add([]byte{tokenFormat, byte(Receipt), 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{tokenFormat + 1, byte(Receipt), 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		text := base64.RawURLEncoding.EncodeToString(mine.aead.Seal(nil, nil, b, nil))
		got, err := mine.Open(text, Receipt)
		if err != nil {
			return
		}
		if again, err := mine.Open(mine.Seal(got), Receipt); err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%x: opened as %+v, and sealed again as %+v, %v", b, got, again, err)
		}
	})
}
