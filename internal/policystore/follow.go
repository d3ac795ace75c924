package policystore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

const (
	lookEvery  = 250 * time.Millisecond // brings a version into force within a second, including the time to read it
	lookWithin = 2 * time.Second        // timeout of the requests of one look
	staleAfter = 2 * time.Second        // time after the store's last answer in which a later version may come into force elsewhere
	retryEvery = 5 * time.Second        // interval between attempts for a version that can't come into force
)

// Options of a Follower. All but None and Logger are needed.
type Options struct {
	// Check returns an error if policies could not come into force here.
	Check func(policyfile.File) error
	// Force brings a version of the policies into force.
	Force func(number int64, file policyfile.File) error
	// None is called once, if the store answers that it has no version; nil: nothing is done.
	None   func() error
	Logger *slog.Logger // nil: nothing is logged
}

// Follower brings the latest version of a store into force, and makes new ones. Make one with NewFollower.
type Follower struct {
	store   Store
	opts    Options
	poke    chan struct{} // makes Run look now
	refused int64         // the version that could not come into force last; looks alone use it
	tried   time.Time     // when that was

	mu      sync.Mutex
	set     Set           // the version in force; zero: none of the store's
	none    bool          // the store has answered that it has no version
	settled time.Time     // when the last look began that got an answer of the store
	failed  error         // of the latest look; nil: it found the version in force, or put one in force
	ended   time.Time     // when the latest look ended
	sought  int64         // the version that the latest look could have brought into force
	parsed  parsedText    // of the text that is being applied, since many policies take a while to parse
	looked  chan struct{} // closed at the end of the look in progress, or else of the next one
}

// parsedText is a text that has been parsed.
type parsedText struct {
	digest string
	file   policyfile.File
}

// NewFollower returns a Follower of from.
func NewFollower(from Store, opts *Options) *Follower {
	f := &Follower{store: from, opts: *opts, poke: make(chan struct{}, 1), looked: make(chan struct{})}
	f.opts.Logger = cmp.Or(f.opts.Logger, slog.New(slog.DiscardHandler))
	return f
}

// Run looks for later versions until ctx ends. It returns nil.
func (f *Follower) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-f.poke:
		}
		_ = f.Look(ctx) // the error is kept, and logged
	}
}

// Look brings the latest version into force, unless it is. It must not be called while Run runs.
func (f *Follower) Look(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	began := time.Now() // a process that was stopped may read an answer long after it was given
	err := f.look(within)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !errors.Is(err, store.ErrUnavailable) {
		f.settled = began
	}
	if ctx.Err() == nil {
		f.note(err)
	}
	f.failed, f.ended = err, time.Now()
	close(f.looked)
	f.looked = make(chan struct{})
	return err
}

// note logs err, unless the look before had the same one. The lock is held.
func (f *Follower) note(err error) {
	switch {
	case err == nil && f.failed != nil:
		f.opts.Logger.Info("policies of the store are read again", "version", f.set.Number)
	case err != nil && !errors.Is(err, store.ErrNotConnected) && (f.failed == nil || f.failed.Error() != err.Error()):
		f.opts.Logger.Warn("policies of the store can't be brought into force, those that are in force stay",
			"version", f.set.Number, "error", err)
	}
}

func (f *Follower) look(ctx context.Context) error {
	latest, err := f.store.Latest(ctx)
	f.mu.Lock()
	have := f.set.Number
	if f.sought = latest; err != nil {
		f.sought = math.MaxInt64 // any
	}
	f.mu.Unlock()
	switch {
	case err != nil:
		return err
	case latest > have:
		return f.bringOnce(ctx, latest)
	case latest < have:
		return f.restore(ctx, latest)
	case have == 0:
		return f.noneYet()
	}
	return nil
}

// bringOnce is bring, unless the same version failed a moment ago, since it would most likely fail again.
func (f *Follower) bringOnce(ctx context.Context, number int64) error {
	if number == f.refused && time.Since(f.tried) < retryEvery {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.failed
	}
	err := f.bring(ctx, number)
	f.refused = 0
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		f.refused, f.tried = number, time.Now()
	}
	return err
}

