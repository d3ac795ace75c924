package encode

import (
	"strconv"
	"strings"
	"time"
)

// ForPeople returns milliseconds in a form such as 1d2h3m4s: below a second exactly, else in whole seconds, rounded up
// so that no caller retries too early.
func ForPeople(milliseconds int64) string {
	if milliseconds < 1000 {
		return strconv.FormatInt(milliseconds, 10) + "ms"
	}
	seconds := milliseconds / 1000
	if milliseconds%1000 > 0 {
		seconds++
	}
	var text strings.Builder
	for _, unit := range []struct {
		name    string
		seconds int64
	}{{"d", 24 * 60 * 60}, {"h", 60 * 60}, {"m", 60}, {"s", 1}} {
		if n := seconds / unit.seconds; n > 0 {
			text.WriteString(strconv.FormatInt(n, 10) + unit.name)
		}
		seconds %= unit.seconds
	}
	return text.String()
}

// Milliseconds returns d in whole milliseconds, rounded up so that no caller retries too early.
func Milliseconds(d time.Duration) int64 { return ceil(d, time.Millisecond) }

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return ceil(d, time.Second) }

func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// ToMilliseconds returns t in the form of answers: UTC, in whole milliseconds.
func ToMilliseconds(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
