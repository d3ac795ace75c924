package main

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

const testSecret = "no phone is found without this\xff\xfe"

// The crowd signs up with the real ratelimitd on a real Cassandra: nobody gets more
// than the policy allows, everybody gets a correct answer, and no number is left
// anywhere.
func TestACrowdSignsUp(t *testing.T) {
	cassandratest.Hosts(t) // skips the test without a Cassandra, before anything is built
	binary := build(t)
	keyFile := filepath.Join(t.TempDir(), "hash-key")
	line := "test:" + base64.StdEncoding.EncodeToString([]byte(testSecret)) + "\n"
	if err := os.WriteFile(keyFile, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("with a hash key", func(t *testing.T) { testCrowd(t, startServer(t, binary, keyFile)) })
	t.Run("without", func(t *testing.T) { testCrowd(t, startServer(t, binary, "")) })
}

func testCrowd(t *testing.T, s *server) {
	const seed = 1
	var log logged
	start := time.Now()
	play := &settings{ratelimitd: s.url, seed: seed, patience: storeTimeout + limitsTimeout}
	r, err := play.perform(t.Context(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	r.print(&table)
	t.Logf("seed %d:\n%s", seed, &table)
	metrics := s.metrics(t)
	checkAnswers(t, r)
	checkMetrics(t, r, metrics)
	k := openKeyspace(t, s.keyspace)
	checkRows(t, k, r, start)
	s.stop(t) // no more lines are logged
	if got := strings.Count(s.log.String(), "route=/v1/check"); got != len(r.visits) {
		t.Errorf("%d decisions in the debug log, want %d", got, len(r.visits))
	}
	checkPrivacy(t, k, r, map[string]string{"the log of ratelimitd": s.log.String(), "the service's log": log.String(), "/metrics": metrics})
}

// few is how many visits may end without a decision: those that are under way when, on
// a busy machine, a node freezes for longer than a decision may take, twice.
const few = 2 * atOnce

func checkAnswers(t *testing.T, r *report) {
	t.Helper()
	if err := r.check(); err != nil {
		t.Error(err)
	}
	all := r.tallyOf(callers...)
	if all.sent+all.denied+all.undecided != len(r.visits) || all.undecided > few {
		t.Errorf("%d sent, %d denied of %d: %d without a decision, %d failed", all.sent, all.denied, len(r.visits), all.undecided, all.failed)
	}
	if got := len(all.numbers); len(r.sent) < got-all.undecided {
		t.Errorf("%d numbers got codes among %d that asked, with %d visits undecided", len(r.sent), got, all.undecided)
	}
	if got := r.sent[r.target]; got < 1 || got > r.most() {
		t.Errorf("the victim got %d codes, want 1 to %d", got, r.most())
	}
	for _, wait := range all.waits {
		if wait < time.Second || wait > 31*time.Second { // the cooldown, twice the tolerance, rounded up
			t.Errorf("Retry-After %v", wait)
		}
	}
}

// decisions of any operation
var decisions = regexp.MustCompile(`(?m)^ratelimitd_decisions_total\{[^}]*outcome="(\w+)",policy="sms-send"[^}]*\} (\d+)$`)

func checkMetrics(t *testing.T, r *report, metrics string) {
	t.Helper()
	counted := make(map[string]int)
	for _, match := range decisions.FindAllStringSubmatch(metrics, -1) {
		n, _ := strconv.Atoi(match[2])
		counted[match[1]] += n
	}
	all := r.tallyOf(callers...)
	held, recorded := all.sent, counted["allowed"]-all.sent
	if recorded > held || held-recorded > few || counted["denied"] != all.denied {
		t.Errorf("metrics count %v; %d codes were sent and %d denied", counted, all.sent, all.denied)
	}
}

// checkRows compares the rows of events with the codes: one for each, which lives
// for the longest window, twice the clock tolerance and the store timeout, rounded
// up, and two seconds more.
func checkRows(t *testing.T, k *keyspace, r *report, start time.Time) {
	t.Helper()
	const window, tolerance, whole = time.Hour, 100 * time.Millisecond, time.Second
	most := int((window+2*tolerance+storeTimeout+whole-1)/whole) + 2
	rows := k.rows(fmt.Sprintf("SELECT TTL(cost) AS ttl FROM %q.events_hour", k.name))
	least := most - int(time.Since(start)/whole) - 1
	// Units that were counted for a visit without a decision are given back after a while.
	if all := r.tallyOf(callers...); len(rows) < all.sent || len(rows) > all.sent+all.undecided {
		t.Errorf("%d rows of events for %d codes and %d undecided", len(rows), all.sent, all.undecided)
	}
	for _, row := range rows {
		if ttl := row["ttl"].(int); ttl < least || ttl > most {
			t.Errorf("a row lives for %d s more, want %d to %d", ttl, least, most)
			break // the others are most likely wrong, too
		}
	}
	for _, table := range []string{"events_day", "events_month", "counters"} {
		if rows := k.rows(fmt.Sprintf("SELECT * FROM %q.%q", k.name, table)); len(rows) > 0 {
			t.Errorf("%d rows in %s", len(rows), table)
		}
	}
}

// checkPrivacy searches for all typed numbers, and for the secret.
func checkPrivacy(t *testing.T, k *keyspace, r *report, texts map[string]string) {
	t.Helper()
	n := make(needles)
	n.add(testSecret)
	for _, v := range r.visits {
		phone, _ := ParsePhone(v.typed)
		n.addPhone(phone, v.typed)
	}
	if where, found := k.find(t, n); found {
		t.Error(where)
	}
	for where, text := range texts {
		if needle, found := n.in(text); found {
			t.Errorf("%s holds %q", where, needle)
		}
		if _, found := n.in(text + string(r.target)); !found {
			t.Errorf("a number planted at the end of %s is not found", where)
		}
	}
	provePlantsAreFound(t, k, n, r.target)
}
