package main

import (
	"strings"
	"testing"
)

// TestCharge goes by the country of a number, and names one without a price.
func TestCharge(t *testing.T) {
	p := prices{"DE": .075, "AZ": .32}
	asks := []ask{{phone: "+4915112345678"}, {phone: "+994505550000"}}
	if err := p.charge(asks); err != nil || asks[0].cost != 75 || asks[1].cost != 320 {
		t.Errorf("%d and %d, %v: want 75 and 320", asks[0].cost, asks[1].cost, err)
	}
	if err := p.charge([]ask{{phone: "+33612345678"}}); err == nil || !strings.Contains(err.Error(), "FR") {
		t.Errorf("%v: want one that names FR", err)
	}
}
