package policy

import (
	"slices"
	"testing"
	"time"
)

func TestFileOfThisModule(t *testing.T) {
	want := List{{"sms-send", 10, time.Hour}, {"api", 1000, time.Minute}, {"api-local", 1000, time.Minute}}
	if got, err := Read("../policies.yaml"); !slices.Equal(got, want) || err != nil {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func TestParse(t *testing.T) {
	want := Policy{"api", 1000, time.Minute}
	if got, err := Parse(want.String()); got != want || err != nil {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, text := range []string{"", "api", "api=", "api=10", "api=10/x", "api=x/1m", "api=0/1m", "api=10/0s", "api=10/-1s"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
