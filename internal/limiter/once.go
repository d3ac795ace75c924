package limiter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// usage is the use of an idempotency key: a claim's value.
type usage struct {
	State        usageState
	Fingerprints [][]byte        // of the call that used it
	Started      store.Instant   // when it was claimed
	IDs          []store.EventID // of its events: one for each charge, then the Spare of each; empty: its units can't be removed
	Gone         []store.EventID `json:",omitempty"` // events of earlier claims without an answer, to be removed before the call is decided
	Answer       *storedAnswer   `json:",omitempty"`
}

// usageState is the state of a call with an idempotency key.
type usageState string

const (
	usagePending  usageState = "pending"  // a process is deciding the call, or has died
	usageFree     usageState = "free"     // the call was denied and recorded nothing: a repetition is decided again
	usageAnswered usageState = "answered" // Answer is the answer to every repetition
)

// Bounds of waiting for another instance that decides the same call.
const (
	oncePause   = 10 * time.Millisecond // before the first read for an answer; it doubles
	maxPause    = 80 * time.Millisecond
	usageKept   = 10 * time.Minute // the least time that an idempotency key is kept
	staleMargin = time.Second      // a claim is taken over so long after its owner must have given up
)

// repetitions decides calls with an idempotency key, which count once however often they are sent.
type repetitions struct {
	*basis
	store      store.Store
	judge      *judge.Judge
	claims     *once.Scopes
	secrets    *once.Secrets
	refunds    *refunds     // makes receipts
	identities []*keys.Keys // hash identifiers for fingerprints, one for each known hash key
}

// identities returns the Keys that hash identifiers for fingerprints, one for each hash key of set.
func identities(set *demand.Settings) (all []*keys.Keys) {
	for _, keyer := range append([]keys.Keyer{set.Keyer}, set.AlsoRead...) {
		all = append(all, keyer.For(keys.KeySpace{Policy: once.SpaceIdentity}))
	}
	return all
}

// once decides call, unless it was decided before under the same idempotency key: then it returns that answer. The instance
// that claims the key decides. The claim has the IDs of the events, so that the events of a claim without an answer can be
// removed before the call is decided again. Another instance can take a claim over once its owner must have given up. The
// owner notices that, because it answers only if it can write the answer into its claim.
func (r *repetitions) once(ctx context.Context, call *Call, charges []demand.Charge) (Answer, error) {
	keys, err := r.secrets.Keyring(ctx)
	if err != nil {
		return failAll(ctx, r.judge, charges, count.RecordedNo, err)
	}
	claims := r.claims.Of(charges)
	o := &attempt{
		repetitions: r, claims: claims, key: claims.Key(once.SpaceIdempotency, keys.Sum(call.ownedKey()...)),
		fingerprints: r.fingerprints(keys, call), charges: charges, keep: usageKept,
	}
	for i := range charges {
		o.keep = max(o.keep, charges[i].Plan.LongestWindow())
	}
	for wait := oncePause; ctx.Err() == nil; wait = min(2*wait, maxPause) {
		answer, done, err := o.try(ctx)
		if done || err != nil {
			return answer, err
		}
		_ = clock.Pause(ctx, wait/2+r.settings.Jitter(wait))
	}
	return failAll(ctx, r.judge, charges, count.RecordedUnknown,
		fmt.Errorf("%w: the same call is being decided elsewhere", store.ErrUnavailable))
}

// ownedKey returns the name of the caller, if there is one, and the idempotency key.
func (c *Call) ownedKey() []string {
	if c.Caller == "" {
		return []string{c.IdempotencyKey}
	}
	return []string{c.Caller, c.IdempotencyKey}
}

// fingerprints returns hashes of call's operation, demands and identifiers, one for each known hash key: while instances
// change the hash key, any two of them have one in common.
func (r *repetitions) fingerprints(keys *once.Keyring, call *Call) (all [][]byte) {
	for _, identities := range r.identities {
		parts := []string{string(call.Op)}
		for _, d := range call.Demands {
			units := strconv.FormatInt(max(1, d.Cost), 10)
			if d.Limit != 0 {
				units += " of " + strconv.FormatInt(d.Limit, 10)
			}
			parts = append(parts, d.Policy, string(identities.Of(d.Identifier).Bytes()), units)
		}
		all = append(all, keys.Sum(parts...))
	}
	return all
}

