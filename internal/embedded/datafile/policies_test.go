package datafile_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/embedded/datafile"
	"github.com/ratelimitd/ratelimitd/internal/policystore/policystoretest"
)

// TestPolicies are kept as any store keeps them, and by the next process, too.
func TestPolicies(t *testing.T) {
	folder := t.TempDir()
	f, err := datafile.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	policystoretest.Run(t, f.Policies())
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = datafile.Open(folder); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if latest, err := f.Policies().Latest(t.Context()); err != nil || latest != 505 {
		t.Errorf("the latest version is %d, %v", latest, err)
	}
}
