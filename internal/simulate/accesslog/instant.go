package accesslog

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

var errTime = errors.New("no time that is known: use 10/Oct/2026:13:55:36 +0200, RFC 3339, 2026-10-10 13:55:36 in UTC, " +
	"or seconds, milliseconds, microseconds or nanoseconds since 1970")

// commonStamp is a time of the common log format, without a zone, as package time writes layouts.
const commonStamp = "02/Jan/2006:15:04:05"

// zones are the zones that may follow a time. None is UTC.
var zones = []string{" Z0700", "Z07:00", "", "Z0700", "Z07", " Z07:00", " Z07", "UTC", " UTC", "GMT", " GMT"}

// The layouts of times, in each zone. A fraction of a second may follow the seconds of each.
var (
	commonLayouts = layoutsOf(commonStamp)
	isoLayouts    = layoutsOf("2006-01-02T15:04:05")
	spacedLayouts = layoutsOf("2006-01-02 15:04:05")
)

func layoutsOf(stamp string) (all []string) {
	for _, zone := range zones {
		all = append(all, stamp+zone)
	}
	return all
}

// parseInstant parses a time in a form of logs: the common log format, RFC 3339, perhaps with a space in place of its
// T, or seconds, milliseconds, microseconds or nanoseconds since the Unix epoch. Without a zone it is UTC.
func parseInstant(text []byte) (store.Instant, error) {
	text = bytes.Trim(text, "[] ")
	stamp, layouts := string(text), isoLayouts
	switch {
	case looksCommon(text):
		layouts = commonLayouts
	case len(text) < len("2006-01-02 15:04:05") || text[4] != '-':
		return parseEpoch(text)
	case text[10] == ' ':
		layouts = spacedLayouts
	default:
		stamp = strings.ToUpper(stamp) // RFC 3339 may have t and z
	}
	for _, layout := range layouts {
		if at, err := time.ParseInLocation(layout, stamp, time.UTC); err == nil && at.Unix() >= 0 {
			return store.Instant(at.UnixMilli()), nil
		}
	}
	return 0, errTime
}

// looksCommon reports whether text begins like a time of the common log format.
func looksCommon(text []byte) bool {
	return len(text) >= len(commonStamp) && text[2] == '/' && text[6] == '/' && text[11] == ':' && text[14] == ':' && text[17] == ':'
}

// sinceMillis is the least number that is read as milliseconds, and a thousand times that as microseconds; as seconds
// it would be the year 5138. latest is the latest time, in milliseconds, so that a date written as a number, such as
// 20261010135536, is an error.
const (
	sinceMillis = 1e11
	latest      = 7_258_118_400_000 // 2200-01-01
)

func parseEpoch(text []byte) (store.Instant, error) {
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || n < 0 || n != n || n > sinceMillis*1e9 {
		return 0, errTime
	}
	if n < sinceMillis {
		n *= float64(time.Second / time.Millisecond)
	}
	for n >= sinceMillis*1000 {
		n /= 1000
	}
	if n >= latest {
		return 0, errTime
	}
	return store.Instant(n), nil
}
