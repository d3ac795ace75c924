package tracing

import "testing"

// TestIsOpaque distinguishes ids from phone numbers that were padded to their length.
func TestIsOpaque(t *testing.T) {
	for id, want := range map[string]bool{
		"4bf92f3577b34da6a3ce929d0e0e4736":     true,
		"0af7651916cd43dd8448eb211c80319c":     true,
		"0000000000000000a3ce929d0e0e4736":     true, // of 64 bits
		"c56a4180-65aa-42ec-a945-5fd21dec0538": true,
		"01ARZ3NDEKTSV4RRFFQ69G5FAV":           true,
		"00000000000000000004915112345678":     false,
		"00000000000000000000000612345678":     false,
		"49151123456780000000000000000000":     false,
		"fffffffffffffffffff4915112345678":     false,
		"00000000-0000-4000-8000-491511234567": false,
		"deadbeef-cafe-4bad-8bad-491511234567": false,
		"0000000000000000000192168001002a":     false,
		"00000000000004915112345678":           false,
	} {
		if got := IsOpaque(id); got != want {
			t.Errorf("%s: opaque is %v, want %v", id, got, want)
		}
	}
	for range 10_000 {
		if id := newID(); !isOpaque(id) {
			t.Fatalf("%v was made", id)
		}
	}
}

// TestPaddedNumbersAreNotTold holds that a trace whose id is a padded number goes on, but its id is in no log and no metric.
func TestPaddedNumbersAreNotTold(t *testing.T) {
	for id, want := range map[string]string{
		"00000000000000000004915112345678": "",
		"4bf92f3577b34da6a3ce929d0e0e4736": "4bf92f3577b34da6a3ce929d0e0e4736",
	} {
		read, _, ok := Parent{Traceparent: "00-" + id + "-00f067aa0ba902b7-01"}.read()
		if got := (Span{id: read}).TraceID(); !ok || got != want {
			t.Errorf("trace %s is told as %q, want %q", id, got, want)
		}
	}
}
