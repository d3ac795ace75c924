//go:build unix

package faults

import (
	"testing"
	"time"
)

func TestOwnersBound(t *testing.T) {
	for cuts, want := range map[int]time.Duration{0: 2, 1: 2, 2: 3, 3: 5, 4: 9, 5: 17, 45: 17} {
		if got := ownersBound(cuts); got != want*time.Minute {
			t.Errorf("after %d cuts: %v, want %d minutes", cuts, got, want)
		}
	}
}