// isOf reports whether a call with one of these fingerprints used the key.
func (u *usage) isOf(fingerprints [][]byte) bool {
	return slices.ContainsFunc(u.Fingerprints, func(known []byte) bool {
		return slices.ContainsFunc(fingerprints, func(f []byte) bool { return bytes.Equal(f, known) })
	})
}

// attempt is one call while it is decided under its idempotency key.
type attempt struct {
	repetitions  *repetitions
	claims       *once.Claims
	key          store.Key
	fingerprints [][]byte
	charges      []demand.Charge
	keep         time.Duration
	after        store.Instant // the latest known reset; the call's events must be later
}

// try claims the key and decides, or finds the answer of another instance. done is false while another instance
// decides.
func (o *attempt) try(ctx context.Context) (answer Answer, done bool, err error) {
	cell, known, err := o.read(ctx)
	if err != nil {
		return o.fail(ctx, count.RecordedNo, err)
	}
	if known != nil {
		switch {
		case !known.isOf(o.fingerprints):
			return Answer{}, true, ErrReused
		case known.State == usageAnswered:
			return known.Answer.answer(), true, nil
		case known.State != usagePending && known.State != usageFree:
			return o.fail(ctx, count.RecordedUnknown,
				fmt.Errorf("%w: an idempotency key was used by a version that this one does not understand", store.ErrUnavailable))
		case known.State == usagePending && !o.stale(known):
			return Answer{}, false, nil
		case known.State == usagePending && (!o.removable() || len(known.IDs) == 0):
			return o.fail(ctx, count.RecordedUnknown,
				fmt.Errorf("%w: an earlier call with this idempotency key ended without an answer", store.ErrUnavailable))
		}
	}
	if (known == nil || known.State == usageFree) && o.repetitions.judge.DeniedUnasked(o.charges) {
		err := o.repetitions.judge.DecideAll(ctx, o.charges) // it counts nothing, and so needs no claim
		return answerOf(o.charges), true, err
	}
	now, err := o.repetitions.decider.Instant()
	if err != nil {
		return o.fail(ctx, count.RecordedNo, err)
	}
	mine := o.claim(known, max(now, o.after+1))
	version, err := o.swap(ctx, cell.Version, mine)
	if errors.Is(err, store.ErrConflict) {
		return Answer{}, false, nil
	}
	if err != nil {
		return o.fail(ctx, count.RecordedNo, err)
	}
	return o.decide(ctx, version, mine)
}

// read returns the cell of the idempotency key, and its use, nil if the key is new.
func (o *attempt) read(ctx context.Context) (store.Cell, *usage, error) {
	cell, err := o.claims.Get(ctx, o.key, o.claims.Serial.Quorum())
	if err != nil || len(cell.Value) == 0 {
		return cell, nil, err
	}
	known := new(usage)
	if err := json.Unmarshal(cell.Value, known); err != nil {
		return cell, nil, fmt.Errorf("%w: the stored claim of an idempotency key can't be read: %w", store.ErrUnavailable, err)
	}
	return cell, known, nil
}

func (o *attempt) swap(ctx context.Context, expected store.EventID, u *usage) (store.EventID, error) {
	value, err := json.Marshal(u)
	if err != nil {
		return store.EventID{}, err
	}
	owner := uint64(0)
	if len(o.charges) > 0 {
		owner = o.charges[0].Key.Prefix() // of one identifier, under any of its keys
	}
	return o.claims.SwapFor(ctx, owner, o.key, expected, value, o.keep+o.repetitions.settings.ClockError)
}

// stale reports whether the claim u can be taken over: by any clock, its owner has given up, and the owners of the keys
// refuse u's IDs. It also returns true if the clock has been set back since, so that the claim's age is unknown: the owner
// of a claim that is taken over too early notices that.
func (o *attempt) stale(u *usage) bool {
	set, now := o.repetitions.settings, o.repetitions.now()
	return now.Sub(u.Started) > set.StoreTimeout+3*set.Timing.Slack()+staleMargin || set.Timing.IsSetBack(u.Started, now)
}

// removable reports whether the units of a claim without an answer can be removed. That is true of events, whose IDs the
// claim has, but not of counters and cells, which do not show whose units they have.
func (o *attempt) removable() bool {
	return !slices.ContainsFunc(o.charges, func(c demand.Charge) bool {
		return c.Plan.Counters || c.Plan.Cell
	})
}

