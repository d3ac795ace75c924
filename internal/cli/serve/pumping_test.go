package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// These are what sms-pumping.yaml says, and how it is asked here.
const (
	pumpingFile     = "../../../examples/sms-signup/sms-pumping.yaml"
	pumpingBound    = 15 + 2 // of a country: codes that nobody entered, and new callers at a time beyond that
	pumpingPercent  = 72     // of codes that have to be entered
	pumpingDenied   = 6      // denials in a row, by which a country has got its codes
	pumpingPause    = 150 * time.Millisecond
	pumpingTimeout  = 2 * time.Second                         // --store-timeout
	pumpingUnsynced = 250*time.Millisecond + 2*pumpingTimeout // for so long an owner admits without having written
	pumpingKnown    = 3
	pumpingNetworks = 24
)

// pumpedPrefixes are how mobile numbers of countries begin, and how many digits follow.
var pumpedPrefixes = map[string]struct {
	begins string
	digits int
}{"DE": {"+49151", 8}, "AT": {"+43664", 7}, "CH": {"+4179", 7}, "LV": {"+3712", 7}}

// pumping has callers that ask for codes, and the codes that they got. It is safe for concurrent use.
type pumping struct {
	instances atomic.Pointer[[]*process]
	callers   atomic.Int64 // so many devices and networks were made up

	networks [pumpingNetworks]int // codes of each that is asked for alone, one after the other

	mu        sync.Mutex
	sent      map[string][]time.Time // codes, by country, when the caller was told
	unknown   map[string]int         // calls of which nobody told what became of them
	confirmed map[string]int         // codes that were entered, or perhaps
}

// ask asks one of the instances for a code to a number of country, and returns the receipt. An empty device is a new one.
func (x *pumping) ask(ctx context.Context, country, device string) (receipt string, status int) {
	n := x.callers.Add(1)
	if device == "" {
		device = fmt.Sprint("device-", n)
	}
	begins := pumpedPrefixes[country]
	phone := fmt.Sprintf("%s%0*d", begins.begins, begins.digits, rand.IntN(pow10(begins.digits)))
	body := fmt.Sprintf(`{"demands": [{"policy": "sms-phone", "identifier": %q}, {"policy": "sms-device", "identifier": %q},
		{"policy": "sms-address", "identifier": "45.%d.%d.7"}, {"policy": "sms-money", "identifier": "all", "cost": 75}]}`,
		phone, device, n/250, n%250)
	var answer struct{ Receipt, Recorded string }
	status = x.post(ctx, "take", body, &answer)
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case status == http.StatusOK:
		x.sent[country] = append(x.sent[country], time.Now())
	case status == 0 || answer.Recorded == "unknown":
		x.unknown[country]++
	}
	return answer.Receipt, status
}

func pow10(digits int) (n int) {
	for n = 1; digits > 0; digits-- {
		n *= 10
	}
	return n
}

// confirm says that the code of receipt, to a number of country, was entered.
func (x *pumping) confirm(ctx context.Context, country, receipt string) (status int) {
	x.mu.Lock()
	x.confirmed[country]++
	x.mu.Unlock()
	return x.post(ctx, "confirm", fmt.Sprintf(`{"receipt": %q}`, receipt), new(struct{}))
}

// post asks one of the instances. A status of 0: there was no answer.
func (x *pumping) post(ctx context.Context, path, body string, answer any) (status int) {
	all := *x.instances.Load()
	p := all[rand.IntN(len(all))]
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if json.NewDecoder(resp.Body).Decode(answer) != nil {
		return 0
	}
	return resp.StatusCode
}

// attack asks for codes in all of countries at once, and enters none, until each is denied again and again.
func (x *pumping) attack(ctx context.Context, t *testing.T, countries ...string) {
	t.Helper()
	var all sync.WaitGroup
	for _, country := range countries {
		all.Go(func() {
			denied := 0
			for late := time.Now().Add(2 * clitest.Patience); denied < pumpingDenied && time.Now().Before(late); {
				switch _, status := x.ask(ctx, country, ""); status {
				case http.StatusTooManyRequests:
					denied++
				case http.StatusOK:
					denied = 0
				}
			}
			if denied < pumpingDenied {
				t.Errorf("%s is not denied", country)
			}
		})
	}
	all.Wait()
}

// askNetworks asks for codes from each of pumpingNetworks networks, under their bound alone, until it is denied, and
// notes them.
func (x *pumping) askNetworks(ctx context.Context, t *testing.T) {
	t.Helper()
	for i := range pumpingNetworks {
		body := fmt.Sprintf(`{"policy": "sms-network-unconfirmed", "identifier": "198.18.%d.0"}`, i)
		status := 0
		for late := time.Now().Add(2 * clitest.Patience); status != http.StatusTooManyRequests; {
			if status = x.post(ctx, "take", body, new(struct{})); status == http.StatusOK {
				x.networks[i]++
			}
			if time.Now().After(late) {
				t.Fatal("a network is not denied")
			}
		}
	}
}

