package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// who asks.
type who int

const (
	honest who = iota
	pumper
	stuffer
	whoCount
)

var whoNames = [whoCount]string{"honest users", "pumping attack", "credential stuffer"}

// ask is one request for a code.
type ask struct {
	at                     time.Time
	who                    who
	country                string
	phone, device, address string
	cost                   int64 // of the message, in thousandths of a EUR
	signup                 int   // of an honest user: which one
}

// monday is when the week begins.
var monday = time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)

const week = 7 * 24 * time.Hour

// country is where honest users are: how many sign up in a week, and what numbers look like.
type country struct {
	code    string
	signups int
	begins  []string // of numbers
	digits  int      // that follow
}

var countries = []country{
	{"DE", 28_000, []string{"+49151", "+49152", "+49160", "+49170", "+49171", "+49172", "+49174", "+49176", "+49179"}, 8},
	{"AT", 4_200, []string{"+43650", "+43660", "+43664", "+43676", "+43699"}, 7},
	{"CH", 2_800, []string{"+4176", "+4177", "+4178", "+4179"}, 7},
	{"PL", 2_100, []string{"+4850", "+4851", "+4860", "+4869", "+4872", "+4878", "+4888"}, 7},
	{"LV", 420, []string{"+3712"}, 7},
}

// number returns a number of c.
func (c *country) number(r *rand.Rand) string {
	return c.begins[r.IntN(len(c.begins))] + digits(r, c.digits)
}

func digits(r *rand.Rand, n int) string {
	most := int(math.Pow10(n))
	return fmt.Sprintf("%0*d", n, r.IntN(most))
}

// aWeek returns what is asked in a week, in order.
func aWeek(seed uint64) []ask {
	r := rand.New(rand.NewPCG(seed, 0))
	var asks []ask
	for i := range countries {
		for range countries[i].signups {
			asks = append(asks, signUp(r, &countries[i], len(asks))...)
		}
	}
	asks = append(asks, together(r, len(asks))...)
	asks = append(asks, pump(r)...)
	asks = append(asks, stuff(r)...)
	slices.SortStableFunc(asks, func(a, b ask) int { return a.at.Compare(b.at) })
	return asks
}

// signUp is one honest user, who asks again if no code arrives: one in seven does, once the page
// allows it. Every fifth is behind an address that a carrier or an office shares.
func signUp(r *rand.Rand, c *country, id int) []ask {
	first := ask{
		at: daytime(r), who: honest, country: c.code, phone: c.number(r), device: fmt.Sprintf("device-%d", id),
		address: fmt.Sprintf("%d.%d.%d.%d", 78+r.IntN(16), r.IntN(256), r.IntN(256), 1+r.IntN(254)), signup: id,
	}
	if r.IntN(5) == 0 {
		first.address = fmt.Sprintf("203.0.%d.%d", r.IntN(64), 1+r.IntN(8))
	}
	asks := []ask{first}
	for again := first; r.IntN(7) == 0 && len(asks) < 4; asks = append(asks, again) {
		again.at = again.at.Add(time.Minute + time.Second + time.Duration(r.IntN(120))*time.Second)
	}
	return asks
}

// together are honest users who look like an attack: a class that signs up from its school within
// an hour, and a shop that signs up its customers on one tablet.
func together(r *rand.Rand, id int) (asks []ask) {
	germany := &countries[0]
	for n := range class {
		pupil := signUp(r, germany, id+n)[0]
		pupil.at = monday.Add(33*time.Hour + time.Duration(r.IntN(50))*time.Minute)
		pupil.address = "192.0.2.1"
		asks = append(asks, pupil)
	}
	for n := range shop {
		customer := signUp(r, germany, id+class+n)[0]
		customer.at = monday.Add(time.Duration(n%6)*24*time.Hour + 9*time.Hour + time.Duration(n/6)*40*time.Minute)
		customer.device, customer.address = "tablet", "192.0.2.2"
		asks = append(asks, customer)
	}
	return asks
}

// How many sign up together.
const (
	class = 40
	shop  = 72 // twelve a day, and none on Sunday
)

// daytime returns a moment of the week: few are awake at night, most in the evening.
func daytime(r *rand.Rand) time.Time {
	for {
		at := time.Duration(r.Int64N(int64(week)))
		hour := (at % (24 * time.Hour)).Hours()
		if r.Float64() < .55-.45*math.Cos((hour-5)/24*2*math.Pi) {
			return monday.Add(at)
		}
	}
}

// pumped are the prefixes of the attack, 10,000 numbers of each: one in a country where users are,
// one where the messages cost most.
var pumped = []struct{ country, begins string }{{"LV", "+3712555"}, {"AZ", "+99450555"}}

// pump asks twice for each of 20,000 numbers within two days, from 4,000 rented addresses, and as
// another device each time.
func pump(r *rand.Rand) (asks []ask) {
	const numbers, addresses = 10_000, 4_000
	from := monday.Add(2*24*time.Hour + 20*time.Hour)
	for _, p := range pumped {
		for n := range numbers {
			for range 2 {
				rented := r.IntN(addresses)
				asks = append(asks, ask{
					at:  from.Add(time.Duration(r.Int64N(int64(48 * time.Hour)))),
					who: pumper, country: p.country, phone: p.begins + fmt.Sprintf("%04d", n),
					device:  fmt.Sprintf("made-up-%d", r.Uint64()),
					address: fmt.Sprintf("45.%d.%d.%d", rented%200, rented/200, 1+rented%250),
				})
			}
		}
	}
	return asks
}

// stuff tries 30,000 numbers of a stolen list within a day and a half, by 40 machines of two networks.
func stuff(r *rand.Rand) (asks []ask) {
	const numbers, machines = 30_000, 40
	from := monday.Add(4 * 24 * time.Hour)
	for range numbers {
		c, machine := &countries[r.IntN(4)], r.IntN(machines)
		asks = append(asks, ask{
			at: from.Add(time.Duration(r.Int64N(int64(36 * time.Hour)))), who: stuffer, country: c.code, phone: c.number(r),
			device: fmt.Sprintf("bot-%d", machine), address: fmt.Sprintf("198.51.%d.%d", 100+machine%2, 1+machine/2),
		})
	}
	return asks
}