// claim returns the claim of a call that is about to be decided at now. known is the earlier use of the key, nil if it is
// new.
func (o *attempt) claim(known *usage, now store.Instant) *usage {
	mine := &usage{State: usagePending, Fingerprints: o.fingerprints, Started: now}
	if known != nil {
		mine.Gone = slices.Concat(known.Gone, known.IDs)
	}
	if !o.removable() {
		return mine
	}
	for range 2 * len(o.charges) {
		mine.IDs = append(mine.IDs, o.repetitions.ids.Next(now))
	}
	return mine
}

// decide decides under the claim mine, of this version, and writes the answer into it. done is false if the claim was
// taken over meanwhile.
func (o *attempt) decide(ctx context.Context, version store.EventID, mine *usage) (Answer, bool, error) {
	if err := o.removeGone(ctx, mine.Gone); err != nil {
		return o.fail(ctx, count.RecordedUnknown, err)
	}
	mine.Gone = nil // these events are removed now
	for i := range o.charges {
		c := &o.charges[i]
		c.Decision, c.Err, c.ID, c.Placed, c.Alone = count.Decision{}, nil, store.EventID{}, false, true
		if len(mine.IDs) > 0 {
			c.ID, c.Spare = mine.IDs[i], mine.IDs[len(o.charges)+i]
		}
	}
	err := o.repetitions.judge.DecideAll(ctx, o.charges)
	if early, ok := errors.AsType[*demand.DatedError](err); ok {
		o.after = early.After
		_, _ = o.swap(ctx, version, o.free(mine)) // the next round notices if that failed
		return Answer{}, false, nil
	}
	answer := answerOf(o.charges)
	if err == nil && answer.Recorded == count.RecordedYes {
		return o.keepAnswer(ctx, version, answer)
	}
	if answer.Recorded == count.RecordedNo {
		o.release(ctx, version, o.free(mine)) // if it fails, the claim can be taken over once it is stale
	}
	return answer, true, err
}

// release allows the call to be decided again. It deletes a claim without events to remove, because a denied caller may use
// any number of idempotency keys.
func (o *attempt) release(ctx context.Context, version store.EventID, free *usage) {
	if len(free.Gone) == 0 {
		o.claims.Release(ctx, o.key, version)
		return
	}
	_, _ = o.swap(ctx, version, free)
}

// free returns the claim of a call that is not being decided. It has the events that may be stored, which the next instance
// to decide the call removes. It has no others, because each removal leaves a tombstone in a log.
func (o *attempt) free(mine *usage) *usage {
	u := &usage{State: usageFree, Fingerprints: o.fingerprints, Gone: mine.Gone}
	for i := range o.charges {
		if c := &o.charges[i]; len(mine.IDs) > 0 && (c.Placed || c.Decision.Recorded != count.RecordedNo) {
			u.Gone = append(u.Gone, mine.IDs[i], mine.IDs[len(o.charges)+i])
		}
	}
	return u
}

// keepAnswer writes answer into the claim of this version. done is false if the claim was taken over: the units of answer
// are then removed, and the call is decided again.
func (o *attempt) keepAnswer(ctx context.Context, version store.EventID, answer Answer) (Answer, bool, error) {
	o.repetitions.refunds.addReceipts(ctx, &answer, o.charges)
	_, err := o.swap(ctx, version, &usage{State: usageAnswered, Fingerprints: o.fingerprints, Answer: storedOf(&answer)})
	switch {
	case errors.Is(err, store.ErrConflict):
		return Answer{}, false, nil
	case err != nil && o.removable(): // the claim may yet be taken over
		return o.fail(ctx, count.RecordedUnknown, err)
	}
	return answer, true, nil // a claim whose units can't be removed is never taken over
}

