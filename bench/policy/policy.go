// Package policy reads the limits for the comparison from ratelimitd's policies file, and passes them to
// the peers' command lines. It knows one limit per policy, and no algorithms.
package policy

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Policy is a name with a number of units in a window.
type Policy struct {
	Name   string
	Limit  int64
	Window time.Duration
}

// String returns p in the form that Parse reads: sms-send=10/1h0m0s.
func (p Policy) String() string { return fmt.Sprintf("%s=%d/%v", p.Name, p.Limit, p.Window) }

// Parse reads the form of String.
func Parse(text string) (Policy, error) {
	name, limit, found := strings.Cut(text, "=")
	units, window, foundToo := strings.Cut(limit, "/")
	number, err := strconv.ParseInt(units, 10, 64)
	long, windowErr := time.ParseDuration(window)
	if !found || !foundToo || err != nil || windowErr != nil || number < 1 || long <= 0 {
		return Policy{}, fmt.Errorf("policy %q is not NAME=LIMIT/WINDOW", text)
	}
	return Policy{Name: name, Limit: number, Window: long}, nil
}

// List is a flag that may be given several times.
type List []Policy

// String implements flag.Value.
func (l *List) String() string { return fmt.Sprint([]Policy(*l)) }

// Set implements flag.Value.
func (l *List) Set(text string) error {
	p, err := Parse(text)
	*l = append(*l, p)
	return err
}

// Read returns the policies of a policies file, each with its first limit.
func Read(file string) (List, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var content struct {
		Policies []struct {
			Name   string
			Limits []struct {
				Limit  int64
				Window string
			}
		}
	}
	if err := yaml.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var list List
	for _, p := range content.Policies {
		if len(p.Limits) == 0 {
			return nil, fmt.Errorf("%s: policy %q has no limits", file, p.Name)
		}
		if err := list.Set(fmt.Sprintf("%s=%d/%s", p.Name, p.Limits[0].Limit, p.Limits[0].Window)); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return list, nil
}
