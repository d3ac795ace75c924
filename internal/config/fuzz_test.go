package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/config"
)

// FuzzApply reads any file and any variable: what it sets is what a command line that
// says the same would, and a flag that was given stays as it was.
func FuzzApply(f *testing.F) {
	f.Add([]byte("timeout: 3s\nhosts: [a, b]\n"), "5")
	f.Add([]byte("timeout: [3s]\nkeys: {a: b}\nmigrate: yes\n"), "x")
	f.Add([]byte("hosts: a,b\nlisten: here\nkeys: 9223372036854775808"), "0x10")
	f.Add([]byte("migrate: true\nconfig: other.yaml\nhelp: true\n"), "")
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, file []byte, keys string) {
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		flags.String("config", path, "")
		listen := flags.String("listen", "", "")
		timeout := flags.Duration("timeout", 0, "")
		got := flags.Int("keys", 7, "")
		flags.StringSlice("hosts", nil, "")
		flags.Bool("migrate", false, "")
		if err := flags.Parse([]string{"--listen=given"}); err != nil {
			t.Fatal(err)
		}
		_, err := config.Apply(flags, &config.Options{Prefix: "RL_", Environ: []string{"RL_KEYS=" + keys}, File: "config"})
		if *listen != "given" || flags.Lookup("config").Value.String() != path {
			t.Fatalf("%q: what was given is %q now", file, *listen)
		}
		if err != nil {
			return
		}
		said := pflag.NewFlagSet("test", pflag.ContinueOnError)
		sameKeys, sameTimeout := said.Int("keys", 7, ""), said.Duration("timeout", 0, "")
		args := []string{"--keys=" + flags.Lookup("keys").Value.String(), "--timeout=" + flags.Lookup("timeout").Value.String()}
		if err := said.Parse(args); err != nil || *sameKeys != *got || *sameTimeout != *timeout {
			t.Fatalf("%q, %q set %d and %v: %v", file, keys, *got, *timeout, err)
		}
	})
}
