package localcassandra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/watchdog"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/cassandra"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	image = "cassandra:5.0"
	// tune applies the settings of Options.Tuned to the image's configuration.
	tune = `yaml=/etc/cassandra/cassandra.yaml; ` +
		`sed -i -e 's/^commitlog_sync:.*/commitlog_sync: group/' -e 's/^commitlog_sync_period:.*/commitlog_sync_group_window: 1ms/' ` +
		`-e 's/inherits: skiplist/inherits: trie/' -e '/^memtable_allocation_type:/d' -e '/^auto_snapshot:/d' $yaml && ` +
		`printf 'memtable_allocation_type: offheap_objects\nauto_snapshot: false\n' >>$yaml && { grep -q ^memtable: $yaml || ` +
		`echo 'memtable: ` + trieMemtables + `' >>$yaml; } && ` +
		slackenAndRun
)

// configure edits one-line settings of the image, which has no environment variables for them, and then runs it.
func configure(settings map[string]string) string {
	script := "yaml=/etc/cassandra/cassandra.yaml; "
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		script += fmt.Sprintf("sed -i '/^%s:/d' $yaml && ", name)
		if value := settings[name]; value != "" {
			script += fmt.Sprintf("echo '%s: %s' >>$yaml && ", name, value)
		}
	}
	return script + slackenAndRun
}

// containers are the nodes, and their network and watchdog.
type containers struct {
	network *testcontainers.DockerNetwork
	nodes   []testcontainers.Container
	dog     *watchdog.Watchdog
}

// startDocker starts the nodes as containers, one after the other. Several nodes need container addresses that can be
// reached from here, which an engine in a virtual machine does not provide.
func startDocker(ctx context.Context, opts Options) (*Running, error) {
	log.SetDefault(quiet)
	if err := dockerAnswers(ctx); err != nil {
		return nil, fmt.Errorf("%w by Docker: install Docker and start its engine: %w", ErrUnavailable, err)
	}
	if opts.Nodes > 1 && runtime.GOOS != "linux" {
		return nil, fmt.Errorf("%d nodes by Docker need Linux; set %s=java", opts.Nodes, EnvMode)
	}
	started := &containers{}
	if opts.Nodes > 1 {
		var err error
		if started.network, err = network.New(ctx); err != nil {
			return nil, fmt.Errorf("making a network for Cassandra's nodes: %w", err)
		}
	}
	running := &Running{stop: started.stop}
	var seed string
	for range opts.Nodes {
		opts.Logf("starting %s by Docker", image)
		ip, err := started.add(ctx, seed, opts.Tuned)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("starting %s by Docker: %w", image, err), started.stop())
		}
		if seed == "" {
			seed = ip
		}
		running.hosts = append(running.hosts, net.JoinHostPort(ip, nativePort))
	}
	return running, nil
}

// dockerAnswers returns nil if there is a Docker engine. The library panics if it finds none at all.
func dockerAnswers(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("looking for a Docker engine: %v", r)
		}
	}()
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return err
	}
	return errors.Join(provider.Health(ctx), provider.Close())
}

// add starts one more node, which joins the seed, or becomes the seed if that is empty, and returns its address.
func (c *containers) add(ctx context.Context, seed string, tuned bool) (string, error) {
	options := []testcontainers.ContainerCustomizer{
		// The module waits for a published port, which cannot be reached from inside another container; waitContainer can.
		testcontainers.WithWaitStrategy(wait.ForNop(func(context.Context, wait.StrategyTarget) error { return nil })),
		testcontainers.WithLogger(quiet),
		testcontainers.WithEnv(map[string]string{"CASSANDRA_SEEDS": seed}),
	}
	script, java, heapMB := configure(sharedConfig), []string{schemaUnflushed, unoptimized}, defaultHeapMB
	if tuned {
		script, java, heapMB = tune, []string{schemaUnflushed}, tunedHeapMB
	}
	java = append(java, quickStart...)
	options = append(options,
		testcontainers.WithEntrypoint("bash", "-c", script, slack, "docker-entrypoint.sh", "cassandra", "-f"),
		testcontainers.WithEnv(map[string]string{"JVM_OPTS": strings.Join(java, " "), "MAX_HEAP_SIZE": strconv.Itoa(heapMB) + "M"}))
	if c.network != nil {
		options = append(options, network.WithNetwork(nil, c.network))
	}
	if runtime.GOOS != "linux" {
		// The driver connects to the address that a node reports, so the port here must be the node's own.
		options = append(options, testcontainers.WithExposedPorts(nativePort+":"+nativePort+"/tcp"),
			testcontainers.WithEnv(map[string]string{"CASSANDRA_BROADCAST_RPC_ADDRESS": "127.0.0.1"}))
	}
	node, err := cassandra.Run(ctx, image, options...)
	if node != nil && node.Container != nil {
		c.nodes = append(c.nodes, node)
		err = errors.Join(err, c.guard())
	}
	if err != nil {
		return "", err
	}
	ip := "127.0.0.1"
	if runtime.GOOS == "linux" {
		if ip, err = node.ContainerIP(ctx); err != nil {
			return "", err
		}
	}
	return ip, waitContainer(ctx, node, net.JoinHostPort(ip, nativePort))
}

// waitContainer returns when the node answers a query, or with an error as soon as its container has ended.
func waitContainer(ctx context.Context, node testcontainers.Container, addr string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("no answer within %v", readyTimeout))
	defer cancel()
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	err := poll(ctx, func() error {
		state, err := node.State(ctx)
		if err == nil && !state.Running {
			ended(fmt.Errorf("its container ended with code %d", state.ExitCode))
		}
		return answers(ctx, addr)
	})
	if err != nil {
		return fmt.Errorf("node %s did not start: %w\nthe end of its log:\n%s", addr, err, containerLogTail(node))
	}
	return nil
}

func containerLogTail(node testcontainers.Container) string {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	logs, err := node.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	all, err := io.ReadAll(logs)
	if err != nil {
		return err.Error()
	}
	return string(all[max(0, len(all)-logTailBytes):])
}

// guard starts a watchdog that removes all containers so far if this process dies. Testcontainers' reaper does that, too,
// but needs another image, and is often switched off.
func (c *containers) guard() error {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return nil // without Docker's command, only the reaper is left
	}
	const removeAll = `docker=$0 network=$1; shift; "$docker" rm -f -v "$@"; [ -z "$network" ] || "$docker" network rm "$network"`
	command := []string{"/bin/sh", "-c", removeAll, docker, ""}
	if c.network != nil {
		command[4] = c.network.ID
	}
	for _, node := range c.nodes {
		command = append(command, node.GetContainerID())
	}
	if err := c.dog.StandDown(); err != nil {
		return err
	}
	c.dog, err = watchdog.Start(command...)
	return err
}

// stop removes the containers, their volumes and their network.
func (c *containers) stop() error {
	var errs []error
	for _, node := range c.nodes {
		errs = append(errs, testcontainers.TerminateContainer(node, testcontainers.StopTimeout(0)))
	}
	if c.network != nil {
		errs = append(errs, c.network.Remove(context.Background()))
	}
	errs = append(errs, c.dog.StandDown())
	return errors.Join(errs...)
}
