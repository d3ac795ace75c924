package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// cassandraConfig reads the files that the settings name.
func (s *settings) cassandraConfig(log *slog.Logger) (cassandra.Config, error) {
	c := &s.cassandra
	password, passwordErr := c.readPassword()
	tlsConfig, tlsErr := c.tls.read()
	if err := errors.Join(passwordErr, tlsErr); err != nil {
		return cassandra.Config{}, err
	}
	return cassandra.Config{
		Hosts:             c.hosts.hosts,
		Keyspace:          c.keyspace,
		Datacenter:        c.datacenter,
		Replication:       c.replication,
		Username:          c.username,
		Password:          password,
		TLS:               tlsConfig,
		Timeout:           s.storeTimeout,
		Consistency:       s.levels(),
		SerialConsistency: string(c.serialConsistency),
		ClockTolerance:    s.clockTolerance,
		Logger:            log,
		Now:               now,
	}, nil
}

// readPassword returns the password for the user name, from the file or from the
// environment. Each needs the other.
func (c *cassandraSettings) readPassword() (string, error) {
	password := c.password
	switch {
	case password != "" && c.passwordFile != "":
		return "", errors.New("both " + passwordVariable + " and --cassandra-password-file are set: keep one of them")
	case c.passwordFile != "":
		data, err := yamlfile.Read(c.passwordFile)
		if err != nil {
			return "", fmt.Errorf("reading the password: %w", err)
		}
		password = strings.TrimRight(string(data), "\r\n")
	}
	if (password == "") != (c.username == "") {
		return "", errors.New("--cassandra-username and a password (--cassandra-password-file or " + passwordVariable + ") need each other")
	}
	return password, nil
}

// read returns how to speak TLS, nil when that is off.
func (t *tlsSettings) read() (*tls.Config, error) {
	if !t.on {
		if t.ca != "" || t.cert != "" || t.key != "" || t.serverName != "" {
			return nil, errors.New("a --cassandra-tls-... setting does nothing without --cassandra-tls: add that or remove it")
		}
		return nil, nil
	}
	config, err := clientTLS(clientFiles{"--cassandra-tls-ca", t.ca, "--cassandra-tls-cert", t.cert, "--cassandra-tls-key", t.key})
	if err != nil {
		return nil, err
	}
	config.ServerName = t.serverName
	return config, nil
}