// bring reads a version and brings it into force.
func (f *Follower) bring(ctx context.Context, number int64) error {
	set, err := f.store.Read(ctx, number)
	if err != nil {
		return fmt.Errorf("version %d: %w", number, err)
	}
	if DigestOf(set.Text) != set.Digest {
		return fmt.Errorf("version %d: %w: its text is not what its digest says; apply policies anew", number, ErrUnreadable)
	}
	file, err := f.parse(&set)
	if err == nil {
		err = f.opts.Force(number, file)
	}
	if err != nil {
		return fmt.Errorf("version %d: %w", number, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set = set
	return nil
}

// parse reads the text of set.
func (f *Follower) parse(set *Set) (policyfile.File, error) {
	f.mu.Lock()
	parsed := f.parsed
	f.parsed = parsedText{}
	f.mu.Unlock()
	if parsed.digest == set.Digest {
		return parsed.file, nil
	}
	return policyfile.ParseFile(nameOf(set.Number), set.Text)
}

// restore puts the version in force back into a store that has lost it: a number is never given to other policies.
func (f *Follower) restore(ctx context.Context, latest int64) error {
	f.mu.Lock()
	set := f.set
	f.mu.Unlock()
	f.opts.Logger.Warn("the store has lost policies that are in force, they are put back", "version", set.Number, "left", latest)
	err := f.store.Put(ctx, latest, &set)
	if errors.Is(err, ErrConflict) { // another instance did
		return nil
	}
	return err
}

// noneYet logs, once, that there is no version.
func (f *Follower) noneYet() error {
	f.mu.Lock()
	told := f.none
	f.none = true
	f.mu.Unlock()
	if told || f.opts.None == nil {
		return nil
	}
	return f.opts.None()
}

// nameOf returns the name of a version in errors.
func nameOf(number int64) string { return fmt.Sprintf("version-%d", number) }

// InForce returns the number of the version in force, 0 for none.
func (f *Follower) InForce() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set.Number
}

// Await returns when that version is in force, or a later one. The error says why it is not.
func (f *Follower) Await(ctx context.Context, number int64) error {
	for range 2 { // the second of two looks has begun after the call
		f.mu.Lock()
		inForce, looked, failed := f.set.Number, f.looked, f.failed
		inVain := failed != nil && number <= f.sought && time.Since(f.ended) < lookEvery
		f.mu.Unlock()
		switch {
		case inForce >= number:
			return nil
		case inVain: // looking again at once would not help
			return failed
		}
		f.LookSoon()
		select {
		case <-looked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.InForce() >= number {
		return nil
	}
	return fmt.Errorf("%w: the store has no version %d yet", ErrNoVersion, number)
}

// LookSoon makes Run look now.
func (f *Follower) LookSoon() {
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

// Errors of Ready.
var (
	errNotRead = errors.New("the policies in the store have not been read since the start")
	errStale   = errors.New("the store has not said for a while which policies are the latest")
)

// Ready returns an error if this instance should not be sent requests, since it has no policies or does not know whether
// others have later ones. If a version in the store can't be read, the policies in force stay, and Ready returns nil.
func (f *Follower) Ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.set.Number == 0 && !f.none:
		if f.failed != nil {
			return fmt.Errorf("%w: %w", errNotRead, f.failed)
		}
		return errNotRead
	case time.Since(f.settled) > staleAfter:
		return errStale
	}
	return nil
}

// Warnings returns sentences about problems that do not prevent decisions.
func (f *Follower) Warnings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		return nil
	}
	return []string{fmt.Sprintf("the latest policies in the store are not in force here, version %d is; the log says why", f.set.Number)}
}

// Any stands for the latest version, whichever that is.
const Any int64 = -1

// Apply makes text the latest version, if that is still have, and brings it into force. If the latest version has the same
// text, Apply returns it and makes none. Errors are those of policyfile.ParseFile and of Options.Check, which have every
// mistake, ErrConflict, and those of the store.
func (f *Follower) Apply(ctx context.Context, text []byte, have int64, by string) (Version, error) {
	file, err := policyfile.ParseFile("policies", text)
	if err == nil {
		err = f.opts.Check(file)
	}
	if err != nil {
		return Version{}, err
	}
	for tries := 1; ; tries++ {
		v, err := f.apply(ctx, text, file, have, by)
		if have != Any || !errors.Is(err, ErrConflict) || tries == anyTries {
			return v, err
		}
	}
}

// anyTries is the number of attempts to replace any version, while other instances make versions, too.
const anyTries = 5

func (f *Follower) apply(ctx context.Context, text []byte, file policyfile.File, have int64, by string) (Version, error) {
	latest, err := f.store.Latest(ctx)
	if err != nil {
		return Version{}, err
	}
	known := max(latest, f.InForce()) // the version in force is later if the store has lost versions
	if have != Any && have != known {
		return Version{}, fmt.Errorf("%w: it is %d", ErrConflict, known)
	}
	set := Set{Text: text, Version: Version{
		Number: known + 1, Digest: DigestOf(text), At: time.Now().UTC().Truncate(time.Millisecond), By: by, Policies: len(file.Policies),
	}}
	if same, err := f.store.Read(ctx, latest); err == nil && same.Digest == set.Digest && DigestOf(same.Text) == set.Digest {
		return same.Version, nil
	}
	f.mu.Lock()
	f.parsed = parsedText{set.Digest, file}
	f.mu.Unlock()
	if err := f.store.Put(ctx, latest, &set); err != nil {
		return Version{}, err
	}
	f.mu.Lock()
	f.sought = 0 // an earlier failure was another version's
	f.mu.Unlock()
	if err := f.Await(ctx, set.Number); err != nil { // it is stored, and comes into force later, as on other instances
		f.opts.Logger.Warn("policies were applied and are not in force here yet", "version", set.Number, "error", err)
	}
	return set.Version, nil
}
