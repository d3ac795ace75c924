package settings

import (
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// Peers say how other instances reach this one.
type Peers struct {
	Listen     string // empty: nowhere
	Address    string // empty: the one that is listened on
	SecretFile string // empty: nobody is asked who they are
}

func (s *Peers) addFlags(flags *pflag.FlagSet) {
	command.Var(flags, &s.Listen, "peer-listen", "", "address",
		"at which other instances hand on calls, store cassandra only; port 0 takes any free one (default: nowhere)", command.Address)
	command.Var(flags, &s.Address, "peer-address", "", "address",
		"under which other instances reach --peer-listen (default: the address that it listens on)", command.Address)
	flags.StringVar(&s.SecretFile, "peer-secret-file", "",
		"`file` of a secret that all instances share, 16 bytes or more; needed where other machines reach --peer-listen")
}
