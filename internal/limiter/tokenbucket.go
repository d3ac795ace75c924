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
		if l.Burst != l.Limit && (l.Burst < 0 || l.Burst > MaxLimit) { // a limit out of range has been told of
			found.add(path+".burst", "%d is out of range: use 1 to %d", l.Burst, int64(MaxLimit))
		}
		if l.Limit == 0 && l.Burst > 0 {
			found.add(path+".burst", "a limit of 0 denies always: remove the burst")
		}
	},
}