// hold holds that a country got as many codes as the file's bounds allow, and so many more.
func (x *pumping) hold(t *testing.T, country string, more int) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	sent, allowed := len(x.sent[country]), pumpingBound+x.confirmed[country]*100/pumpingPercent+more
	t.Logf("%s: %d codes, %d unknown, %d entered; %d allowed", country, sent, x.unknown[country], x.confirmed[country], allowed)
	if sent > allowed {
		t.Errorf("%s got %d codes, of which %d can have been entered, want %d at most", country, sent, x.confirmed[country], allowed)
	}
}

// sentFrom returns how many codes of country were answered from an instant on.
func (x *pumping) sentFrom(country string, from time.Time) (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, at := range x.sent[country] {
		if !at.Before(from) {
			n++
		}
	}
	return n
}

// awaitWritten waits until the instances have nothing of guarantee local to write.
func (s *trio) awaitWritten(t *testing.T) {
	t.Helper()
	for _, p := range s.all {
		for late := time.Now().Add(clitest.Patience); !strings.Contains(p.metrics(t), "\nratelimitd_local_waiting_keys 0\n"); {
			if time.Now().After(late) {
				t.Fatalf("not all is written within %v", clitest.Patience)
			}
			<-time.After(50 * time.Millisecond)
		}
	}
}

// TestPumpingWhileOwnersDie kills all owners of the keys of sms-pumping.yaml one after the other, under an attack. What was
// written is counted exactly: a country that has got its codes gets no more. Beyond that pass at most the codes
// of the time in which a killed owner had not written. Devices that confirmed before get one code each, exactly.
func TestPumpingWhileOwnersDie(t *testing.T) {
	s := &trio{flags: onCassandra(t, "--policies="+pumpingFile, "--peer-listen=127.0.0.1:0",
		"--owners=all", fmt.Sprint("--store-timeout=", pumpingTimeout))}
	s.start(t, 3)
	for _, p := range s.all {
		p.awaitMembers(t, 3)
	}
	x := &pumping{sent: make(map[string][]time.Time), unknown: make(map[string]int), confirmed: make(map[string]int)}
	started := slices.Clone(s.all)
	x.instances.Store(&started)
	ctx := t.Context()

	for i := range pumpingKnown {
		confirmed := false
		for late := time.Now().Add(clitest.Patience); !confirmed; {
			if receipt, status := x.ask(ctx, "DE", fmt.Sprint("known-", i)); status == http.StatusOK {
				confirmed = x.confirm(ctx, "DE", receipt) == http.StatusOK
			}
			if !confirmed && time.Now().After(late) {
				t.Fatal("nobody confirms")
			}
		}
	}
	x.attack(ctx, t, "DE", "AT")
	for _, country := range []string{"DE", "AT"} {
		if n := len(x.sent[country]) + x.unknown[country]; n < pumpingBound/2 {
			t.Errorf("%s got %d codes, want more", country, n)
		}
	}
	x.askNetworks(ctx, t)
	s.awaitWritten(t)
	atRest := len(x.sent["DE"])

	// From here on callers ask without a pause, each of one country.
	under, stop := context.WithCancel(ctx)
	var callers sync.WaitGroup
	for _, country := range []string{"CH", "LV"} {
		for i := range 2 {
			callers.Go(func() {
				for under.Err() == nil {
					<-time.After(pumpingPause)
					if receipt, _ := x.ask(under, country, ""); receipt != "" && i > 0 { // one of two enters it
						x.confirm(context.WithoutCancel(under), country, receipt)
					}
				}
			})
		}
	}
	var codes [pumpingKnown]atomic.Int64 // of devices that are known
	for i := range codes {
		callers.Go(func() {
			for under.Err() == nil {
				<-time.After(pumpingPause)
				if _, status := x.ask(under, "DE", fmt.Sprint("known-", i)); status == http.StatusOK {
					codes[i].Add(1)
				}
			}
		})
	}
	more := make(map[string]int) // codes that killed owners may not have written
	for range 3 {
		<-time.After(2 * time.Second) // of the processes' time
		left := slices.Clone(s.all[1:])
		killed := time.Now()
		s.end(t, syscall.SIGKILL)
		x.instances.Store(&left)
		for _, country := range []string{"CH", "LV"} {
			more[country] += x.sentFrom(country, killed.Add(-pumpingUnsynced))
		}
		for _, p := range left {
			p.awaitMembers(t, len(left))
		}
		x.attack(ctx, t, "AT")
		x.askNetworks(ctx, t)
		s.start(t, 1)
		all := slices.Clone(s.all)
		for _, p := range all {
			p.awaitMembers(t, len(all))
		}
		x.instances.Store(&all)
	}
	stop()
	callers.Wait()

	x.hold(t, "AT", 0)
	for _, n := range x.networks {
		if n > 2 {
			t.Errorf("a network got %d codes, want 2", n)
		}
	}
	for _, country := range []string{"CH", "LV"} {
		x.hold(t, country, more[country])
	}
	for i := range codes {
		if n := codes[i].Load(); n > 1 {
			t.Errorf("a device that confirmed before got %d codes, want one", n)
		}
	}
	x.hold(t, "DE", pumpingKnown)
	if len(x.sent["DE"]) == atRest {
		t.Error("no device that confirmed before got a code")
	}
	for len(s.all) > 0 {
		s.end(t, syscall.SIGTERM)
	}
}
