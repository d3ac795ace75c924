package policy

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limit is one bound on the units that may pass in a window. A policy has one or several.
type Limit struct {
	Name      string // [a-z0-9][a-z0-9._-]{0,62}; empty: "<algorithm>-<window>"
	Algorithm string // a name from Algorithms
	Limit     int64  // units in a window, 0 to MaxLimit; 0 denies always. Of a conversion: sent units that no confirmed unit covers
	// Max makes Limit a default: a demand may bring a limit of its own, from 1 to Max. Zero: no demand may.
	Max int64 `json:",omitempty"`
	// By has the Limit of identifiers with a number of their own, at most MaxByValues.
	By       map[string]int64 `json:",omitempty"`
	Window   time.Duration    // MinWindow to MaxWindow, whole milliseconds; beside a Calendar its Length, or zero. Of concurrent: the hold
	Calendar Calendar         // fixed-window only: windows follow it; zero: all have the same length, from the Unix epoch on
	Timezone string           // of the Calendar, a name of the IANA database; zero: UTC
	Buckets  int              // sliding-window only, MinBuckets to MaxBuckets; zero: DefaultBuckets
	Rounding Rounding         // sliding-tail only; zero: RoundDown
	Burst    int64            // token-bucket only: tokens it holds, up to MaxLimit; zero: Limit
	Shadow   bool             `json:",omitempty"` // it reports what it would deny, and denies nothing; not of buckets
	Until    Until            `json:",omitempty"` // the event that ends a unit's counting early; zero: none

	MinConversion int `json:",omitempty"` // conversion only: percent of units to be confirmed, 1 to 100; zero: DefaultMinConversion
	// Unconfirmed makes the Limit of a conversion a bound on the units that no confirmed unit covers. Without it, Limit is
	// the number of units that may be sent before too small a confirmed share denies.
	Unconfirmed bool          `json:",omitempty"`
	Probe       time.Duration `json:",omitempty"` // conversion only: least time from the last unit to a probe, to Window; zero: no probes
}

// Bounds of a limit's fields.
const (
	MaxLimit    = 1e15                // units: products with a window in ms still fit 128 bits
	MaxLogLimit = 10_000              // units of a sliding log: each is a row that every decision reads
	MaxCost     = 1e12                // units of one request
	MinWindow   = time.Second         // Cassandra's TTL counts whole seconds
	MaxWindow   = 31 * 24 * time.Hour // the longest table of events

	MinBuckets     = 2   // with one bucket, a sliding window would be a fixed one
	MaxBuckets     = 100 // each is a counter that every decision reads
	DefaultBuckets = 10
)

// Rounding is the direction in which a sliding tail rounds a fraction of a unit.
type Rounding string

// The values of Rounding.
const (
	RoundDown Rounding = "down" // floor(used + cost) ≤ limit
	RoundUp   Rounding = "up"   // ceil(used + cost) ≤ limit
)

// LimitID identifies the counts of one limit of a key: by name, algorithm and window, and by the time zone if the window
// follows a calendar. Limits with the same LimitID share their counts, so a reload keeps counts if these stay the same.
type LimitID string

// ID returns the limit's LimitID.
func (l Limit) ID() LimitID {
	window := strconv.FormatInt(l.Window.Milliseconds(), 10)
	if l.Calendar != "" {
		window = string(l.Calendar) + "/" + cmp.Or(l.Timezone, defaultZone)
	}
	return LimitID(l.Name + "/" + l.Algorithm + "/" + window)
}

// WithDefaults returns l with every default filled in.
func (l Limit) WithDefaults() Limit {
	if l.Calendar != "" {
		l.Window = cmp.Or(l.Window, l.Calendar.Length())
		setDefault(&l.Timezone, defaultZone)
	}
	if l.Name == "" {
		l.Name = l.Algorithm + "-" + l.WindowName()
	}
	if l.Algorithm == SlidingTail.Name {
		setDefault(&l.Rounding, RoundDown)
	}
	if l.Algorithm == SlidingWindow.Name && l.Buckets == 0 {
		l.Buckets = DefaultBuckets
	}
	if l.Algorithm == Conversion.Name && l.MinConversion == 0 {
		l.MinConversion = DefaultMinConversion
	}
	if l.Algorithm == TokenBucket.Name && l.Burst == 0 && len(l.By) == 0 { // with By, the default is each identifier's own number
		l.Burst = l.Limit
	}
	return l
}

// Capacity returns the most units that l can hold at once, which is the largest
// cost that can ever pass: a token bucket's burst, any other's limit.
func (l Limit) Capacity() int64 {
	if l.Algorithm == TokenBucket.Name && l.Burst != 0 {
		return l.Burst
	}
	return l.Limit
}

// WindowName returns l's window as policy files have it: a calendar's name, or FormatWindow's text.
func (l Limit) WindowName() string {
	if l.Calendar != "" {
		return string(l.Calendar)
	}
	return FormatWindow(l.Window)
}

