package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// hostList is a flag with a list of host[:port], which may be repeated and contain commas. It implements pflag.Value, and
// takes lists from the file of settings.
type hostList struct {
	list  []string
	given bool // it has replaced the default
}

// String returns the hosts with commas between.
func (l *hostList) String() string { return strings.Join(l.list, ",") }

// Type returns the name of the value in the help.
func (*hostList) Type() string { return "hosts" }

// Set adds the hosts in text, in place of the default.
func (l *hostList) Set(text string) error {
	hosts := strings.Split(text, ",")
	if l.given {
		hosts = append(slices.Clone(l.list), hosts...)
	}
	return l.Replace(hosts)
}

// Replace puts hosts in place of all others.
func (l *hostList) Replace(hosts []string) error {
	trimmed := make([]string, len(hosts))
	for i, h := range hosts {
		trimmed[i] = strings.TrimSpace(h)
		if strings.Contains(trimmed[i], "@") { // the text before it may be a password
			return errors.New("a host has no @: use host or host:port, and --cassandra-username for the user")
		}
		if trimmed[i] == "" || strings.ContainsAny(trimmed[i], " /") {
			return fmt.Errorf("%q is not a host: use host or host:port, with commas between several", h)
		}
	}
	if len(trimmed) == 0 {
		return fmt.Errorf("there are no hosts: give at least one")
	}
	l.list, l.given = trimmed, true
	return nil
}
