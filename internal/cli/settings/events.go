package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/events"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Events are the settings of the receivers of events.
type Events struct {
	URL         *url.URL // nil: events are not sent
	DeniedShare float64  // above 0, and up to 1
	secretFile  string
	secret      string // of the environment
}

func (e *Events) addFlags(flags *pflag.FlagSet) {
	command.Var(flags, &e.URL, "events-url", "", "url",
		"URL to send events to, as signed CloudEvents: denied countries, a store that does not answer, blocks, overrides, "+
			"policies (default: none)", receiver)
	flags.StringVar(&e.secretFile, "events-secret-file", "",
		"`file` of the secrets that sign events, in the form of Standard Webhooks (whsec_…); or set "+command.EventsVariable)
	command.Var(flags, &e.DeniedShare, "events-denied-share", "50%", "percent",
		"share of a policy's calls within a minute that must be denied for an event", percent)
}

// receiver parses the URL of a receiver of events; an empty text gives nil.
func receiver(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	switch { // the errors do not quote the URL, which may contain a token
	case err != nil, u.Scheme != "https" && u.Scheme != "http", u.Hostname() == "":
		return nil, errors.New("it is not the URL of a receiver: use one such as https://example.org/events")
	case u.User != nil:
		return nil, errors.New("it has a user name or a password: remove them, for events are signed")
	}
	return u, nil
}

// percent parses 1% to 100%.
func percent(text string) (float64, error) {
	share, err := policy.ParseShare(text)
	return float64(share) / 100, err
}

// Secrets returns the secrets that events are signed with, from the file or the environment.
func (e *Events) Secrets(log *slog.Logger) ([][]byte, error) {
	const file = "--events-secret-file"
	where, text := command.EventsVariable, e.secret
	switch {
	case e.URL == nil && e.secretFile != "":
		return nil, errors.New(file + " does nothing without --events-url: add that or remove it")
	case e.URL == nil:
		return nil, nil
	case e.secret != "" && e.secretFile != "":
		return nil, errors.New("both " + command.EventsVariable + " and " + file + " are set: keep one of them")
	case e.secretFile != "":
		var err error
		if text, err = command.ReadSecret(file, e.secretFile, log); err != nil {
			return nil, command.Fail(err)
		}
		where = file
	case e.secret == "":
		return nil, errors.New("--events-url: events are signed, and there is no secret: give " + file + " (or " + command.EventsVariable +
			"), made by `echo \"whsec_$(openssl rand -base64 32)\" >events.secret`")
	}
	secrets, err := events.ParseSecrets(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return secrets, nil
}
