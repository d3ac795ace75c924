// Command ratelimitd serves rate limits over HTTP and keeps the counts in memory
// or in Apache Cassandra. It also asks such a server, from a shell.
//
// This package has the parts that depend on the process: signals, clock, version. The commands are in internal/cli.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // calendar windows in zones, on machines without a zone database

	"github.com/ratelimitd/ratelimitd/internal/cli"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	process := &command.Process{Version: version(), Environ: os.Environ(), Now: now}
	os.Exit(cli.Run(ctx, process, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
