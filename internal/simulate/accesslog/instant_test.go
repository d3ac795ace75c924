package accesslog

import (
	"testing"
	"time"
)

// TestInstants parses the same instant in all forms and zones, and refuses texts that only look like one.
func TestInstants(t *testing.T) {
	const want = 971_211_336_000 // 2000-10-10T20:55:36Z
	for _, text := range []string{
		"10/Oct/2000:13:55:36 -0700", "[10/Oct/2000:13:55:36 -0700]", "10/Oct/2000:22:55:36 +02:00", "10/Oct/2000:22:55:36 +02",
		"10/Oct/2000:20:55:36", "10/Oct/2000:20:55:36 UTC", "10/Oct/2000:20:55:36 GMT",
		"2000-10-10T20:55:36Z", "2000-10-10t20:55:36z", "2000-10-10T13:55:36-07:00", "2000-10-10T13:55:36-0700", "2000-10-10T22:55:36+02",
		"2000-10-10 20:55:36", "2000-10-10 20:55:36Z", "2000-10-10 22:55:36 +0200", "2000-10-10 22:55:36+02:00", "2000-10-10 20:55:36 UTC",
		"971211336", "971211336.0", "9.71211336e8", "971211336000", "971211336000000", "971211336000000000",
	} {
		if got, err := parseInstant([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for text, millis := range map[string]int{
		"10/Oct/2000:20:55:36.25": 250, "2000-10-10T20:55:36.250Z": 250, "2000-10-10 20:55:36,25": 250, "971211336.25": 250,
		"2000-10-10T20:55:36.2509999Z": 250, "971211336250": 250,
	} {
		if got, err := parseInstant([]byte(text)); err != nil || got.Time() != time.UnixMilli(want+int64(millis)).UTC() {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "-", "yesterday", "31/Feb/2000:20:55:36", "10/Oct/2000:24:00:00", "10/Oct/2000:20:55:36 +9900", "10/Oct/2000:20:55:36 CET",
		"10/Oct/1969:20:55:36", "2000-13-10T20:55:36Z", "2000-10-10x20:55:36Z", "2000-10-10T20:55", "20001010205536", "-1", "NaN", "Inf",
	} {
		if got, err := parseInstant([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}
