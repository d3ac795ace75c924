package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// attack is one way of pumping: codes for numbers in ranges of some countries, over a time.
type attack struct {
	name      string
	countries []string
	ranges    int           // in each country
	each      int           // codes requested in each range
	over      time.Duration // duration
	turns     bool          // the countries are attacked one after the other, instead of at the same time
	networks  int           // networks that it uses, each time as another device
	own       int           // the attacker's own phones, each with a device and a network, which enter one code before the attack
	quiet     time.Duration // between that and the attack
	crowd     int           // more new users in each attacked country, in the attacked ranges
	among     int           // more users in its first country, in all ranges, as many as on the day before
	most      int           // the most codes that the attacker gets in all
}

const day = 24 * time.Hour

// monday is the beginning of all attacks.
var monday = time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)

// entersAfter is how long a person takes to enter a code.
const entersAfter = 30 * time.Second

// digits returns so many digits at random.
func digits(r *rand.Rand, n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('0' + r.IntN(10))
	}
	return string(text)
}

// attacks are all attacks. They differ in nothing else.
var attacks = []attack{
	{name: "burst: 1,000 in a row a country, an hour", countries: three, ranges: 1, each: 1000, over: time.Hour, networks: 50, most: 30},
	{name: "30 ranges × 100, a day", countries: three, ranges: 10, each: 100, over: day, networks: 50, most: 70},
	{name: "75 ranges × 40, two days", countries: three, ranges: 25, each: 40, over: 2 * day, networks: 50, most: 125},
	{name: "300 ranges × 10, a day", countries: three, ranges: 100, each: 10, over: day, networks: 50, most: 70},
	{name: "3 ranges, one each 61 s, 17 h", countries: three, ranges: 1, each: 1000, over: 17 * time.Hour, networks: 50, most: 35},
	{
		name:      "ten ranges with users, one each 2 min, a day",
		countries: three[:1], ranges: 10, each: 720, over: day, networks: 50, crowd: 80, most: 30,
	},
	{
		name:      "among 3,000 users of one country, a day",
		countries: []string{"DE"}, ranges: 100, each: 30, over: day, networks: 50, among: 3000, most: 120,
	},
	{name: "twelve countries by turns, a day", countries: names(), ranges: 5, each: 50, over: day, turns: true, networks: 50, most: 130},
	{name: "40 phones that confirm first, a day", countries: three, ranges: 10, each: 100, over: day, networks: 50, own: 40, most: 190},
	{
		name:      "the same after a quiet month",
		countries: three, ranges: 10, each: 100, over: day, networks: 50, own: 40, quiet: 30 * day, most: 190,
	},
	{
		name:      "a stolen list of 3,000 numbers, two networks",
		countries: []string{"DE"}, ranges: 1000, each: 3, over: day, networks: 2, among: 500, most: 10,
	},
	{name: "from 5,000 networks, a day", countries: three, ranges: 10, each: 100, over: day, networks: 5000, crowd: 40, most: 90},
}

var three = []string{"LV", "CZ", "PT"}

// place is a range of numbers: their prefix, and the number of further digits.
type place struct {
	country, begins string
	digits          int
}

// places are the users' countries: the prefixes of their mobile numbers, and the number of further digits.
var places = []place{
	{"DE", "+49151", 8}, {"AT", "+43664", 7}, {"CH", "+4179", 7}, {"PL", "+4860", 7}, {"LV", "+3712", 7}, {"FR", "+336", 8},
	{"GB", "+4474", 8}, {"ES", "+346", 8}, {"IT", "+39347", 7}, {"NL", "+316", 8}, {"CZ", "+42060", 7}, {"PT", "+35191", 7},
}

func names() (all []string) {
	for i := range places {
		all = append(all, places[i].country)
	}
	return all
}

// visitor is a caller that asks for codes, and enters the last one.
type visitor struct {
	phone, device, address, country string
	at                              time.Time
	kind                            kind
	enters                          bool
	tries                           int
	served                          bool
}

type kind int

const (
	newElsewhere kind = iota // in a country that is not attacked
	newThere                 // in an attacked one
	knownThere               // in an attacked one, by number, device or network
	pumped
	ownPhone // the attacker's own
	wasThere // an earlier visit of a known person
)

// patience is when a denied person asks again before giving up.
var patience = []time.Duration{61 * time.Second, 10 * time.Minute, 2 * time.Hour}

// outcome is the outcome of an attack.
type outcome struct {
	attack
	asked     int                    // codes that the attacker requested
	sent      int                    // codes that it got
	worst     int                    // the most of them in one country within a day
	confirmed map[string][]time.Time // by country
	ownIn     map[string]int         // phones of the attacker's own, by country
	people    [pumped]int            // number of people of each kind
	without   [pumped]int            // how many of them got no code
	byCountry map[string][]time.Time
}

