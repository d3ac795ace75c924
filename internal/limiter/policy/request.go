package policy

// FromRequest returns the index of the limit of p that a demand may replace by a limit of its own, -1 if there is none.
func (p *Policy) FromRequest() int {
	for i := range p.Limits {
		if p.Limits[i].Max != 0 {
			return i
		}
	}
	return -1
}

// Asked returns l for a demand that brings units as its limit.
func (l Limit) Asked(units int64) Limit {
	l.Limit, l.Max = units, 0
	return l
}

// checkMax adds the problems of a limit that a demand may replace by its own.
func (l Limit) checkMax(path string, found *problems) {
	if l.Max == 0 {
		return
	}
	algorithm, known := AlgorithmByName(l.Algorithm)
	switch {
	case known && algorithm == Conversion:
		found.add(path+".limit", "a %s depends on confirmations, and no request can bring its number: use after", l.Algorithm)
		return
	case known && algorithm.Memory == MemoryCells:
		found.add(path+".limit", "a %s drains by its limit also between requests, so no request can bring another one: "+
			"use %s, %s, %s or %s, or a number", l.Algorithm, SlidingLog.Name, SlidingTail.Name, SlidingWindow.Name, FixedWindow.Name)
		return
	case len(l.By) > 0:
		found.add(path+".limit", "by has a number for each identifier: remove by, or use a number")
		return
	}
	switch {
	case l.Max < 1 || l.Max > MaxLimit:
		found.add(path+".limit.max", "%d is out of range: use 1 to %d", l.Max, int64(MaxLimit))
	case l.Limit > l.Max:
		found.add(path+".limit.default", "%d is above max, the largest limit of a request: use at most %d", l.Limit, l.Max)
	case algorithm == SlidingLog && l.Max > MaxLogLimit:
		found.add(path+".limit.max", "%d is too large for a %s, which reads a row per unit in every decision: use at most %d, or a %s, "+
			"which keeps two counters for any limit", l.Max, SlidingLog.Name, MaxLogLimit, SlidingTail.Name)
	case algorithm == Concurrent && l.Max > MaxLogLimit:
		found.add(path+".limit.max", tooManyRows, l.Max, MaxLogLimit)
	}
}

// checkRequest refuses several limits that a demand may replace, as a demand brings only one.
func (p Policy) checkRequest(found *problems) {
	first := p.FromRequest()
	for i := range p.Limits {
		if i > first && p.Limits[i].Max != 0 {
			found.add(pathOf(i)+".limit", "limits[%d] comes with the request, too, and a request brings one number: "+
				"write a number here, or give this limit a policy of its own, and ask for both in one call", first)
			return
		}
	}
}
