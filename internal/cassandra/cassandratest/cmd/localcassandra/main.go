// Command localcassandra runs Apache Cassandra on this machine until it is stopped or, if it is given a command, until
// that ends. The command finds the nodes' addresses in RATELIMITD_TEST_CASSANDRA_HOSTS:
//
//	localcassandra [-nodes 3]                       until SIGINT or SIGTERM
//	localcassandra [-nodes 3] -- go test ./...      until the command ends; exits as the command does
//
// It does not know what the nodes are used for. With RATELIMITD_TEST_CASSANDRA_HOSTS set already, a command runs on the
// nodes that it names, and no node is started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest/localcassandra"
)

const (
	maxNodes = 3 // a laptop can run three, and replication factor 3 needs them
	// commandGrace is how long the command may take to end after SIGTERM, before it is killed.
	commandGrace = 20 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "localcassandra:", err)
	}
	os.Exit(code)
}

// run returns the exit code: the command's, 0, 1 with an error, or 2 for wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, err error) {
	flags := flag.NewFlagSet("localcassandra", flag.ContinueOnError)
	flags.SetOutput(stderr)
	nodes := flags.Int("nodes", 1, "how many nodes to start")
	tuned := flags.Bool("tuned", false, "with the settings that docs/howto/cassandra.md recommends, for measuring")
	if err := flags.Parse(args); err != nil {
		return 2, nil // flags has reported the mistake
	}
	if *nodes < 1 || *nodes > maxNodes {
		return 2, fmt.Errorf("-nodes %d: want 1 to %d", *nodes, maxNodes)
	}
	if os.Getenv(localcassandra.EnvHosts) != "" && flags.NArg() > 0 {
		return runCommand(ctx, flags.Args(), os.Environ(), stdout, stderr)
	}
	cassandra, err := start(ctx, *nodes, *tuned, stderr)
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := cassandra.Stop(); stopErr != nil {
			code, err = max(code, 1), errors.Join(err, stopErr)
		}
	}()
	hosts := strings.Join(cassandra.Hosts(), ",")
	fmt.Fprintf(stdout, "cassandra ready on %s\n", hosts)
	if flags.NArg() > 0 {
		return runCommand(ctx, flags.Args(), append(os.Environ(), localcassandra.EnvHosts+"="+hosts), stdout, stderr)
	}
	<-ctx.Done()
	return 0, nil
}

func start(ctx context.Context, nodes int, tuned bool, stderr io.Writer) (*localcassandra.Running, error) {
	mode, err := localcassandra.ParseMode(os.Getenv(localcassandra.EnvMode))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(nodes)*localcassandra.StartTimeout)
	defer cancel()
	logf := func(format string, args ...any) { fmt.Fprintf(stderr, "localcassandra: "+format+"\n", args...) }
	return localcassandra.Start(ctx, localcassandra.Options{Mode: mode, Nodes: nodes, Tuned: tuned, Logf: logf})
}

// runCommand runs a command and returns its exit code. A signal to this process is passed on as SIGTERM.
func runCommand(ctx context.Context, args, env []string, stdout, stderr io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = commandGrace
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code > 0 {
			return code, nil
		}
		return 1, fmt.Errorf("running %s: %w", args[0], err) // ended by a signal
	}
	if err != nil {
		return 1, fmt.Errorf("running %s: %w", args[0], err)
	}
	return 0, nil
}
