package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// FuzzHashKeys reads key files: what it takes is long enough, has ids of its own, and is
// read back the same; a mistake tells nothing of a key.
func FuzzHashKeys(f *testing.F) {
	for _, seed := range []string{
		"2026-01:MDEyMzQ1Njc4OWFiY2RlZg==\n", "a: 000102030405060708090a0b0c0d0e0f\r\n# b\n\nb:000102030405060708090A0B0C0D0E0F",
		"no colon", "a:short", "a:!!!!", ":x", "\xff:\xff", "a:MDEyMzQ1Njc4OWFiY2RlZg\na:MDEyMzQ1Njc4OWFiY2RlZg",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseHashKeys(data)
		if err != nil {
			for line := range strings.Lines(string(data)) {
				_, secret, _ := strings.Cut(line, ":")
				if secret = strings.TrimSpace(secret); len(secret) >= limiter.MinSecretLen && strings.Contains(err.Error(), secret) {
					t.Fatalf("%q: %v", data, err)
				}
			}
			return
		}
		var again bytes.Buffer
		for _, k := range keys {
			again.WriteString(k.ID + ":" + hex.EncodeToString(k.Secret) + "\n")
		}
		same, err := parseHashKeys(again.Bytes())
		if err != nil || len(keys) > maxHashKeys || !slices.EqualFunc(same, keys, func(a, b limiter.HashKey) bool {
			return a.ID == b.ID && bytes.Equal(a.Secret, b.Secret) && len(a.Secret) >= limiter.MinSecretLen
		}) {
			t.Fatalf("%q was read as %d keys, and these as %d: %v", data, len(keys), len(same), err)
		}
	})
}

// FuzzHosts reads back the list of hosts that it took.
func FuzzHosts(f *testing.F) {
	for _, seed := range []string{"", "a", " a , b:9042", "a,,b", "[::1]:9042", "a@b", "a/b", ",", "a\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var list, again hostList
		if list.Set(text) != nil {
			return
		}
		if err := again.Set(list.String()); err != nil || !slices.Equal(list.hosts, again.hosts) || len(list.hosts) == 0 {
			t.Fatalf("%q: %q, and then %q, %v", text, list.hosts, again.hosts, err)
		}
	})
}

// FuzzValues parses values of flags: one that is taken prints as a text that is taken.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{
		"127.0.0.1:0", ":8080", "host:http", "1ms", "1m0.5s", "http://a/b", "https://u:p@a", "a:80", "//a", "debug+1", "7",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := between(0, maxClockTolerance)(text); err == nil {
			if same, err := between(0, maxClockTolerance)(d.String()); err != nil || same != d {
				t.Fatalf("%q: %v, and then %v, %v", text, d, same, err)
			}
		}
		if a, err := address(text); err == nil && a != text {
			t.Fatalf("%q: %q", text, a)
		}
		if u, err := serverURL(text); err == nil && (u.Hostname() == "" || u.User != nil || u.RawQuery != "") {
			t.Fatalf("%q: %v", text, u)
		}
		if n, err := atLeastOne(text); err == nil && n < 1 {
			t.Fatalf("%q: %d", text, n)
		}
	})
}

// FuzzAnswers reads what any server may answer: nothing that is printed of it steers a
// terminal, and no more than is bounded.
func FuzzAnswers(f *testing.F) {
	const allowed = `{"allowed":true,"policy":"p","limit":1,"limits":[{"name":"n","allowed":true,"limit":1,"retry_after_ms":0}]}`
	f.Add(http.StatusOK, mediaJSON, "id", "", []byte(allowed))
	f.Add(http.StatusTooManyRequests, mediaProblem, "", "", []byte(strings.ReplaceAll(allowed, "true", "false")))
	f.Add(http.StatusOK, mediaJSON, "", "",
		[]byte(`{"allowed":true,"policy":"\u001b[31m","limits":[{}],"receipt":"\u202e","would_allow":false}`))
	f.Add(http.StatusServiceUnavailable, mediaProblem, "\x1b", "", []byte(`{"detail":"\u0007","field":"a\nb","recorded":"unknown"}`))
	f.Add(http.StatusFound, "text/\x1bhtml", "", "http://\u009b31m/", []byte("<html>"))
	server, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, mediaType, requestID, location string, body []byte) {
		a := &answer{server: server, status: status, mediaType: mediaType, requestID: requestID, body: body}
		a.location, _ = url.Parse(location)
		if d := a.decision(); d != nil {
			var table, document bytes.Buffer
			if err := printDecision(&table, outputTable, verbTake, d); err != nil {
				t.Fatal(err)
			}
			if err := printDecision(&document, outputJSON, verbTake, d); err != nil {
				t.Fatal(err)
			}
			checkPrintable(t, table.String())
			return
		}
		if p := a.problem(); p != nil && status == http.StatusNotFound && p.Field == "policy" {
			return // it would ask for the policies
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		checkPrintable(t, new(client).refused(ctx, &question{verb: verbTake}, a).Error())
	})
}

func checkPrintable(t *testing.T, text string) {
	t.Helper()
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Fatalf("%q steers a terminal", text)
	}
}

// FuzzInput reads the one line that standard input has.
func FuzzInput(f *testing.F) {
	for _, seed := range []string{"+4915112345678\n", "a\r\n", "a\nb\n", "", "\n", "\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		line, err := lineIn(text, "identifier")
		if err != nil {
			if len(text) > 20 && strings.Contains(err.Error(), string(text)) {
				t.Fatalf("the error tells what was given: %v", err)
			}
			return
		}
		if same, err := lineIn([]byte(line), "identifier"); err != nil || same != line || len(line) == 0 || len(line) > maxInputBytes {
			t.Fatalf("%q: %q, and then %q, %v", text, line, same, err)
		}
	})
}
