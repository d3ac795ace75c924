package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisServer returns the program. On Debian it installs it if necessary, as root.
func redisServer(ctx context.Context, log io.Writer) (string, error) {
	const name = "redis-server"
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 {
		return "", errors.New("redis_rate needs a redis-server (Debian: apt-get install redis-server); or leave it out with -peers")
	}
	fmt.Fprintln(log, "installing redis-server")
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", name}} {
		install := exec.CommandContext(ctx, "apt-get", args...)
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := install.CombinedOutput(); err != nil {
			return "", fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return exec.LookPath(name)
}

// startRedis starts a Redis without persistence, with further settings.
func (b *bench) startRedis(ctx context.Context, settings ...string) (p *process, address string, err error) {
	program, err := redisServer(ctx, b.log)
	if err != nil {
		return nil, "", err
	}
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	settings = append([]string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no"}, settings...)
	if p, err = b.start(program, settings...); err != nil {
		return nil, "", err
	}
	address = net.JoinHostPort("127.0.0.1", port)
	if err := p.ready(func() error { return ping(address) }); err != nil {
		return nil, "", errors.Join(err, p.stop())
	}
	return p, address, nil
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}

func ping(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	const pong = "+PONG\r\n"
	answer := make([]byte, len(pong))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if string(answer) != pong {
		return fmt.Errorf("redis answers %q", answer)
	}
	return nil
}

// inStep returns nil once the Redis at address is a replica that follows its primary.
func inStep(ctx context.Context, address string) error {
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	info, err := client.Info(ctx, "replication").Result()
	if err == nil && !strings.Contains(info, "master_link_status:up") {
		err = errors.New("the replica does not follow yet")
	}
	return err
}
