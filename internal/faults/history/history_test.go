package history_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

func TestWrittenHistoryIsRead(t *testing.T) {
	h := &history.History{
		Header: history.Header{
			Seed: 7, Started: time.UnixMilli(1_800_000_000_000).UTC(), Lasts: time.Minute, Processes: 3, Tolerance: time.Second,
			Offsets: []time.Duration{time.Second}, Policies: []history.Policy{{Name: "p", Algorithm: "sliding-log", Limit: 3, Window: time.Second}},
		},
		Calls: []history.Call{
			{N: 1, Op: history.Take, Demands: []history.Demand{{Policy: "p", Identifier: "a"}}, Key: "k", Called: 1, Returned: 2,
				Answer: history.Answer{Status: 200, Allowed: true, Used: []int64{1}, Recorded: history.Yes}},
			{N: 2, Op: history.Check, Called: 3, Returned: 4, Answer: history.Answer{Recorded: history.Unknown, Error: "EOF"}},
		},
		Faults: []history.Fault{{Kind: history.NodeKill, Target: 1, Span: history.Span{From: 1, Until: 3}}},
		Whole:  []history.Span{{From: 0, Until: 1}, {From: 3, Until: 5}},
		Stalls: []history.Span{{From: 1, Until: 2}},
		Clocks: []history.ClockTest{{Beyond: "refuse", Noticed: time.Second, Wrong: "late"}},
	}
	var file bytes.Buffer
	if err := history.Write(&file, h); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(file.String(), "\n"); lines != 8 {
		t.Errorf("%d lines", lines)
	}
	got, err := history.Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, h) {
		t.Errorf("read\n%+v, wrote\n%+v", got, h)
	}
}

func TestInvalidHistoriesAreRefused(t *testing.T) {
	for _, text := range []string{"", "{}", "{\"Header\":", "{\"Call\":{}}\n"} {
		if _, err := history.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func TestSpans(t *testing.T) {
	a := history.Span{From: 2, Until: 5}
	for _, test := range []struct {
		other   history.Span
		meets   bool
		overlap time.Duration
	}{
		{history.Span{From: 0, Until: 1}, false, 0}, {history.Span{From: 0, Until: 2}, true, 0}, {history.Span{From: 0, Until: 4}, true, 2},
		{history.Span{From: 3, Until: 4}, true, 1}, {history.Span{From: 0, Until: 9}, true, 3}, {history.Span{From: 6, Until: 9}, false, 0},
	} {
		if a.Meets(test.other) != test.meets || a.Overlap(test.other) != test.overlap {
			t.Errorf("%+v: meets %v, overlaps by %v", test.other, a.Meets(test.other), a.Overlap(test.other))
		}
	}
}
