package main

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// needles are texts that must not be found anywhere, by their length in bytes.
type needles map[int]map[string]bool

// add adds secret as it is, in hex, and in base64.
func (n needles) add(secret string) {
	inHex := hex.EncodeToString([]byte(secret))
	for _, text := range append(base64Cores(secret), secret, inHex, strings.ToUpper(inHex)) {
		if n[len(text)] == nil {
			n[len(text)] = make(map[string]bool)
		}
		n[len(text)][text] = true
	}
}

// addPhone adds a phone number in all spellings, with and without the plus. "00" and the
// country is found without the plus.
func (n needles) addPhone(phone Phone, typed string) {
	for _, text := range []string{string(phone), typed} {
		n.add(text)
		n.add(strings.TrimPrefix(text, "+"))
	}
}

// base64Cores returns the parts that are in every base64 encoding of a text with secret, in
// the standard alphabet and in that for URLs, wherever secret begins in the text: the
// letters that depend only on secret's bytes. Secrets that differ only in the last byte
// may have the same.
func base64Cores(secret string) (cores []string) {
	const bits, letterBits, alignments = 8, 6, 3
	for before := range alignments {
		text := append(make([]byte, before), secret...)
		first := (before*bits + letterBits - 1) / letterBits
		last := len(text) * bits / letterBits
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			cores = append(cores, encoding.EncodeToString(text)[first:last])
		}
	}
	return cores
}

// in returns the first needle in hay.
func (n needles) in(hay string) (needle string, found bool) {
	for length, texts := range n {
		for i := 0; i+length <= len(hay); i++ {
			if texts[hay[i:i+length]] {
				return hay[i : i+length], true
			}
		}
	}
	return "", false
}

// disguises returns texts that contain secret in one of the forms that a search has
// to recognize.
func disguises(secret string) (texts []string) {
	inHex := hex.EncodeToString([]byte("id=" + secret))
	texts = append(texts, secret, `{"id":"`+secret+`"}`, inHex, strings.ToUpper(inHex))
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		for _, before := range []string{"", "\xff", "\xff\xff", "id=", "key="} {
			for _, after := range []string{"", "\xff", "\xff\xff"} {
				texts = append(texts, encoding.EncodeToString([]byte(before+secret+after)))
			}
		}
	}
	return texts
}

func TestNeedlesAreFoundInEveryDisguise(t *testing.T) {
	const phone = Phone("+447700900123")
	n := make(needles)
	n.addPhone(phone, "+44-7700-900-123")
	n.add("a~secret\xff\xfe\xfd\xfc?>") // has letters in which the two alphabets of base64 differ
	for _, secret := range []string{"+447700900123", "447700900123", "00447700900123", "44-7700-900-123", "a~secret\xff\xfe\xfd\xfc?>"} {
		for _, text := range disguises(secret) {
			if _, found := n.in("before " + text + " after"); !found {
				t.Errorf("%q is not found in %q", secret, text)
			}
		}
	}
	for _, text := range append(disguises("+447700901123"), "", "+", "44") {
		if needle, found := n.in(text); found {
			t.Errorf("%q is found in %q", needle, text)
		}
	}
}

func TestCoresAreLong(t *testing.T) {
	shortest := slices.MinFunc(base64Cores("447700900123"), func(a, b string) int { return len(a) - len(b) })
	if len(shortest) < 14 {
		t.Errorf("%q would be found by chance", shortest)
	}
}
