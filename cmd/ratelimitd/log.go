package main

import (
	"bytes"
	"io"
	"log"
	"log/slog"
	"regexp"

	"github.com/ratelimitd/ratelimitd/internal/gate"
)

// newLog returns a log to w in the format that was asked for.
func (s *settings) newLog(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.logLevel}
	if s.logFormat == logJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// serverLog returns what an http.Server logs to, at a level of to. Addresses are taken out of
// its lines: those of clients may be who is limited. Of failed handshakes, which everybody can
// cause as often as they like, there is a line a second.
func serverLog(to *slog.Logger, level slog.Level) *log.Logger {
	return log.New(&serverLines{to: slog.NewLogLogger(to.Handler(), level).Writer()}, "", 0)
}

// standardLog has lines of the standard log, which net/http's client of the application writes
// to, end up in the log of the process, as warnings.
func standardLog(to *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(serverLog(to, slog.LevelWarn).Writer())
}

type serverLines struct {
	to         io.Writer
	handshakes gate.Second
}

// addressAndPort is an address as package net writes it.
var addressAndPort = regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.]+(%\w+)?\]):\d+`)

// quotation begins what net/http repeats of an answer that nobody asked for: it may be about
// anybody.
var quotation = []byte(" starting with ")

// Write logs one line.
func (s *serverLines) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) && !s.handshakes.Open(now()) {
		return len(line), nil
	}
	said, _, _ := bytes.Cut(line, quotation)
	if _, err := s.to.Write(addressAndPort.ReplaceAll(said, []byte("a client"))); err != nil {
		return 0, err
	}
	return len(line), nil
}
