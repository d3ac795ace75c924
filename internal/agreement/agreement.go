// Package agreement checks that instances which count together have the same settings. Each publishes its own statement,
// and reads those of the others. A different hash key keeps an instance from starting; other differences are only
// reported.
//
// It knows neither where statements are stored, nor what the settings mean.
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
	// Publish stores a statement under id in place of the earlier one. It lasts for lasts.
	Publish(ctx context.Context, id string, statement []byte, lasts time.Duration) error
	// Published returns all statements, at least those whose Publish was answered.
	Published(ctx context.Context) ([][]byte, error)
	// Withdraw removes a statement.
	Withdraw(ctx context.Context, id string) error
}

// Agreement compares the settings of one instance with those of the others. Make one with New.
type Agreement struct {
	store  Store
	fixed  Statement
	now    func(*Statement)
	log    *slog.Logger
	joined atomic.Bool
	before []Disagreement // found by the last comparison
	known  atomic.Pointer[[]Disagreement]
}

const (
	lookEvery   = 10 * time.Second // interval of comparisons
	lasts       = 3 * lookEvery    // how long the statement of an instance that died lasts
	storeWithin = 2 * time.Second  // timeout of a comparison's requests
	retryEvery  = 250 * time.Millisecond
	mostLogged  = 20 // disagreements of one comparison
)

// New returns an Agreement on the settings in fixed, and on those that now adds to it for each comparison, which may
// change. It publishes nothing before Join.
func New(store Store, fixed Statement, now func(*Statement), log *slog.Logger) *Agreement {
	a := &Agreement{store: store, fixed: fixed, now: now, log: log}
	a.known.Store(new([]Disagreement))
	return a
}

// ErrHashKey is the error of an instance that would hash identifiers with another key than others.
var ErrHashKey = errors.New("instances disagree about the hash key")

// Join publishes this instance's statement and compares it with those of others, until it has succeeded once. If the error
// wraps ErrHashKey, the instance must not start; its text is for people. After any other error, Join may be called again.
// Differences between other settings are logged.
//
// If two instances that disagree join at the same time, at least one is refused, because each publishes before it reads.
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

// refusal returns the error of an instance that must not start.
func refusal(d *Disagreement) error {
	return fmt.Errorf("--hash-key-file: %w: this one would hash identifiers with %s, and instance %q does with %s; each would count "+
		"separately, and callers would get their limit from both: give all instances the same file, or change the key step by step as in "+
		"docs/howto/hash-key.md (an instance that died is forgotten after %v)", ErrHashKey, d.Here, d.Instance, d.There, lasts)
}

// Await calls Join until it succeeds. Its error wraps ErrHashKey, or is ctx's.
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

// Run publishes and compares again and again after Join, until ctx ends, and then withdraws the statement. It returns nil.
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

// lookAgain compares once more. A new difference may be a change on its way to all instances, so it counts only if the next
// comparison finds it, too. If the store does not answer, nothing changes.
func (a *Agreement) lookAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	found, err := a.look(ctx)
	if err != nil {
		a.log.Debug("settings of other instances are not known", "error", err)
		return
	}
	isNew := func(d Disagreement) bool { return !slices.Contains(a.before, d) }
	a.put(slices.DeleteFunc(slices.Clone(found), isNew))
	a.before = found
}

// look publishes this instance's statement, and returns the disagreements of others with it.
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
		if json.Unmarshal(text, &other) == nil && other.ID != mine.ID { // a later version may have another form
			found = append(found, mine.compare(&other)...)
		}
	}
	return found, nil
}

// withdraw removes the statement. If the store does not answer, others forget it soon.
func (a *Agreement) withdraw(ctx context.Context) { _ = a.store.Withdraw(ctx, a.fixed.ID) }

// put replaces the known disagreements by found, and logs new ones, and that all have ended.
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

// Disagreements returns the number of other instances that have another value of each setting, 0 if all agree. It has
// settings that may change only if instances disagree about them.
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

// Warnings returns a sentence if settings differ, without names of instances and policies.
func (a *Agreement) Warnings() []string {
	found := *a.known.Load()
	if len(found) == 0 {
		return nil
	}
	settings := make(map[string]bool)
	for _, d := range found {
		name, _, _ := strings.Cut(d.Setting, ".")
		settings[name] = true
	}
	return []string{fmt.Sprintf("other instances have another value of %s, and must have the same; the log has the values",
		strings.Join(sorted(settings), ", "))}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
