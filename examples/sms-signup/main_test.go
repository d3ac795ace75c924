package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

func TestMain(m *testing.M) { cassandratest.Main(m) }

func TestServeServesUntilItIsStopped(t *testing.T) {
	limits := limitsThat(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"allowed": true}`) })
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"serve", "-listen", "127.0.0.1:0", "-ratelimitd", limits.url}, in, io.Discard)
		_ = in.CloseWithError(err) // never fails
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimPrefix(strings.TrimSpace(line), "listening on ")
	if got := signUp(t.Context(), new(http.Client), url, typedPhone); got.status != http.StatusAccepted {
		t.Errorf("status %d", got.status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWrongCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"":                                    "give a command",
		"dance":                               "give a command",
		"serve -nothing":                      "not defined",
		"play -ratelimitd http://127.0.0.1:1": "asking http://127.0.0.1:1 for policy sms-send",
	} {
		var usage strings.Builder
		err := run(t.Context(), strings.Fields(line), io.Discard, &usage)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", line, err)
		}
	}
	if err := run(t.Context(), []string{"play", "-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
}
