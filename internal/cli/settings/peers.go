package settings

import (
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// Peers are the settings of calls between instances.
type Peers struct {
	Listen     string // empty: nowhere
	Address    string // empty: the one that is listened on
	SecretFile string // empty: there is no authentication
	Owners     string // one of the Owners constants
}

// Which instances own keys.
const (
	OwnersAuto = "auto" // one while the load is small, else all
	OwnersAll  = "all"
)

func (s *Peers) addFlags(flags *pflag.FlagSet) {
	command.Var(flags, &s.Listen, "peer-listen", "", "address",
		"address where other instances hand on calls, store cassandra only; port 0 takes any free port (default: none)", command.Address)
	command.Var(flags, &s.Address, "peer-address", "", "address",
		"address by which other instances reach --peer-listen (default: the same)", command.Address)
	command.Var(flags, &s.Owners, "owners", OwnersAuto, "instances",
		"instances that own keys, store cassandra only: auto (one while the load is small, else all) or all, if any instance says all",
		command.OneOf(OwnersAuto, OwnersAll))
	flags.StringVar(&s.SecretFile, "peer-secret-file", "",
		"`file` of a secret of 16 bytes or more that all instances share; needed if other machines reach --peer-listen")
}
