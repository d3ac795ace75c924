package limiter

// tokenBucket holds up to burst tokens, full at first, and is refilled by its limit
// in every window, evenly; a request takes as many as it costs. It is kept as a
// bucket of what was taken, which drains as the tokens come back.
var tokenBucket = &algorithm{
	Name:   "token-bucket",
	memory: memoryCells,
	used:   usedOfBucket,
	wait:   waitForBucket,
	check: func(l Limit, path string, found *problems) {
		switch least := smallestBurst(&l); {
		case l.Burst != l.Limit && (l.Burst < 0 || l.Burst > MaxLimit): // a limit out of range has been told of
			found.add(path+".burst", "%d is out of range: use 1 to %d", l.Burst, int64(MaxLimit))
		case l.Limit == 0 && l.Burst > 0:
			found.add(path+".burst", "a limit of 0 denies always: remove the burst")
		case l.Burst > 0 && l.Burst < least:
			found.add(path+".burst", "a burst of %d loses tokens of %d in %s: time counts in whole milliseconds, "+
				"and what is refilled in one must fit: use a burst of at least %d", l.Burst, l.Limit, FormatWindow(l.Window), least)
		}
	},
}

// slowRefill is the longest window in milliseconds for each unit of a limit whose bucket
// is refilled fast. One that is refilled more slowly and holds too little waits up to a
// millisecond too long for each unit, which is less than a tenth of the time.
const slowRefill = 10

// smallestBurst returns how many tokens a bucket of l has to hold, so that requests of cost
// 1 get all of its limit. In each millisecond p/q units are refilled. Whoever takes all
// that it can leaves less than one token, so (q − 1)/q at most.
func smallestBurst(l *Limit) int64 {
	p, q := l.Limit, l.Window.Milliseconds()
	if p <= 0 || p > MaxLimit || q <= 0 || slowRefill*p <= q {
		return 1
	}
	for a, b := q, p; ; a, b = b, a%b { // by the greatest common divisor
		if b == 0 {
			p, q = p/a, q/a
			break
		}
	}
	return 1 + (p-1+q-1)/q // (q − 1)/q and p/q must fit
}
