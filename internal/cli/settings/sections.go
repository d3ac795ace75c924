package settings

import (
	"strings"

	"github.com/spf13/pflag"
)

// sections are the headings of a server's flags, the ones most servers need first, and the names of their flags.
var sections = []struct {
	title string
	flags []string
}{
	{"The application behind the proxy", []string{"upstream", "proxy-listen", "upstream-timeout", "proxy-max-requests", "proxy-keep-headers"}},
	{"Service and store", []string{"policies", "listen", "store", "data-dir", "ui", "config"}},
	{"Callers and secrets", []string{
		"auth-file", "insecure-no-auth", "allowed-hosts", "tls-cert-file", "tls-key-file", "tls-client-ca-file", "hash-key-file"}},
	{"Cassandra", []string{
		"cassandra-hosts", "cassandra-datacenter", "cassandra-keyspace", "namespace", "migrate", "cassandra-replication",
		"cassandra-username", "cassandra-password-file",
		"cassandra-tls", "cassandra-tls-ca", "cassandra-tls-cert", "cassandra-tls-key", "cassandra-tls-server-name",
		"consistency", "serial-consistency", "accept-caveats"}},
	{"Several instances", []string{"peer-listen", "peer-address", "peer-secret-file", "owners"}},
	{"Gateways", []string{"forward-auth-identify", "trusted-proxies", "envoy-listen", "headers"}},
	{"Events", []string{"events-url", "events-secret-file", "events-denied-share"}},
	{"Logs", []string{"log-level", "log-format", "audit-log"}},
	{"Bounds, times and clocks", []string{
		"max-connections", "max-keys", "store-timeout", "sync-interval", "data-sync-interval", "clock-tolerance", "clock-beyond-tolerance",
		"http-server"}},
}

// helpWidth is the width of the help, in columns.
const helpWidth = 120

// Sections returns the help of a server's flags under headings. The section "Others" has those that belong to no other.
func Sections(flags *pflag.FlagSet) string {
	b := &strings.Builder{}
	write := func(title string, of *pflag.FlagSet) {
		if of.HasFlags() {
			b.WriteString("\n\n" + title + ":\n" + strings.TrimRight(of.FlagUsagesWrapped(helpWidth), "\n"))
		}
	}
	found := make(map[string]bool)
	for _, section := range sections {
		of := unsorted()
		for _, name := range section.flags {
			if f := flags.Lookup(name); f != nil {
				of.AddFlag(f)
				found[name] = true
			}
		}
		write(section.title, of)
	}
	others := unsorted()
	flags.VisitAll(func(f *pflag.Flag) {
		if !found[f.Name] {
			others.AddFlag(f)
		}
	})
	write("Others", others)
	return b.String()
}

func unsorted() *pflag.FlagSet {
	of := pflag.NewFlagSet("", pflag.ContinueOnError)
	of.SortFlags = false
	return of
}
