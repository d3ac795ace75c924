package events_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/events"
)

// watched is a watcher whose events arrive at once, in a synctest bubble.
type watched struct {
	*events.Watcher
	receiver *receiver
	tallies  map[string]events.Tally
	read     int
}

// watch calls play with a watcher of policies that deny half of their calls.
func watch(t *testing.T, play func(w *watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t)
		s, _ := newSender(t, events.Options{URL: "http://receiver", Through: r})
		stop := run(t, s)
		play(&watched{Watcher: events.NewWatcher(s, 0.5), receiver: r, tallies: map[string]events.Tally{}})
		stop()
	})
}

// count counts further calls of a policy.
func (w *watched) count(policy string, calls, denied, degraded int64) {
	t := w.tallies[policy]
	w.tallies[policy] = events.Tally{Calls: t.Calls + calls, Denied: t.Denied + denied, Degraded: t.Degraded + degraded}
}

// looks lets time pass, and returns the events sent meanwhile.
func (w *watched) looks(passes time.Duration) (told []string) {
	for range passes / (5 * time.Second) {
		time.Sleep(5 * time.Second)
		w.Look(w.tallies)
	}
	synctest.Wait()
	w.receiver.mu.Lock()
	defer w.receiver.mu.Unlock()
	for _, e := range w.receiver.taken[w.read:] {
		var data map[string]any
		_ = json.Unmarshal(e.Data, &data)
		delete(data, "since")
		text, _ := json.Marshal(data)
		told = append(told, strings.TrimPrefix(e.Type, "ratelimitd.")+" "+string(text))
	}
	w.read = len(w.receiver.taken)
	return told
}

// want lets time pass, and compares the events sent meanwhile.
func (w *watched) want(passes time.Duration, told ...string) {
	w.receiver.t.Helper()
	if got := w.looks(passes); !slices.Equal(got, told) {
		w.receiver.t.Errorf("told\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(told, "\n\t"))
	}
}

// TestDenialsBeginAndEnd holds that there is one event when half of a policy's calls within a minute are denied, and one when
// that has ended, although the share goes up and down around the half.
func TestDenialsBeginAndEnd(t *testing.T) {
	watch(t, func(w *watched) {
		w.count("login", 19, 19, 0)
		w.count("api", 100, 49, 0)
		w.want(5 * time.Second) // too few calls, and too few denials
		w.count("login", 1, 0, 0)
		w.want(5*time.Second, `denials.began {"calls":20,"denied":19,"percent":50,"policy":"login"}`)
		w.count("login", 22, 0, 0)
		w.want(5 * time.Second) // 45 %
		w.count("login", 0, 8, 0)
		w.want(5 * time.Second) // 64 %
		w.count("login", 28, 0, 0)
		w.want(5*time.Second, `denials.ended {"calls":70,"denied":27,"percent":50,"policy":"login"}`)
		w.want(2 * time.Minute)
		w.count("login", 30, 15, 0)
		w.want(5*time.Second, `denials.began {"calls":30,"denied":15,"percent":50,"policy":"login"}`)
		w.want(50 * time.Second)
		w.want(time.Minute, `denials.ended {"calls":0,"denied":0,"percent":50,"policy":"login"}`)
	})
}

// TestDenialsOfAPolicyThatIsGoneEnd holds that denials end with their policy, and that one of the same name begins anew.
func TestDenialsOfAPolicyThatIsGoneEnd(t *testing.T) {
	watch(t, func(w *watched) {
		w.count("login", 20, 20, 0)
		w.want(5*time.Second, `denials.began {"calls":20,"denied":20,"percent":50,"policy":"login"}`)
		delete(w.tallies, "login")
		w.want(5*time.Second, `denials.ended {"calls":20,"denied":20,"percent":50,"policy":"login"}`)
		w.count("login", 19, 19, 0)
		w.want(5 * time.Second)
	})
}

// TestCountersThatBeginAnew holds that no call counts twice if counters start at 0 again.
func TestCountersThatBeginAnew(t *testing.T) {
	watch(t, func(w *watched) {
		w.count("login", 1000, 0, 0)
		w.want(2 * time.Minute)
		w.tallies["login"] = events.Tally{Calls: 20, Denied: 20}
		w.want(5*time.Second, `denials.began {"calls":20,"denied":20,"percent":50,"policy":"login"}`)
	})
}

// TestDegradedDecisionsBeginAndEnd holds that there is one event at the first decision by on_store_error, and one with all of
// them after a minute without.
func TestDegradedDecisionsBeginAndEnd(t *testing.T) {
	watch(t, func(w *watched) {
		w.want(5 * time.Second)
		w.count("login", 0, 0, 2)
		w.want(5*time.Second, `degraded.began {"policies":{"login":2}}`)
		w.count("login", 0, 0, 3)
		w.count("api", 5, 0, 1)
		w.want(55 * time.Second)
		w.count("api", 5, 0, 1)
		w.want(time.Minute)
		w.want(5*time.Second, `degraded.ended {"policies":{"api":2,"login":5}}`)
		w.want(time.Hour)
	})
}

// TestConversionsBeginAndEnd holds that there is one event for each key that a conversion limit denies, and one after five
// minutes without a denial.
func TestConversionsBeginAndEnd(t *testing.T) {
	watch(t, func(w *watched) {
		w.Denied(events.Conversion{Policy: "otp-country", Limit: "unconfirmed", Key: "0123456789abcdef", Country: "DE"})
		w.Denied(events.Conversion{Policy: "otp-country", Limit: "unconfirmed", Key: "0123456789abcdef", Country: "DE"})
		w.want(time.Minute, `conversion.began {"country":"DE","key":"0123456789abcdef","limit":"unconfirmed","policy":"otp-country"}`)
		w.Denied(events.Conversion{Policy: "otp-range", Limit: "unconfirmed", Key: "fedcba9876543210"})
		w.Denied(events.Conversion{Policy: "otp-country", Limit: "unconfirmed", Key: "0123456789abcdef", Country: "DE"})
		w.want(5*time.Minute-5*time.Second,
			`conversion.began {"key":"fedcba9876543210","limit":"unconfirmed","policy":"otp-range"}`)
		w.want(5*time.Second,
			`conversion.ended {"country":"DE","denied":3,"key":"0123456789abcdef","limit":"unconfirmed","policy":"otp-country"}`,
			`conversion.ended {"denied":1,"key":"fedcba9876543210","limit":"unconfirmed","policy":"otp-range"}`)
		w.want(time.Hour)
	})
}

// TestDeniedKeysAreBounded holds that events about keys beyond maxDenied are lost.
func TestDeniedKeysAreBounded(t *testing.T) {
	s, counted := newSender(t, events.Options{URL: "http://receiver"})
	w := events.NewWatcher(s, 1)
	for i := range 5000 {
		w.Denied(events.Conversion{Policy: "p", Limit: "l", Key: fmt.Sprint(i)})
	}
	if lost := counted.count(events.Lost); lost != 5000-1000 { // more wait than may, also of those below maxDenied
		t.Errorf("%d are lost", lost)
	}
}