// The numbers of sms-pumping.yaml for a country, which the page's formula uses.
const (
	unconfirmed   = 15
	minConversion = 72 // percent
	newPerDay     = 10
	window        = 27 * time.Hour
	boughtByOwn   = 2 // codes for a phone that has confirmed before: one for its device, and one for its network
)

// over returns a country in which the attacker got more codes within a day than the page's formula says if users had entered
// all of theirs, with both numbers, or "".
func (o *outcome) over() (country string, got, bound int) {
	for country, at := range o.byCountry {
		first := 0
		for i := range at {
			for at[i].Sub(at[first]) >= day {
				first++
			}
			confirmed := 0
			for _, then := range o.confirmed[country] {
				if age := at[i].Sub(then); age >= 0 && age < window {
					confirmed++
				}
			}
			bound := unconfirmed + confirmed*(100-minConversion)/minConversion + newPerDay + boughtByOwn*o.ownIn[country]
			if got := i - first + 1; got > bound {
				return country, got, bound
			}
		}
	}
	return "", 0, 0
}

// mostWithin returns the most of the sorted instants that lie within a time.
func mostWithin(at []time.Time, d time.Duration) (most int) {
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// mobiles makes possible mobile numbers.
type mobiles struct {
	*rand.Rand
	read policy.ReadIdentifier
}

func newMobiles(seed uint64) (*mobiles, error) {
	read, err := identifier.Reader(&policy.Policy{
		Normalize: policy.Normalize{Form: policy.FormE164}, NumberTypes: policy.Choice{Allow: []string{"mobile"}},
	})
	return &mobiles{rand.New(rand.NewPCG(seed, 7)), read}, err
}

// number returns a mobile number with this prefix and this many more digits.
func (m *mobiles) number(begins string, after int) string {
	for {
		number := begins + digits(m.Rand, after)
		if _, found, err := m.read(number); err == nil && found.Refused == "" {
			return number
		}
	}
}

// of returns a number in a country, and its range.
func (m *mobiles) of(country string) (number, ranged string, after int) {
	i := slices.IndexFunc(places, func(p place) bool { return p.country == country })
	number = m.number(places[i].begins, places[i].digits)
	return number, number[:8], len(number) - 8
}

func (m *mobiles) address() string {
	return fmt.Sprintf("%d.%d.%d.%d", 78+m.IntN(16), m.IntN(256), m.IntN(256), 1+m.IntN(254))
}

// visitors returns all visitors, ordered by their first request.
func (a *attack) visitors(m *mobiles) (all []visitor) {
	began := monday.Add(a.quiet + 2*day)
	person := func(country string, k kind, at time.Time) visitor {
		phone, _, _ := m.of(country)
		return visitor{phone: phone, device: digits(m.Rand, 12), address: m.address(), country: country, at: at, kind: k, enters: m.IntN(10) > 0}
	}
	within := func() time.Time { return began.Add(time.Duration(m.Int64N(int64(a.over)))) }
	for i := range 200 { // users of all countries
		country := places[i%len(places)].country
		k := newElsewhere
		if slices.Contains(a.countries, country) {
			k = newThere
		}
		all = append(all, person(country, k, within()))
	}
	for range a.among { // like on the day before
		all = append(all, person(a.countries[0], wasThere, within().Add(-a.over)), person(a.countries[0], newThere, within()))
	}
	for range 100 { // known people of the attacked countries, with a new phone, device or address
		country := a.countries[m.IntN(len(a.countries))]
		before := person(country, wasThere, monday.Add(time.Duration(m.Int64N(int64(day)))))
		before.enters = true
		now := person(country, knownThere, within())
		switch m.IntN(3) {
		case 0:
			now.phone = before.phone
		case 1:
			now.device = before.device
		case 2:
			now.address = before.address
		}
		all = append(all, before, now)
	}
	var ranges []place
	for _, country := range a.countries {
		for range a.ranges {
			_, begins, after := m.of(country)
			ranges = append(ranges, place{country, begins, after})
		}
	}
	for range a.crowd * len(a.countries) {
		r := ranges[m.IntN(len(ranges))]
		p := person(r.country, newThere, within())
		p.phone = m.number(r.begins, r.digits)
		all = append(all, p)
	}
	for range a.own {
		p := person(a.countries[m.IntN(len(a.countries))], ownPhone, monday.Add(day+time.Duration(m.Int64N(int64(day/2)))))
		p.enters = true
		all = append(all, p)
		for range 3 { // codes for other numbers, from the same device and network
			pump := person(p.country, pumped, within())
			pump.device, pump.enters, pump.address = p.device, false, a.rented(m)
			all = append(all, pump)
			pump = person(p.country, pumped, within())
			pump.address, pump.enters = p.address, false
			all = append(all, pump)
		}
	}
	step := a.over / time.Duration(a.each)
	for i, r := range ranges {
		for n := range a.each {
			at := began.Add(time.Duration(n)*step + time.Duration(m.Int64N(int64(step))))
			if a.turns {
				turn := a.over / time.Duration(len(a.countries))
				at = began.Add(turn*time.Duration(i/a.ranges) + time.Duration(m.Int64N(int64(turn))))
			}
			all = append(all, visitor{
				phone: m.number(r.begins, r.digits), country: r.country, device: fmt.Sprintf("made-up-%d", m.Uint64()), kind: pumped, at: at,
				address: a.rented(m),
			})
		}
	}
	return all
}

// rented returns an address in one of the attacker's networks.
func (a *attack) rented(m *mobiles) string {
	network := m.IntN(a.networks)
	return fmt.Sprintf("45.%d.%d.%d", network/250, network%250, 1+m.IntN(250))
}

// playAttack plays a against policies, whose countries are replaced by the attack's.
func playAttack(policies []policy.Policy, a *attack, seed uint64) (*outcome, error) {
	policies = slices.Clone(policies)
	for i := range policies {
		if !policies[i].Countries.IsZero() {
			policies[i].Countries = policy.Choice{Allow: names()}
		}
	}
	now := monday
	clock := func() time.Time { return now }
	store := embedded.New(&embedded.Options{Now: clock})
	engine := limiter.New(store, &limiter.Options{Now: clock, Identifiers: identifier.Reader})
	if err := engine.SetPolicies(policies); err != nil {
		return nil, err
	}
	m, err := newMobiles(seed)
	if err != nil {
		return nil, err
	}
	o := &outcome{
		attack: *a, confirmed: make(map[string][]time.Time), ownIn: make(map[string]int), byCountry: make(map[string][]time.Time),
	}
	p := &performance{engine: engine, now: &now, outcome: o, visitors: a.visitors(m)}
	for i := range p.visitors {
		v := &p.visitors[i]
		if v.kind == ownPhone {
			o.ownIn[v.country]++
		}
		p.add(v.at, i, "")
	}
	return o, p.run()
}

// performance processes events in order of time.
type performance struct {
	engine   *limiter.Engine
	now      *time.Time
	outcome  *outcome
	visitors []visitor
	events   []happening // a heap by when
}

// happening is a request of a visitor, or the entry of a code.
type happening struct {
	at      time.Time
	visitor int
	receipt string // receipt of the entered code; empty: a request
}

func (p *performance) add(at time.Time, visitor int, receipt string) {
	i, _ := slices.BinarySearchFunc(p.events, at, func(e happening, at time.Time) int { return at.Compare(e.at) }) // the next event last
	p.events = slices.Insert(p.events, i, happening{at, visitor, receipt})
}

func (p *performance) run() error {
	o := p.outcome
	for len(p.events) > 0 {
		e := p.events[len(p.events)-1]
		p.events = p.events[:len(p.events)-1]
		*p.now = e.at
		v := &p.visitors[e.visitor]
		if e.receipt != "" {
			if _, err := p.engine.Confirm(context.Background(), e.receipt); err != nil {
				return err
			}
			o.confirmed[v.country] = append(o.confirmed[v.country], *p.now)
			continue
		}
		answer, err := p.engine.Do(context.Background(), v.call())
		if err != nil {
			return err
		}
		p.note(e.visitor, v, &answer)
	}
	for i := range p.visitors {
		if v := &p.visitors[i]; v.kind < pumped {
			o.people[v.kind]++
			if !v.served {
				o.without[v.kind]++
			}
		}
	}
	for _, at := range o.byCountry {
		o.worst = max(o.worst, mostWithin(at, day))
	}
	return nil
}

// call is the call that the file's first lines describe.
func (v *visitor) call() *limiter.Call {
	return &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
		{Policy: "sms-phone", Identifier: keys.Identifier(v.phone)},
		{Policy: "sms-device", Identifier: keys.Identifier(v.device)},
		{Policy: "sms-address", Identifier: keys.Identifier(v.address)},
		{Policy: "sms-money", Identifier: "all", Cost: 75},
	}}
}

// note notes the outcome of v's request, and schedules what v does next.
func (p *performance) note(i int, v *visitor, answer *limiter.Answer) {
	o := p.outcome
	if v.kind == pumped {
		o.asked++
	}
	switch {
	case answer.Allowed && v.kind == pumped:
		o.sent++
		o.byCountry[v.country] = append(o.byCountry[v.country], *p.now)
	case answer.Allowed:
		v.served = true
		if v.enters {
			p.add(p.now.Add(entersAfter), i, answer.Receipt)
		}
	case v.kind != pumped && v.tries < len(patience):
		p.add(p.now.Add(patience[v.tries]), i, "")
		v.tries++
	}
}

// writeAttacks writes a row for each attack.
func writeAttacks(out io.Writer, all []*outcome) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "attack\tasks\tgets\ta country and day\twithout a code: elsewhere\tknown there\tnew there\t")
	for _, o := range all {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d of %d\t%d of %d\t%d of %d\t\n", o.name, o.asked, o.sent, o.worst,
			o.without[newElsewhere], o.people[newElsewhere], o.without[knownThere], o.people[knownThere], o.without[newThere], o.people[newThere])
	}
	return t.Flush()
}
