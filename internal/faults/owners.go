//go:build unix

package faults

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
	"github.com/ratelimitd/ratelimitd/internal/faults/schedule"
)

// ownersBound returns the longest time without owners after the last of these long cuts: a minute after the first one,
// twice as long after each further one, up to 16 minutes, and a minute to agree.
func ownersBound(cuts int) time.Duration {
	return time.Minute<<min(max(cuts-1, 0), 4) + time.Minute
}

// awaitOwners waits, if processes were cut off from each other for long, until each key has an owner.
func (r *run) awaitOwners(ctx context.Context) {
	last, cuts := time.Duration(0), 0
	for i := range r.history.Faults {
		if f := &r.history.Faults[i]; history.OfPeers(f.Kind) {
			last, cuts = max(last, f.Until), cuts+1
		}
	}
	if last == 0 || !schedule.LongCuts(r.Seed) {
		return
	}
	r.Logf("waiting until keys have owners again")
	r.history.Owners = new(history.OwnersTest)
	test := r.history.Owners
	for _, p := range r.processes {
		for !hasOwners(ctx, p.address()) {
			if test.After = r.now() - last; test.After > ownersBound(cuts) || ctx.Err() != nil {
				test.Wrong = fmt.Sprintf("%v after the last cut, process %d still decides for every key", test.After, p.number)
				return
			}
			wait(ctx, pollEvery)
		}
	}
	test.After = r.now() - last
}

// hasOwners reports whether the process at address has a view in which each key has an owner.
func hasOwners(ctx context.Context, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/metrics", nil)
	if err != nil {
		return false
	}
	response, err := transport.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return err == nil && strings.Contains(string(text), "\nratelimitd_members_shared 0\n")
}
