package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultMinConversion is the default of MinConversion, in percent. Honest users confirm a far larger share of their codes.
const DefaultMinConversion = 20

// ConversionBlocks is the number of blocks of a conversion's window. They expire one at a time.
const ConversionBlocks = 10

// Until is the event that ends the counting of a limit's units before their window ends. With the zero Until, only a
// refund does.
type Until string

// UntilConfirmed counts units until their receipt is confirmed.
const UntilConfirmed Until = "confirmed"

// Conversion denies while too small a share of the sent units is confirmed. Its Limit is the number of units in a
// window that no confirmation covers.
var Conversion = &Algorithm{Name: "conversion", Memory: MemoryCells, check: checkConversion}

// GoesByConfirmation reports whether l depends on confirmations.
func (l *Limit) GoesByConfirmation() bool { return l.Until != "" || l.Algorithm == Conversion.Name }

// Converts reports whether all limits of p are conversions. Only such a policy, if derived, can be left out when a call is
// decided anew.
func (p *Policy) Converts() bool {
	return !slices.ContainsFunc(p.Limits, func(l Limit) bool { return l.Algorithm != Conversion.Name })
}

func checkConversion(l Limit, path string, found *problems) {
	if l.MinConversion < 1 || l.MinConversion > 100 {
		found.add(path+".min_conversion", "%d%% is out of range: use 1%% to 100%%", l.MinConversion)
	}
	if l.Unconfirmed && l.Probe != 0 {
		found.add(path+".probe", "probes would exceed the bound on unconfirmed units: remove probe, or use after instead of unconfirmed")
	}
	if l.Window%(ConversionBlocks*time.Millisecond) != 0 {
		found.add(path+".window", "%v does not divide into %d blocks of whole milliseconds: use one that does, such as %s",
			l.Window, ConversionBlocks, FormatWindow(max(MinWindow, l.Window.Truncate(time.Second))))
	}
	if l.Probe != 0 && (l.Probe < time.Millisecond || l.Probe > l.Window || l.Probe%time.Millisecond != 0) {
		found.add(path+".probe", "one each %v is out of range: use one in 1ms to one in %s", l.Probe, FormatWindow(l.Window))
	}
}

// checkConfirmed adds the problems of l's fields about confirmations.
func (l Limit) checkConfirmed(path string, algorithm *Algorithm, found *problems) {
	if algorithm == Conversion {
		if l.Until != "" {
			found.add(path+".until", "a %s depends on confirmations in any case: remove until", Conversion.Name)
		}
		return
	}
	if l.Until != "" {
		oneOf(found, path+".until", l.Until, UntilConfirmed)
		if algorithm.Memory == MemoryCells {
			found.add(path+".until", "it is not known which units of a %s have drained: use a %s, or another algorithm",
				l.Algorithm, SlidingWindow.Name)
		}
	}
	if l.MinConversion != 0 {
		found.add(path+".min_conversion", "only a %s has it: remove it from a %s", Conversion.Name, l.Algorithm)
	}
	if l.Unconfirmed {
		found.add(path+".unconfirmed", "only a %s has it: write limit", Conversion.Name)
	}
	if l.Probe != 0 {
		found.add(path+".probe", "only a %s has probes: remove it from a %s", Conversion.Name, l.Algorithm)
	}
}

// checkConfirmed refuses limits that count until confirmed beside limits that do not, because a policy's units are one
// entry of a receipt, and one row of a log, for all of its limits.
func (p Policy) checkConfirmed(found *problems) {
	until := slices.IndexFunc(p.Limits, func(l Limit) bool { return l.Until != "" })
	always := slices.IndexFunc(p.Limits, func(l Limit) bool { return l.Until == "" && !l.InCell() })
	if until >= 0 && always >= 0 {
		found.add(fmt.Sprintf("limits[%d].until", until), "limits[%d] also counts confirmed units, and both would count the same ones: "+
			"write it for all limits, or give this one a policy of its own, and ask for both in one call", always)
	}
}

// ParseProbe reads a number of probes in a time, such as "1/1m", and returns the time between two probes.
func ParseProbe(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not a probe: use a number and a time, such as 1/1m", text)
	number, window, found := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || n == 0 || !found {
		return 0, wrong
	}
	in, err := ParseWindow(window)
	switch {
	case err != nil || in == 0:
		return 0, wrong
	case in%(time.Duration(n)*time.Millisecond) != 0:
		return 0, fmt.Errorf("%q does not leave whole milliseconds from one probe to the next: write one in some time, such as 1/%s",
			text, FormatWindow(max(time.Millisecond, (in/time.Duration(n)).Truncate(time.Millisecond))))
	}
	return in / time.Duration(n), nil
}

// FormatProbe returns d as a text that ParseProbe reads.
func FormatProbe(d time.Duration) string { return "1/" + FormatWindow(d) }

// ParseShare reads a percentage such as "20%".
func ParseShare(text string) (percent int, err error) {
	number, found := strings.CutSuffix(text, "%")
	percent, err = strconv.Atoi(number)
	if err != nil || !found || percent < 1 || percent > 100 || number != strconv.Itoa(percent) {
		return 0, fmt.Errorf("%q is not a percentage: use a whole one from 1%% to 100%%, such as 20%%", text)
	}
	return percent, nil
}
