package embedded_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/embedded/datafile"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policystore"
)

// earlierFile is what a build of November 2026 left in its folder, packed, and what it gave to callers. It was made
// once, at start, and nothing makes it anew: a build that can't read it begins with no counts.
const (
	earlierFile    = "testdata/earlier.db.gz"
	earlierReceipt = "IGBTYP_dHB0dg9eUuTilIp3cWFVnhm-Ep4iDyGjj_Vx2j8aB-Uy8dBX6H4wDy1adZ9zG0nYAIxPJqUqlurnESEunXiks4ITPkoCrRHK2q3YtYwBg8aZ_" +
		"zx2XFGzIOFXjyxlypUfPBctVoAIO4AV4s7k"
	earlierHold = "pMfxt4uPc9rV43r3D69ZQbQifLNK5T3c0k5ZdcjgjbCXe3mUFt6TRGCepFQpP7Z3kK1hZr5Qx_NGqJW13G4u8WWYWc9FTtPI6JbTOCjUOBdXxPNBdQCnLu6Z" +
		"74e8byMZdxwQyyPif3QHJ-MBkmK6Yv12tl6TUg"
)

// earlierPolicies have a limit of each algorithm.
var earlierPolicies = []policy.Policy{
	{Name: "log", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}}},
	{Name: "windows", Limits: []policy.Limit{
		{Algorithm: "fixed-window", Limit: 10, Window: time.Hour}, {Algorithm: "sliding-window", Limit: 10, Window: time.Hour},
		{Algorithm: "sliding-tail", Limit: 10, Window: time.Hour},
	}},
	{Name: "token-bucket", Limits: []policy.Limit{{Algorithm: "token-bucket", Limit: 10, Window: time.Hour}}},
	{Name: "leaky-bucket", Limits: []policy.Limit{{Algorithm: "leaky-bucket", Limit: 10, Window: time.Hour}}},
	{Name: "conversion", Limits: []policy.Limit{{Algorithm: "conversion", Limit: 10, Window: time.Hour}}},
}

// earlierEngine opens what is in folder as of start, and decides by it.
func earlierEngine(t *testing.T, folder string) (e *limiter.Engine, file *datafile.File, end func()) {
	t.Helper()
	now := start.Time
	file, err := datafile.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Open(&embedded.Options{Disk: file, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s.RunUnswept)
	e = limiter.New(s, &limiter.Options{Now: now, Feed: s, Keyer: keys.Keyer{Namespace: "prod"}})
	if err := e.SetPolicies(earlierPolicies); err != nil {
		t.Fatal(err)
	}
	if err := e.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, file, func() {
		stop()
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

func on(policy string, id keys.Identifier, cost int64) []limiter.Demand {
	return []limiter.Demand{{Policy: policy, Identifier: id, Cost: cost}}
}

// earlierFolder returns a folder with the file of the earlier build.
func earlierFolder(t *testing.T) string {
	t.Helper()
	packed, err := os.Open(earlierFile)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, datafile.Name), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestEarlierFile goes on with what an earlier build left.
func TestEarlierFile(t *testing.T) {
	e, file, end := earlierEngine(t, earlierFolder(t))
	defer end()
	used := func(policy string, id keys.Identifier) (all []int64) {
		d, err := e.Check(t.Context(), on(policy, id, 1)[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range d.Limits() {
			all = append(all, l.Used)
		}
		return all
	}
	for _, p := range earlierPolicies {
		want := slices.Repeat([]int64{2}, len(p.Limits))
		if p.Name == "log" {
			want = []int64{2 + 1 + 4}
		}
		if got := used(p.Name, "took"); !slices.Equal(got, want) {
			t.Errorf("%s: used %v, and in the build that left the file %v", p.Name, got, want)
		}
		if got := used(p.Name, "reset"); slices.Max(got) != 0 {
			t.Errorf("%s: used %v of a key that was reset", p.Name, got)
		}
	}
	if d, err := e.Check(t.Context(), on("log", "override", 1)[0]); err != nil || d.Limits()[0].Limit.Limit != 77 {
		t.Errorf("the override of an earlier build: %+v, %v", d, err)
	}
	again, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: on("log", "key", 3), IdempotencyKey: "once"})
	if err != nil || !again.Replayed || again.Used != 3 || again.Receipt == "" || used("log", "key")[0] != 3 {
		t.Errorf("a repetition of what an earlier build decided: %+v, %v", again, err)
	}
	if err := e.Refund(t.Context(), again.Receipt); err != nil || used("log", "key")[0] != 0 {
		t.Errorf("a refund by the receipt that an earlier build kept: %v", err)
	}
	if err := e.Refund(t.Context(), earlierReceipt); err != nil || used("log", "took")[0] != 2+4 {
		t.Errorf("a refund by the receipt of an earlier build: %v, used %v", err, used("log", "took"))
	}
	settled, err := e.Do(t.Context(), &limiter.Call{Op: count.OpRecord, Demands: on("log", "took", 4), Reservation: earlierHold})
	if err != nil || settled.Recorded != count.RecordedYes || settled.Receipt == "" || used("log", "took")[0] != 2+4 {
		t.Errorf("settling what an earlier build reserved: %+v, %v, used %v", settled, err, used("log", "took"))
	}
	set, err := file.Policies().Read(t.Context(), 1)
	if err != nil || set.By != "ops" || set.Policies != 5 || !set.At.Equal(start.Time()) || set.Digest != policystore.DigestOf(set.Text) {
		t.Errorf("the version of the policies that an earlier build kept: %+v, %v", set, err)
	}
}
