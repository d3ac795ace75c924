package accesslog

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

var errTime = errors.New("no time that is known: use 10/Oct/2026:13:55:36 +0200, RFC 3339, 2026-10-10 13:55:36 in UTC, " +
	"or seconds, milliseconds, microseconds or nanoseconds since 1970")

// parseInstant parses a time in a form of logs: the common log format, RFC 3339, perhaps with a space in place of its
// T, or seconds, milliseconds, microseconds or nanoseconds since the Unix epoch. Without a zone it is UTC.
func parseInstant(text []byte) (store.Instant, error) {
	text = bytes.Trim(text, "[] ")
	switch {
	case looksCommon(text):
		return parseCommon(text)
	case len(text) >= len("2006-01-02T15:04:05") && text[4] == '-':
		return parseISO(text)
	}
	return parseEpoch(text)
}

// months are the names of the months, three letters each.
const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

// commonStamp is a time of the common log format, without a zone.
const commonStamp = "10/Oct/2000:13:55:36"

// looksCommon reports whether text begins like a time of the common log format.
func looksCommon(text []byte) bool {
	return len(text) >= len(commonStamp) && text[2] == '/' && text[6] == '/' && text[11] == ':' && text[14] == ':' && text[17] == ':'
}

func parseCommon(t []byte) (store.Instant, error) {
	month := bytes.Index([]byte(months), t[3:6])
	if month < 0 || month%3 != 0 {
		return 0, errTime
	}
	d := digits{text: t}
	return d.instant(d.at(7, 4), month/3+1, d.at(0, 2), 12, t[len(commonStamp):])
}

func parseISO(t []byte) (store.Instant, error) {
	if t[7] != '-' || t[10] != 'T' && t[10] != ' ' && t[10] != 't' || t[13] != ':' || t[16] != ':' {
		return 0, errTime
	}
	d := digits{text: t}
	return d.instant(d.at(0, 4), d.at(5, 2), d.at(8, 2), 11, t[len("2006-01-02T15:04:05"):])
}

// digits parses numbers at positions of a text.
type digits struct {
	text  []byte
	wrong bool // there was another character
}

func (d *digits) at(place, length int) (n int) {
	for _, c := range d.text[place : place+length] {
		if c < '0' || c > '9' {
			d.wrong = true
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// instant returns the instant of a date and the time of day that begins at clock. rest is the text after its seconds.
func (d *digits) instant(year, month, day, clock int, rest []byte) (store.Instant, error) {
	hour, minute, second := d.at(clock, 2), d.at(clock+3, 2), d.at(clock+6, 2)
	millis, rest := fraction(rest)
	zone, ok := zoneOf(rest)
	date := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if !ok || d.wrong || date.Month() != time.Month(month) || date.Day() != day || hour > 23 || minute > 59 || second > 60 {
		return 0, errTime
	}
	seconds := date.Unix() + int64(hour*3600+minute*60+second-zone)
	if year < 1970 || seconds < 0 {
		return 0, errTime
	}
	return store.Instant(seconds*1000 + int64(millis)), nil
}

// fraction returns the milliseconds at the start of text, after a point or a comma, and the rest.
func fraction(text []byte) (millis int, rest []byte) {
	if len(text) == 0 || text[0] != '.' && text[0] != ',' {
		return 0, text
	}
	rest = text[1:]
	for n := 100; len(rest) > 0 && '0' <= rest[0] && rest[0] <= '9'; rest = rest[1:] {
		millis += int(rest[0]-'0') * n
		n /= 10
	}
	return millis, rest
}

// zoneOf parses a zone, such as +0200, +02:00, +02, Z, UTC or nothing, to seconds east of UTC.
func zoneOf(text []byte) (seconds int, ok bool) {
	text = bytes.TrimLeft(text, " ")
	switch string(text) {
	case "", "Z", "z", "UTC", "GMT":
		return 0, true
	}
	d := digits{text: text}
	switch {
	case text[0] != '+' && text[0] != '-':
		return 0, false
	case len(text) == len("+02"):
		seconds = d.at(1, 2) * 3600
	case len(text) == len("+0200"):
		seconds = d.at(1, 2)*3600 + d.at(3, 2)*60
	case len(text) == len("+02:00") && text[3] == ':':
		seconds = d.at(1, 2)*3600 + d.at(4, 2)*60
	default:
		return 0, false
	}
	if text[0] == '-' {
		seconds = -seconds
	}
	return seconds, !d.wrong && seconds > -86400 && seconds < 86400
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
