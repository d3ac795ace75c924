package policyfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

func TestWatcherReadsPolicies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	w := policyfile.NewWatcher(path)
	for _, test := range []struct{ text, name, wrong string }{
		{"policies: [{name: sms, limits: [{algorithm: sliding-log, limit: 1, window: 1s}]}]\n", "sms", ""},
		{"policies: 1\n", "", path + ":1"},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := w.Load()
		switch {
		case test.wrong != "":
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("of %q Load says %v, want what is wrong at %s", test.text, err, test.wrong)
			}
		case err != nil || len(file.Policies) != 1 || file.Policies[0].Name != test.name:
			t.Errorf("of %q Load says %+v, %v, want policy %s", test.text, file.Policies, err, test.name)
		}
	}
}
