package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// caller is a kind of person that asks for codes.
type caller string

// The callers, in the order of the report.
const (
	once      caller = "honest, asks once"
	impatient caller = "honest, asks again at once"
	patient   caller = "honest, again after 31 s"
	victim    caller = "the victim"
	hammerer  caller = "attacker, one number"
	walker    caller = "attacker, many numbers"
)

var callers = []caller{once, impatient, patient, victim, hammerer, walker}

// The number of each kind: 2,000 sign-ups in all.
const (
	onceCount      = 500
	impatientCount = 75 // two sign-ups each
	patientCount   = 74 // two sign-ups each
	victimVisits   = 2
	hammerVisits   = 600
	walkerNumbers  = 300
	walkerVisits   = 2 * walkerNumbers // twice through all of them
)

// patience is a second more than the cooldown.
const patience = 31 * time.Second

// visit is one sign-up.
type visit struct {
	at     time.Duration // since the beginning
	caller caller
	typed  string // the typed number
}

// crowd plans visits.
type crowd struct {
	rand    *rand.Rand
	over    time.Duration
	numbers []int // unused numbers
	visits  []visit
}

// drama is how many numbers Ofcom reserves for films: +44 7700 900000 to 900999 belong
// to nobody.
const drama = 1000

// newCrowd returns all visits in the order of their times, the same ones for the
// same seed, and the victim's number.
func newCrowd(seed uint64, over time.Duration) (visits []visit, target Phone) {
	c := &crowd{rand: rand.New(rand.NewPCG(seed, seed)), over: over}
	c.numbers = c.rand.Perm(drama)
	of := c.number()
	for i := range hammerVisits {
		c.add(over*time.Duration(i)/hammerVisits, hammerer, of)
	}
	for i := range victimVisits {
		c.add(over*time.Duration(1+2*i)/(2*victimVisits), victim, of)
	}
	c.walk()
	for range onceCount {
		c.add(c.within(over), once, c.number())
	}
	for range impatientCount {
		c.twice(impatient, over/20)
	}
	for range patientCount {
		c.twice(patient, patience)
	}
	c.rand.Shuffle(len(c.visits), func(i, j int) { c.visits[i], c.visits[j] = c.visits[j], c.visits[i] })
	slices.SortStableFunc(c.visits, func(a, b visit) int { return cmp.Compare(a.at, b.at) })
	return c.visits, Phone(spellings[0](of))
}

// walk lets the walker try all of its numbers repeatedly.
func (c *crowd) walk() {
	numbers := make([]int, walkerNumbers)
	for i := range numbers {
		numbers[i] = c.number()
	}
	for i := range walkerVisits {
		c.add(c.over*time.Duration(i)/walkerVisits, walker, numbers[i%walkerNumbers])
	}
}

// twice adds two visits of a person, with a pause in between, before the end.
func (c *crowd) twice(who caller, after time.Duration) {
	number, first := c.number(), c.within(c.over-after)
	c.add(first, who, number)
	c.add(min(first+after, c.over), who, number)
}

func (c *crowd) add(at time.Duration, who caller, number int) {
	spelled := spellings[c.rand.IntN(len(spellings))](number)
	c.visits = append(c.visits, visit{at: at, caller: who, typed: spelled})
}

// within returns a random moment before end, or 0 if end is not after the beginning.
func (c *crowd) within(end time.Duration) time.Duration {
	if end <= 0 {
		return 0
	}
	return time.Duration(c.rand.Int64N(int64(end)))
}

// number returns an unused number.
func (c *crowd) number() int {
	n := c.numbers[0]
	c.numbers = c.numbers[1:]
	return n
}

// spellings are ways to type one number, E.164 first.
var spellings = []func(n int) string{
	func(n int) string { return fmt.Sprintf("+447700900%03d", n) },
	func(n int) string { return fmt.Sprintf("+44 7700 900%03d", n) },
	func(n int) string { return fmt.Sprintf("+44-7700-900-%03d", n) },
	func(n int) string { return fmt.Sprintf("0044 7700 900%03d", n) },
}
