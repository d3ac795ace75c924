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

// ownersBound is how long keys may have no owners after the last long cut: a minute after the first one,
// four after the third.
const ownersBound = 5 * time.Minute

// awaitOwners waits, if processes were cut off from each other for long, until each key has an owner.
func (r *run) awaitOwners(ctx context.Context) {
	last := time.Duration(0)
	for i := range r.history.Faults {
		if f := &r.history.Faults[i]; history.OfPeers(f.Kind) {
			last = max(last, f.Until)
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
			if test.After = r.now() - last; test.After > ownersBound || ctx.Err() != nil {
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
