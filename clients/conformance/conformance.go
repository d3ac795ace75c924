// Package conformance has tables for the tests of several packages. Its own tests play the cases of all clients.
package conformance

import (
	_ "embed"
	"encoding/json"
	"testing"
)

//go:embed addresses.json
var addresses []byte

// Address is an address in the form of X-Forwarded-For, and the caller that it identifies.
type Address struct {
	Address, Caller string
	Why             string
}

// Addresses returns the table of addresses.
func Addresses(t testing.TB) []Address {
	t.Helper()
	var all []Address
	if err := json.Unmarshal(addresses, &all); err != nil || len(all) == 0 {
		t.Fatalf("addresses.json has %d addresses: %v", len(all), err)
	}
	return all
}
