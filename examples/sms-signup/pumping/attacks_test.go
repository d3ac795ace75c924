package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/race"
)

// TestAttacks plays each attack twice, and compares the outcome with the promised bounds.
func TestAttacks(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("one goroutine decides 100,000 times")
	}
	policies, err := policyfile.Load("../sms-pumping.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*outcome, 2*len(attacks))
	var played sync.WaitGroup
	for i := range all {
		played.Go(func() {
			o, err := playAttack(policies, &attacks[i%len(attacks)], uint64(1+i/len(attacks)))
			if err != nil {
				t.Errorf("%s: %v", attacks[i%len(attacks)].name, err)
			}
			all[i] = o
		})
	}
	played.Wait()
	if t.Failed() {
		return
	}
	if testing.Verbose() {
		_ = writeAttacks(os.Stderr, all)
	}
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if row := fmt.Sprintf("\n| %s | %d | %d |", o.name, o.asked, o.most); !strings.Contains(string(page), row) {
			t.Errorf("README.md has no row %q", row)
		}
		if country, got, bound := o.over(); country != "" {
			t.Errorf("%s: the attacker got %d codes in %s within a day, want %d at most", o.name, got, country, bound)
		}
		for country, at := range o.byCountry { // for countries with few users, and with many
			if n, most := mostWithin(at, day), max(40, len(o.confirmed[country])/10); n > most+boughtByOwn*o.ownIn[country] {
				t.Errorf("%s: the attacker got %d codes in %s within a day, want %d at most besides those of its own phones", o.name, n, country, most)
			}
		}
		if o.sent > o.most {
			t.Errorf("%s: the attacker got %d codes, want %d at most", o.name, o.sent, o.most)
		}
		if o.without[newElsewhere] > 0 {
			t.Errorf("%s: %d people elsewhere got no code", o.name, o.without[newElsewhere])
		}
		if 50*o.without[knownThere] > o.people[knownThere] {
			t.Errorf("%s: %d of %d people who were here before got no code", o.name, o.without[knownThere], o.people[knownThere])
		}
		if o.networks < 100 && 3*o.without[newThere] >= o.people[newThere] {
			t.Errorf("%s: %d of %d new people got no code", o.name, o.without[newThere], o.people[newThere])
		}
	}
}

// TestDraw draws the outcome of an attack.
func TestDraw(t *testing.T) {
	var drawn strings.Builder
	if err := draw(&drawn, []*outcome{{attack: attacks[0], asked: 3000, sent: 24}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(drawn.String(), "24 of 3000") || !strings.Contains(drawn.String(), attacks[0].name) {
		t.Error(drawn.String())
	}
}

// TestWithoutPolicies checks that the error names the file.
func TestWithoutPolicies(t *testing.T) {
	if err := run(new(strings.Builder), "none.yaml", "", 1); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Error(err)
	}
}
