// Package conformance has the tables that the tests of several packages read. The tests here play
// the cases of all clients.
package conformance

import (
	_ "embed"
	"encoding/json"
	"testing"
)

//go:embed addresses.json
var addresses []byte

// Address is an address, as X-Forwarded-For has it, and the caller that it identifies.
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
