package main

import (
	"io"
	"log/slog"
)

// newLog returns a log to w in the format that was asked for.
func (s *settings) newLog(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.logLevel}
	if s.logFormat == logJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