// removeGone removes the events that earlier claims of this call may have stored from the logs of all demands. The owners of
// the keys do it. Otherwise the call, decided again, might count twice.
func (o *attempt) removeGone(ctx context.Context, gone []store.EventID) error {
	if len(gone) == 0 {
		return nil
	}
	var all sync.WaitGroup
	failed := make([]error, len(o.charges))
	for i := range o.charges {
		all.Go(func() { failed[i] = o.remove(ctx, &o.charges[i].Target, gone) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// remove removes gone from the logs of t.
func (o *attempt) remove(ctx context.Context, t *demand.Target, gone []store.EventID) error {
	for _, key := range t.OldKeys { // no owner has them in memory
		w := &store.Write{Key: key, Level: t.Plan.Consistency.Write, Logs: t.Plan.LogWrites, Remove: gone}
		if err := o.repetitions.store.Write(ctx, w); err != nil {
			return err
		}
	}
	for _, id := range gone {
		if err := o.repetitions.decider.GiveBack(ctx, t, &count.Entry{ID: id, At: id.Instant(), Cost: 1}, false); err != nil {
			return err
		}
	}
	return nil
}

// fail is failAll for o, which is then done.
func (o *attempt) fail(ctx context.Context, recorded count.Recorded, cause error) (answer Answer, done bool, err error) {
	answer, err = failAll(ctx, o.repetitions.judge, o.charges, recorded, cause)
	return answer, true, err
}

// failAll is Judge.FailAll. It also returns the answer.
func failAll(ctx context.Context, j *judge.Judge, charges []demand.Charge, recorded count.Recorded, cause error) (Answer, error) {
	err := j.FailAll(ctx, charges, recorded, cause)
	if len(charges) == 0 {
		return Answer{}, err
	}
	return answerOf(charges), err
}

// storedAnswer is an Answer as it is kept for repetitions of its call.
type storedAnswer struct {
	Demands []storedDecision
	Receipt string
	Release string `json:",omitempty"`
}

// storedDecision is a Decision with the parts of its policy that answers have.
type storedDecision struct {
	Policy   string
	Mode     policy.Mode
	Limits   []policy.Limit
	Verdicts []count.Verdict
	Own      count.Verdict
	Tightest int
	Would    bool
	Degraded bool
	Blocked  bool
	Override policy.OverrideKind `json:",omitempty"`
	Reason   policy.Reason       `json:",omitempty"`
	Recorded count.Recorded
}

func storedOf(a *Answer) *storedAnswer {
	decisions := a.Demands
	if decisions == nil {
		decisions = []count.Decision{a.Decision}
	}
	s := &storedAnswer{Receipt: a.Receipt, Release: a.Release}
	for i := range decisions {
		d := &decisions[i]
		kept := storedDecision{
			Policy: d.Policy.Name, Mode: d.Policy.Mode, Own: d.Verdict, Tightest: d.Tightest, Would: d.WouldAllow,
			Degraded: d.Degraded, Blocked: d.Blocked, Override: d.Override, Reason: d.Reason, Recorded: d.Recorded,
		}
		for _, l := range d.Limits() {
			limit := *l.Limit
			limit.By, limit.Max = nil, 0 // other identifiers' numbers are not part of answers
			kept.Limits, kept.Verdicts = append(kept.Limits, limit), append(kept.Verdicts, l.Verdict)
		}
		s.Demands = append(s.Demands, kept)
	}
	return s
}

// answer returns the Answer from which s was made.
func (s *storedAnswer) answer() Answer {
	a := Answer{Demands: make([]count.Decision, len(s.Demands))}
	for i := range s.Demands {
		kept := &s.Demands[i]
		d := &a.Demands[i]
		*d = count.Decision{
			Policy:  &policy.Policy{Name: kept.Policy, Mode: kept.Mode, Limits: kept.Limits},
			Verdict: kept.Own, Tightest: kept.Tightest, WouldAllow: kept.Would,
			Degraded: kept.Degraded, Blocked: kept.Blocked, Override: kept.Override, Reason: kept.Reason, Recorded: kept.Recorded,
		}
		limits := make([]count.LimitDecision, len(kept.Limits))
		for j := range limits {
			limits[j] = count.LimitDecision{Limit: &kept.Limits[j], Verdict: kept.Verdicts[j]}
		}
		d.SetLimits(limits)
	}
	if len(a.Demands) == 1 {
		a.Decision, a.Demands = a.Demands[0], nil
	} else {
		a.conclude()
	}
	a.Receipt, a.Release, a.Replayed = s.Receipt, s.Release, true
	return a
}

var errKeptAnswer = errors.New("its state is answered, but this version can't read its answer")

// UnmarshalJSON reads the stored use of an idempotency key. It returns an error for an answer that can't be repeated: the
// call then fails, and counts nothing.
func (u *usage) UnmarshalJSON(b []byte) error {
	type fields usage
	if err := json.Unmarshal(b, (*fields)(u)); err != nil {
		return err
	}
	if u.State == usageAnswered && !u.Answer.isComplete() {
		return errKeptAnswer
	}
	return nil
}

// isComplete reports whether s has at least one decision, and each decision has a verdict for every limit.
func (s *storedAnswer) isComplete() bool {
	if s == nil || len(s.Demands) == 0 {
		return false
	}
	for i := range s.Demands {
		d := &s.Demands[i]
		if len(d.Limits) != len(d.Verdicts) || d.Tightest < 0 || d.Tightest >= len(d.Limits) {
			return false
		}
	}
	return true
}