// InCell reports whether l counts in a cell, which changes by compare-and-set only. Buckets and conversions do.
func (l Limit) InCell() bool {
	algorithm, known := AlgorithmByName(l.Algorithm)
	return known && algorithm.Memory == MemoryCells
}

// Longest returns the longest time that a window of l can last.
func (l Limit) Longest() time.Duration {
	if l.Calendar != "" {
		return l.Window + turnedBack
	}
	return l.Window
}

func (l Limit) check(path string, found *problems) {
	if !limitName.MatchString(l.Name) {
		found.add(path+".name", "%q is not a limit name: use %s", l.Name, nameRule)
	}
	l.checkWindow(path, found)
	algorithm, known := AlgorithmByName(l.Algorithm)
	l.checkNumber(path, found)
	l.checkBy(path, found)
	l.checkMax(path, found)
	if !known {
		found.add(path+".algorithm", "%s", unknownAlgorithm(l.Algorithm))
		return
	}
	if l.Rounding != "" && algorithm != SlidingTail {
		found.add(path+".rounding", "only %s rounds: remove it from a %s", SlidingTail.Name, l.Algorithm)
	}
	if l.Burst != 0 && algorithm != TokenBucket {
		found.add(path+".burst", "only a %s has a burst: remove it from a %s", TokenBucket.Name, l.Algorithm)
	}
	l.checkConfirmed(path, algorithm, found)
	if l.Shadow && algorithm.Memory == MemoryCells {
		found.add(path+".shadow", "a %s in shadow never drains while callers exceed it: "+
			"give it a policy of its own with mode: shadow, and ask for both in one call", l.Algorithm)
	}
	if l.Buckets != 0 && algorithm != SlidingWindow {
		found.add(path+".buckets", "only a %s has buckets: remove it from a %s", SlidingWindow.Name, l.Algorithm)
	}
}

// checkNumber adds the problems of l's number of units, alone and with its algorithm.
func (l Limit) checkNumber(path string, found *problems) {
	if l.Limit < 0 || l.Limit > MaxLimit {
		found.add(path+".limit", "%d is out of range: use 0 (denies always) to %d", l.Limit, int64(MaxLimit))
	}
	if algorithm, known := AlgorithmByName(l.Algorithm); known && algorithm.check != nil {
		algorithm.check(l, path, found)
	}
}

func (l Limit) checkWindow(path string, found *problems) {
	if l.IsConcurrent() {
		l.checkHold(path, found)
		return
	}
	if l.Calendar != "" {
		l.checkCalendar(path, found)
		return
	}
	if l.Timezone != "" {
		found.add(path+".timezone", "a window of %s starts everywhere at once, at a multiple of its length in UTC: "+
			"remove it, or use window: day, week or month", FormatWindow(l.Window))
	}
	switch {
	case l.Window < MinWindow || l.Window > MaxWindow:
		found.add(path+".window", "%s is out of range: use 1s to 31d", FormatWindow(l.Window))
	case l.Window%time.Millisecond != 0:
		found.add(path+".window", "%v is not whole milliseconds", l.Window)
	}
}

func (l Limit) checkCalendar(path string, found *problems) {
	algorithm, known := AlgorithmByName(l.Algorithm)
	switch length := l.Calendar.Length(); {
	case length == 0:
		found.add(path+".window", "%q is not a calendar: use day, week or month", l.Calendar)
	case l.Window != length:
		found.add(path+".window", "%s is not a %s: leave it out", FormatWindow(l.Window), l.Calendar)
	case known && algorithm != FixedWindow:
		found.add(path+".window", "a %s counts over one length of time, and calendar %ss differ in length: "+
			"use a %s, or a duration such as %s", l.Algorithm, l.Calendar, FixedWindow.Name, FormatWindow(length))
	}
	if _, err := LoadZone(l.Timezone); err != nil {
		found.add(path+".timezone", "%q is not a time zone: use a name of the IANA database such as Europe/Berlin, or UTC", l.Timezone)
	}
}

func unknownAlgorithm(name string) string {
	return fmt.Sprintf("%q is not an algorithm: use one of %s", name, strings.Join(Algorithms(), ", "))
}

// ParseWindow reads a window: a Go duration that may also count days, such as
// "90s", "1h30m", "1d" or "1d12h".
func ParseWindow(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not a window: use a duration such as 30s, 15m, 1h or 7d", text)
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, wrong
	}
	d := time.Duration(n) * 24 * time.Hour
	if rest == "" && found {
		return d, nil
	}
	more, err := time.ParseDuration(rest)
	if err != nil || more < 0 || strings.HasPrefix(rest, "+") {
		return 0, wrong
	}
	return d + more, nil
}

// FormatWindow returns d as a text that ParseWindow reads, without zero parts: 24 hours is "1d", 90 minutes "1h30m".
func FormatWindow(d time.Duration) string {
	const day = 24 * time.Hour
	if d < day || d%time.Second != 0 {
		return trimZeroParts(d.String())
	}
	text := strconv.FormatInt(int64(d/day), 10) + "d"
	if rest := d % day; rest != 0 {
		text += trimZeroParts(rest.String())
	}
	return text
}

func trimZeroParts(text string) string {
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
