package accesslog

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

var errTime = errors.New("no time that is known: use 10/Oct/2026:13:55:36 +0200, RFC 3339, 2026-10-10 13:55:36 in UTC, " +
	"or seconds or milliseconds since 1970")

// parseInstant reads a time as logs have it: of the common log format, RFC 3339, with a space in
// place of its T, or seconds or milliseconds since the Unix epoch. Without a zone it is UTC.
func parseInstant(text []byte) (store.Instant, error) {
	text = bytes.Trim(text, "[] ")
	switch {
	case len(text) == len("10/Oct/2000:13:55:36 -0700") && text[2] == '/':
		return parseCommon(text)
	case len(text) >= len("2006-01-02T15:04:05") && text[4] == '-':
		return parseISO(text)
	}
	return parseEpoch(text)
}

// months are the names of the months, three letters each.
const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

func parseCommon(t []byte) (store.Instant, error) {
	month := bytes.Index([]byte(months), t[3:6])
	if month < 0 || month%3 != 0 || t[6] != '/' || t[11] != ':' || t[20] != ' ' {
		return 0, errTime
	}
	d := digits{text: t}
	day, year := d.at(0, 2), d.at(7, 4)
	hour, minute, second := d.at(12, 2), d.at(15, 2), d.at(18, 2)
	zone := (d.at(22, 2)*60 + d.at(24, 2)) * 60
	if t[21] == '-' {
		zone = -zone
	}
	return d.instant(year, month/3+1, day, hour, minute, second, 0, zone)
}

func parseISO(t []byte) (store.Instant, error) {
	if t[7] != '-' || t[10] != 'T' && t[10] != ' ' || t[13] != ':' || t[16] != ':' {
		return 0, errTime
	}
	d := digits{text: t}
	year, month, day := d.at(0, 4), d.at(5, 2), d.at(8, 2)
	hour, minute, second := d.at(11, 2), d.at(14, 2), d.at(17, 2)
	rest, millis := t[19:], 0
	if len(rest) > 0 && (rest[0] == '.' || rest[0] == ',') {
		rest = rest[1:]
		for n := 100; len(rest) > 0 && '0' <= rest[0] && rest[0] <= '9'; rest = rest[1:] {
			millis += int(rest[0]-'0') * n
			n /= 10
		}
	}
	zone := 0
	switch {
	case len(rest) == 0 || len(rest) == 1 && rest[0] == 'Z':
	case len(rest) >= 5 && (rest[0] == '+' || rest[0] == '-'):
		z := digits{text: rest}
		zone = (z.at(1, 2)*60 + z.at(len(rest)-2, 2)) * 60
		if d.wrong = d.wrong || z.wrong; rest[0] == '-' {
			zone = -zone
		}
	default:
		return 0, errTime
	}
	return d.instant(year, month, day, hour, minute, second, millis, zone)
}

// digits reads numbers at places of a text.
type digits struct {
	text  []byte
	wrong bool // something else was there
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

// instant puts together what was read; zone is in seconds east of UTC.
func (d *digits) instant(year, month, day, hour, minute, second, millis, zone int) (store.Instant, error) {
	if d.wrong || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60 {
		return 0, errTime
	}
	seconds := daysFromCivil(year, month, day)*86400 + int64(hour*3600+minute*60+second-zone)
	return store.Instant(seconds*1000 + int64(millis)), nil
}

// daysFromCivil returns the days since 1970-01-01 of a date of the Gregorian calendar (Hinnant,
// "chrono-Compatible Low-Level Date Algorithms"), which time.Date knows too, more slowly.
func daysFromCivil(year, month, day int) int64 {
	if month <= 2 {
		year--
	}
	era := year / 400
	ofEra := year - era*400
	ofYear := (153*((month+9)%12)+2)/5 + day - 1
	return int64(era*146097 + ofEra*365 + ofEra/4 - ofEra/100 + ofYear - 719468)
}

// sinceMillis is from where on a number means milliseconds: as seconds it were the year 5138.
const sinceMillis = 1e11

func parseEpoch(text []byte) (store.Instant, error) {
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || n < 0 || n != n || n > sinceMillis*1000 {
		return 0, errTime
	}
	if n < sinceMillis {
		n *= float64(time.Second / time.Millisecond)
	}
	return store.Instant(n), nil
}
