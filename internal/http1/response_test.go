package http1_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestHeadOfAnAnswer holds that a head has its lines in order, and the date of the second in which it was sent.
func TestHeadOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFront(t, fast, func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			for _, name := range []string{"C", "A", "D", "B", "Content-Type"} {
				h.Set(name, strings.ToLower(name))
			}
			h.Set("Date", "yesterday")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusAccepted)
			h.Set("Late", "late")
			_, _ = io.WriteString(w, "body")
		}).dial()
		for _, date := range []string{"Sat, 01 Jan 2000 00:00:00 GMT", "Sat, 01 Jan 2000 00:01:00 GMT"} {
			c.say(post(""))
			want := "HTTP/1.1 202 Accepted\r\nA: a\r\nB: b\r\nC: c\r\nContent-Type: content-type\r\nD: d\r\n" +
				"Content-Length: 4\r\nDate: " + date + "\r\n\r\nbody"
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c.from, got); err != nil || string(got) != want {
				t.Errorf("%q, want %q", got, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestParts holds that the parts of an answer are sent when they are flushed.
func TestParts(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		c := newFront(t, by, func(w http.ResponseWriter, _ *http.Request) {
			for _, part := range []string{"one", "two"} {
				_, _ = io.WriteString(w, part)
				w.(http.Flusher).Flush()
				time.Sleep(time.Minute)
			}
			_, _ = io.WriteString(w, "three")
		}).dial()
		for range 2 {
			start := time.Now()
			c.say(post(""))
			res, err := http.ReadResponse(c.from, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{"one", "two", "three"} {
				got := make([]byte, len(want))
				if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want || time.Since(start) != time.Duration(i)*time.Minute {
					t.Errorf("%q after %v: %v, want %q", got, time.Since(start), err, want)
				}
			}
			if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
				t.Errorf("%q, %v after the last part", rest, err)
			}
		}
	})
}

// TestPartsForAClientThatIsGone holds that a later Write returns an error, and keeps nothing.
func TestPartsForAClientThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, wrote := make(chan struct{}), make(chan error, 1)
		c := newFront(t, fast, func(w http.ResponseWriter, _ *http.Request) {
			<-goOn
			_, _ = io.WriteString(w, "one")
			w.(http.Flusher).Flush()
			_, err := io.WriteString(w, "two")
			wrote <- err
		}).dial()
		c.say(post(""))
		_ = c.Close()
		close(goOn)
		if err := <-wrote; err == nil {
			t.Error("what was written to nobody is not an error")
		}
	})
}

// TestUnreadBody holds that a body longer than maxDiscarded ends the connection, but leaves a client that still sends the
// time to read its answer.
func TestUnreadBody(t *testing.T) {
	for length, last := range map[int]bool{200_000: false, 400_000: true} {
		synctest.Test(t, func(t *testing.T) {
			c := newFront(t, fast, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "no") }).dial()
			go c.say(post(strings.Repeat("x", length)))
			if res, body := c.hear(); res.Close != last || body != "no" {
				t.Errorf("%d bytes: %q, close: %v", length, body, res.Close)
			}
			if last {
				c.wantEnd()
			}
		})
	}
}
