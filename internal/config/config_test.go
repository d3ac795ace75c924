package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// given has a command line, an environment and a file.
type given struct {
	args    []string
	environ []string
	file    string // empty: none
}

// settings are the flags of the tests, with their defaults.
type settings struct {
	listen  string
	hosts   []string
	timeout time.Duration
	migrate bool
	keys    int
}

func apply(t *testing.T, g given) (got settings, warnings []string, err error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.StringVar(&got.listen, "listen", "default", "")
	flags.StringSliceVar(&got.hosts, "cassandra-hosts", []string{"default"}, "")
	flags.DurationVar(&got.timeout, "store-timeout", time.Second, "")
	flags.BoolVar(&got.migrate, "migrate", false, "")
	flags.IntVar(&got.keys, "max-keys", 7, "")
	file := flags.String("config", "", "")
	flags.Bool("help", false, "")
	if err := flags.Parse(g.args); err != nil {
		t.Fatal(err)
	}
	if g.file != "" {
		*file = filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(*file, []byte(g.file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	warnings, err = config.Apply(flags, &config.Options{
		Prefix: "RL_", Environ: g.environ, File: "config",
		AlsoKnown: []string{"keyspace", "listen"}, AlsoVariables: []string{"RL_PASSWORD"},
	})
	return got, warnings, err
}

func TestFlagBeatsEnvironmentBeatsFile(t *testing.T) {
	const file = "listen: file\ncassandra-hosts: [file1, file2]\n"
	env := []string{"RL_LISTEN=env", "RL_CASSANDRA_HOSTS=env1,env2", "OTHER=1"}
	args := []string{"--listen=flag", "--cassandra-hosts=flag"}
	for _, test := range []struct {
		name   string
		given  given
		listen string
		hosts  string
	}{
		{"defaults", given{}, "default", "default"},
		{"file", given{file: file}, "file", "file1,file2"},
		{"environment", given{environ: env}, "env", "env1,env2"},
		{"flags", given{args: args}, "flag", "flag"},
		{"file, environment", given{file: file, environ: env}, "env", "env1,env2"},
		{"file, flags", given{file: file, args: args}, "flag", "flag"},
		{"environment, flags", given{environ: env, args: args}, "flag", "flag"},
		{"all", given{file: file, environ: env, args: args}, "flag", "flag"},
		{"empty variables", given{file: file, environ: []string{"RL_LISTEN=", "RL_CASSANDRA_HOSTS="}}, "file", "file1,file2"},
		{"commas in the file", given{file: "cassandra-hosts: a,b\n"}, "default", "a,b"},
		{"a list of one a line", given{file: "cassandra-hosts:\n  - a\n  - 10.0.0.1\n"}, "default", "a,10.0.0.1"},
		{"a flag that says the default", given{args: []string{"--listen=default"}, environ: env, file: file}, "default", "env1,env2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, warnings, err := apply(t, test.given)
			if err != nil || len(warnings) > 0 {
				t.Fatalf("error %v, warnings %q", err, warnings)
			}
			if got.listen != test.listen || strings.Join(got.hosts, ",") != test.hosts {
				t.Errorf("listen %q, hosts %q; want %q, %q", got.listen, got.hosts, test.listen, test.hosts)
			}
		})
	}
}

func TestEveryTypeComesFromTheFile(t *testing.T) {
	got, _, err := apply(t, given{file: "store-timeout: 250ms\nmigrate: true\nmax-keys: 12\nlisten: \"1\"\nkeyspace: of another command\n"})
	want := settings{listen: "1", timeout: 250 * time.Millisecond, migrate: true, keys: 12}
	if err != nil || got.listen != want.listen || got.timeout != want.timeout || got.migrate != want.migrate || got.keys != want.keys {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestWhatIsWrongSaysWhereItCameFrom(t *testing.T) {
	for _, test := range []struct {
		name  string
		given given
		want  []string // one line each
	}{
		{"a misspelt key", given{file: "# first\nlisten: x\nstore-timout: 1s\n"},
			[]string{"c.yaml:3: store-timout: unknown key: did you mean store-timeout?"}},
		{"underscores", given{file: "store_timeout: 1s\n"},
			[]string{"c.yaml:1: store_timeout: unknown key: did you mean store-timeout?"}},
		{"the file within itself", given{file: "config: other.yaml\n"}, []string{"c.yaml:1: config: unknown key: known ones"}},
		{"help in the file", given{file: "help: true\n"}, []string{"c.yaml:1: help: unknown key"}},
		{"a wrong value in the file", given{file: "\nmigrate: maybe\n"}, []string{`c.yaml:2: migrate: "maybe" is neither true nor false`}},
		{"a wrong duration in the file", given{file: "store-timeout: soon\n"},
			[]string{`c.yaml:1: store-timeout: time: invalid duration "soon"`}},
		{"a map in the file", given{file: "listen: {a: 1}\n"}, []string{"c.yaml:1: listen: a map where text belongs"}},
		{"a list in the file", given{file: "listen: [a]\n"}, []string{"c.yaml:1: listen: a list where text belongs"}},
		{"a list of lists", given{file: "cassandra-hosts: [[a]]\n"}, []string{"c.yaml:1: cassandra-hosts[0]: a list where text belongs"}},
		{"nothing in the file", given{file: "listen:\n"}, []string{"c.yaml:1: listen: has no value"}},
		{"a list as the file", given{file: "- listen\n"}, []string{"c.yaml:1: a list where a map belongs"}},
		{"a key twice", given{file: "listen: a\nlisten: b\n"}, []string{"c.yaml:2: listen: this key is on line 1 too"}},
		{"a wrong variable", given{environ: []string{"RL_MAX_KEYS=many"}},
			[]string{`environment variable RL_MAX_KEYS: strconv.ParseInt: parsing "many": invalid syntax`}},
		{"everywhere", given{environ: []string{"RL_MIGRATE=2", "RL_MAX_KEYS=x"}, file: "store-timeout: x\nlisen: x\n"}, []string{
			"environment variable RL_MAX_KEYS: ", "environment variable RL_MIGRATE: ", "c.yaml:1: store-timeout: ", "c.yaml:2: lisen: ",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := apply(t, test.given)
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(test.want) {
				t.Fatalf("error:\n%v\nwant %d lines", err, len(test.want))
			}
			for i, want := range test.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %d is %q, want %q in it", i, lines[i], want)
				}
			}
			var mistakes yamlfile.Errors
			if strings.Contains(err.Error(), "c.yaml") && !errors.As(err, &mistakes) {
				t.Error("no yamlfile.Errors in the error")
			}
		})
	}
}

func TestAnEmptyFileIsFine(t *testing.T) {
	if _, _, err := apply(t, given{file: "# nothing yet\n"}); err != nil {
		t.Error(err)
	}
	if _, _, err := apply(t, given{args: []string{"--config=absent.yaml"}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
}

func TestUnknownVariablesAreWarnedOf(t *testing.T) {
	_, warnings, err := apply(t, given{environ: []string{
		"RL_LISEN=x", "RL_KEYSPACE=x", "RL_PASSWORD=x", "RL_HELP=x", "RL_CONFIG=", "PATH=/bin",
		"RL_SERVICE_HOST=10.0.0.1", "RL_SERVICE_PORT_HTTP=80", "RL_PORT=tcp://10.0.0.1:80", "RL_PORT_80_TCP_ADDR=10.0.0.1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(warnings)
	if len(warnings) != 2 || !strings.HasPrefix(warnings[0], "environment variable RL_HELP is not read") ||
		warnings[1] != "environment variable RL_LISEN is not read: did you mean RL_LISTEN?" {
		t.Errorf("warnings: %q", warnings)
	}
}
