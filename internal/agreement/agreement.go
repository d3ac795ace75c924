// Package agreement checks that instances which count together have the same settings. Each publishes a statement of its
// own, and reads those of the others. A different hash key keeps an instance from starting; other differences are only
// reported.
//
// It does not know where statements are kept, nor what the settings are for.
package agreement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Store keeps the statements of the instances of one namespace.
type Store interface {
	// Publish keeps a statement under id for so long, in place of the one before.
	Publish(ctx context.Context, id string, statement []byte, lasts time.Duration) error
	// Published returns all statements, at least those whose Publish was answered.
	Published(ctx context.Context) ([][]byte, error)
	// Withdraw removes a statement.
	Withdraw(ctx context.Context, id string) error
}

// Agreement is one instance's part in agreeing on settings. Make one with New.
type Agreement struct {
	store  Store
	fixed  Statement
	now    func(*Statement)
	log    *slog.Logger
	joined atomic.Bool
	before []Disagreement // at the last look
	known  atomic.Pointer[[]Disagreement]
}

const (
	lookEvery   = 10 * time.Second // how late a disagreement is noticed
	lasts       = 3 * lookEvery    // a statement is believed so long of an instance that died
	storeWithin = 2 * time.Second  // for one round of requests
	retryEvery  = 250 * time.Millisecond
	mostLogged  = 20 // disagreements at one look
)

// New returns an agreement by way of store on what fixed says, and on what now adds to it whenever it
// looks: that may change. It publishes nothing yet.
func New(store Store, fixed Statement, now func(*Statement), log *slog.Logger) *Agreement {
	a := &Agreement{store: store, fixed: fixed, now: now, log: log}
	a.known.Store(new([]Disagreement))
	return a
}

// ErrHashKey is an instance that would hash identifiers otherwise than another one does.
var ErrHashKey = errors.New("instances disagree about the hash key")

// Join publishes this instance's statement and reads those of others, once. An error that wraps
// ErrHashKey says that it must not begin, and is for a person to read; after any other one it may
// be tried again. Other settings that differ are logged. After Join has succeeded it does
// nothing.
//
// Of two that join at the same time and disagree, one at least is refused: each publishes before
// it reads.
func (a *Agreement) Join(ctx context.Context) error {
	if a.joined.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	found, err := a.look(ctx)
	if err != nil {
		return err
	}
	for _, d := range found {
		if d.Setting == SettingHashKey {
			a.withdraw(ctx)
			return refusal(&d)
		}
	}
	a.joined.Store(true)
	a.put(found)
	a.before = found
	return nil
}

// refusal returns the error of an instance that may not start.
func refusal(d *Disagreement) error {
	return fmt.Errorf("--hash-key-file: %w: this one would hash identifiers with %s, and instance %q does with %s; each would count "+
		"apart, and callers would get their limit from both: give all instances the same file, or change the key step by step as in "+
		"docs/howto/hash-key.md (an instance that died is forgotten after %v)", ErrHashKey, d.Here, d.Instance, d.There, lasts)
}

// Await joins, however long the store takes. Its error wraps ErrHashKey, or is ctx's.
func (a *Agreement) Await(ctx context.Context) error {
	for {
		err := a.Join(ctx)
		if err == nil || errors.Is(err, ErrHashKey) {
			return err
		}
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Run goes on publishing and comparing after Join until ctx ends, and withdraws then. It returns
// nil.
func (a *Agreement) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWithin)
			defer cancel()
			a.withdraw(leaving)
			return nil
		case <-tick.C:
			a.lookAgain(ctx)
		}
	}
}

// lookAgain looks once more. A difference that is new may be a change on its way to all instances: it counts if the next
// look finds it, too. Without an answer nothing changes.
func (a *Agreement) lookAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	found, err := a.look(ctx)
	if err != nil {
		a.log.Debug("settings of other instances are not known", "error", err)
		return
	}
	a.put(intersection(found, a.before))
	a.before = found
}

// look publishes this instance's statement, and returns how others disagree with it.
func (a *Agreement) look(ctx context.Context) (found []Disagreement, err error) {
	mine := a.fixed
	mine.Settings = maps.Clone(mine.Settings)
	a.now(&mine)
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	if err := a.store.Publish(ctx, mine.ID, text, lasts); err != nil {
		return nil, err
	}
	all, err := a.store.Published(ctx)
	if err != nil {
		return nil, err
	}
	for _, text := range all {
		var other Statement
		if json.Unmarshal(text, &other) == nil && other.ID != mine.ID { // else it is of a later version
			found = append(found, mine.compare(&other)...)
		}
	}
	return found, nil
}

// withdraw has others forget this instance now, if the store answers, and else soon.
func (a *Agreement) withdraw(ctx context.Context) { _ = a.store.Withdraw(ctx, a.fixed.ID) }

// put replaces the known disagreements by found, and logs those that are new or over.
func (a *Agreement) put(found []Disagreement) {
	known := *a.known.Swap(&found)
	logged := 0
	for _, d := range found {
		if slices.Contains(known, d) {
			continue
		}
		if logged++; logged <= mostLogged {
			a.log.Warn("instances disagree about a setting", "setting", d.Setting, "here", d.Here, "there", d.There, "instance", d.Instance)
		}
	}
	if logged > mostLogged {
		a.log.Warn("instances disagree about more settings", "count", logged-mostLogged)
	}
	if len(known) > 0 && len(found) == 0 {
		a.log.Info("instances agree about their settings again")
	}
}

// Disagreements returns how many other instances have another value of each setting: 0 for one
// that all agree about. Settings that may change are in it only if instances disagree.
func (a *Agreement) Disagreements() map[string]int {
	counts := map[string]int{SettingHashKey: 0}
	for name := range a.fixed.Settings {
		counts[name] = 0
	}
	for _, d := range *a.known.Load() {
		counts[d.Setting]++
	}
	return counts
}

// Warnings returns a sentence, without the name of an instance or a policy, if settings differ.
func (a *Agreement) Warnings() []string {
	found := *a.known.Load()
	if len(found) == 0 {
		return nil
	}
	settings := make(map[string]string)
	for _, d := range found {
		name, _, _ := strings.Cut(d.Setting, ".")
		settings[name] = ""
	}
	return []string{fmt.Sprintf("other instances must have the same value of %s, and have not; the log says which has which",
		strings.Join(sorted(settings), ", "))}
}

// intersection returns the disagreements that are in both.
func intersection(a, b []Disagreement) []Disagreement {
	var both []Disagreement
	for _, d := range a {
		if slices.Contains(b, d) {
			both = append(both, d)
		}
	}
	return both
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
