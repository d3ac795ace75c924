package serve

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"log/slog"
	"regexp"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/throttle"
)

// serverLog returns the log of an http.Server, whose lines go to the service's log at this level. It removes addresses,
// because those of clients may be identifiers. Strangers can cause any number of lines, so it writes at most one a
// second about failed handshakes, and one about everything else.
func (s *service) serverLog(level slog.Level) *log.Logger {
	return log.New(&serverLines{to: slog.NewLogLogger(s.log.Handler(), level).Writer(), now: s.process.Now}, "", 0)
}

// takeStandardLog sends lines of the standard log to the log of the service, as warnings, until back is called. The
// client of the application, of net/http, knows no other log.
func (s *service) takeStandardLog() (back func()) {
	flags, out := log.Flags(), log.Writer()
	log.SetFlags(0)
	log.SetOutput(s.serverLog(slog.LevelWarn).Writer())
	return func() {
		log.SetFlags(flags)
		log.SetOutput(out)
	}
}

type serverLines struct {
	to         io.Writer
	now        func() time.Time
	handshakes throttle.Lines
	others     throttle.Lines
}

// addressAndPort is an address as package net writes it.
var addressAndPort = regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.]+(%\w+)?\]):\d+`)

// quotation begins net/http's quotation of an unexpected answer, which may contain an identifier.
var quotation = []byte(" starting with ")

// Write logs one line.
func (s *serverLines) Write(line []byte) (int, error) {
	lines := &s.others
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		lines = &s.handshakes
	}
	unlogged, pass := lines.Pass(s.now())
	if !pass {
		return len(line), nil
	}
	said, _, _ := bytes.Cut(line, quotation)
	said = addressAndPort.ReplaceAll(bytes.TrimRight(said, "\n"), []byte("a client"))
	if unlogged > 0 {
		said = fmt.Appendf(said, " (%d more lines like it before)", unlogged)
	}
	if _, err := s.to.Write(said); err != nil {
		return 0, err
	}
	return len(line), nil
}
