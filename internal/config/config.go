// Package config sets the flags that are not on the command line: from the environment, else from a YAML file. All
// others keep their defaults.
//
// A flag's name is its key in the file and, in capitals with underscores and a prefix, its environment variable. A key
// without a flag is a mistake. Each error names the place of the wrong value.
//
// The package does not know the flags: each flag's own Value refuses wrong values.
package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// Options of Apply. The zero value reads nothing but variables without a prefix.
type Options struct {
	Prefix  string   // of environment variables: "RATELIMITD_"
	Environ []string // as from os.Environ
	File    string   // flag that names the file, which the file itself cannot set; empty: there is no file

	// AlsoKnown names flags of other commands, which share the environment and the
	// file: they are neither read nor wrong.
	AlsoKnown []string
	// AlsoKeys names keys of the file that are read elsewhere, and hold more than a flag.
	AlsoKeys []string
	// AlsoVariables names environment variables that are read elsewhere.
	AlsoVariables []string
}

// Apply sets each flag that the command line did not set. An empty environment variable counts as absent. The error
// joins all mistakes, with yamlfile.Errors for the file. Warnings name environment variables with the prefix that no
// command reads.
func Apply(flags *pflag.FlagSet, opts *Options) (warnings []string, err error) {
	env := environment(opts)
	fromEnv := applyEnvironment(flags, env, opts)
	return env.unknown(flags, opts), errors.Join(fromEnv, applyFile(flags, opts))
}

// variables are the environment variables with the prefix, in their order.
type variables []variable

type variable struct{ name, value string }

func environment(opts *Options) (found variables) {
	for _, entry := range opts.Environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, opts.Prefix) && value != "" {
			found = append(found, variable{name, value})
		}
	}
	return found
}

// Variable returns the name of the environment variable of a flag.
func Variable(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func applyEnvironment(flags *pflag.FlagSet, env variables, opts *Options) error {
	var wrong []error
	flags.VisitAll(func(f *pflag.Flag) {
		i := slices.IndexFunc(env, func(v variable) bool { return v.name == Variable(opts.Prefix, f.Name) })
		if f.Changed || i < 0 || !configurable(f) {
			return
		}
		if err := set(f, env[i].value); err != nil {
			wrong = append(wrong, fmt.Errorf("environment variable %s: %w", env[i].name, err))
		}
	})
	return errors.Join(wrong...)
}

// set sets f, so that later sources do not.
func set(f *pflag.Flag, value string) error {
	f.Changed = true
	err := f.Value.Set(value)
	if err != nil && f.Value.Type() == "bool" { // pflag's own words are those of strconv
		return fmt.Errorf("%.64q is neither true nor false", value)
	}
	return err
}

// configurable reports whether f may be set outside the command line.
func configurable(f *pflag.Flag) bool { return f.Name != "help" && f.Name != "version" }

// names returns the flags that may be set outside the command line.
func names(flags *pflag.FlagSet, opts *Options) []string {
	var known []string
	flags.VisitAll(func(f *pflag.Flag) {
		if configurable(f) {
			known = append(known, f.Name)
		}
	})
	for _, name := range opts.AlsoKnown {
		if !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	return known
}

// serviceLink matches the variables that Kubernetes and Docker set for a service that is called like this program.
var serviceLink = regexp.MustCompile(`^(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)$`)

// unknown returns a warning for each variable that no flag has and no other code reads.
func (env variables) unknown(flags *pflag.FlagSet, opts *Options) (warnings []string) {
	known := slices.Clone(opts.AlsoVariables)
	for _, name := range names(flags, opts) {
		known = append(known, Variable(opts.Prefix, name))
	}
	for _, v := range env {
		if slices.Contains(known, v.name) || serviceLink.MatchString(strings.TrimPrefix(v.name, opts.Prefix)) {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("environment variable %s is not read: %s", v.name, yamlfile.DidYouMean(v.name, known)))
	}
	return warnings
}

func applyFile(flags *pflag.FlagSet, opts *Options) error {
	named := flags.Lookup(opts.File)
	if named == nil || named.Value.String() == "" {
		return nil
	}
	path := named.Value.String()
	data, err := yamlfile.Read(path)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	f := yamlfile.Parse(path, data)
	if f.Root != nil && f.Expect(f.Root, yamlfile.Map, "write one flag: value a line, without the dashes before the flag") {
		applyMap(f, flags, opts)
	}
	return f.Err()
}

func applyMap(f *yamlfile.File, flags *pflag.FlagSet, opts *Options) {
	known := slices.DeleteFunc(names(flags, opts), func(name string) bool { return name == opts.File })
	f.ExpectKeys(f.Root, slices.Concat(known, opts.AlsoKeys))
	for _, m := range f.Root.Members {
		flag := flags.Lookup(m.Key)
		if flag == nil || !slices.Contains(known, m.Key) {
			continue
		}
		setFromFile(f, m.Value, flag)
	}
}

// setFromFile sets flag to the value of n, unless the command line or the environment has set it. A map in place of a
// value is a mistake in any case.
func setFromFile(f *yamlfile.File, n *yamlfile.Node, flag *pflag.Flag) {
	list, takesList := flag.Value.(interface{ Replace([]string) error })
	switch {
	case n.Kind == yamlfile.List && takesList:
		items, ok := texts(f, n)
		if !ok || flag.Changed {
			return
		}
		flag.Changed = true
		if err := list.Replace(items); err != nil {
			f.Add(n, "%v", err)
		}
	case n.Kind == yamlfile.Map || n.Kind == yamlfile.List:
		f.Expect(n, yamlfile.Text, "write one value, in quotes where it holds braces or brackets")
	case n.Kind == yamlfile.Broken || flag.Changed:
	default:
		if err := set(flag, n.Text); err != nil {
			f.Add(n, "%v", err)
		}
	}
}

// texts returns the scalars of a list.
func texts(f *yamlfile.File, n *yamlfile.Node) (items []string, ok bool) {
	ok = true
	for _, item := range n.Items {
		switch item.Kind {
		case yamlfile.Text, yamlfile.Number, yamlfile.Bool:
			items = append(items, item.Text)
		default:
			f.Expect(item, yamlfile.Text, "write one value")
			ok = false
		}
	}
	return items, ok
}
