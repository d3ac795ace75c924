package localcassandra

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseMode(t *testing.T) {
	for text, want := range map[string]Mode{"": Auto, "auto": Auto, "docker": Docker, "java": Java} {
		if got, err := ParseMode(text); got != want || err != nil {
			t.Errorf("ParseMode(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := ParseMode("podman"); err == nil || !strings.Contains(err.Error(), "podman") {
		t.Errorf("ParseMode(podman) = %v; want an error that names it", err)
	}
}

func TestOverride(t *testing.T) {
	const yaml = "a: 1\nd: 3\nlist:\n  - a: 2\nb: 3"
	want := "list:\n  - a: 2\nb: 3\na: 4\nc: 5\n"
	if got := override(yaml, map[string]string{"a": "4", "c": "5", "d": ""}); got != want {
		t.Errorf("override = %q, want %q", got, want)
	}
}

func TestDatacenterOfEachNode(t *testing.T) {
	opts := ClusterOptions{Datacenters: []string{"east", "west"}}
	for i, want := range []string{"east", "west", "west"} {
		if got := opts.datacenter(i); got != want {
			t.Errorf("datacenter(%d) = %q, want %q", i, got, want)
		}
	}
	if got := (ClusterOptions{}).datacenter(1); got != DefaultDatacenter {
		t.Errorf("datacenter of a node without one = %q", got)
	}
	if got := opts.withDefaults().Nodes; got != 2 {
		t.Errorf("nodes of a cluster with two data centres and no number = %d, want 2", got)
	}
}

func TestFreePlacesAreDistinct(t *testing.T) {
	one, err := freePlaces(1)
	if err != nil || len(one.addresses) != 1 {
		t.Fatalf("freePlaces(1) = %v, %v", one, err)
	}
	three, err := freePlaces(3)
	if err != nil {
		t.Skipf("this system has one loopback address: %v", err)
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(three.addresses))); len(distinct) != 3 {
		t.Errorf("freePlaces(3) = %v", three)
	}
}

// A cluster starts even if the usual ports are taken on all addresses.
func TestOtherPortsWhereTheUsualOnesAreTaken(t *testing.T) {
	found, err := withFreePorts([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	if found.nativePort == found.storagePort || found.nativePort == "0" {
		t.Errorf("withFreePorts = %v; want two ports", found)
	}
	taken, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", found.nativePort))
	if err != nil {
		t.Fatalf("the port found is not free: %v", err)
	}
	defer taken.Close()
	if found.free() == nil {
		t.Errorf("%v is free, although a listener has it", found)
	}
}

// The error of a poll that times out includes the error of the last attempt.
func TestPollSaysWhatFailedLast(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*pollInterval, errors.New("out of time"))
	defer cancel()
	err := poll(ctx, func() error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errors.New("connection refused")
	})
	if err == nil || !strings.Contains(err.Error(), "out of time") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("poll = %v; want the timeout and its cause", err)
	}
	tries := 0
	err = poll(context.Background(), func() error {
		if tries++; tries < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || tries != 2 {
		t.Errorf("poll = %v after %d tries; want nil after 2", err, tries)
	}
}

// Without Java the error is ErrUnavailable, and says what to install.
func TestNoJavaIsUnavailable(t *testing.T) {
	t.Setenv("JAVA_HOME", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := Start(ctx, Options{Mode: Java})
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "Java 17") {
		t.Errorf("Start = %v; want ErrUnavailable and what to install", err)
	}
}

// TestClassesAreReadOnceTheyAreThere checks that Java gets the file of classes only if it exists, and writes one
// only when it should.
func TestClassesAreReadOnceTheyAreThere(t *testing.T) {
	of := software{java: "java", jars: "jars", classes: filepath.Join(t.TempDir(), "classes.jsa")}
	reads := "-XX:SharedArchiveFile=" + of.classes
	command := javaCommand(of, "conf", "node", ClusterOptions{})
	if slices.Contains(command, reads) {
		t.Errorf("a missing file is read: %v", command)
	}
	const writes = "-XX:ArchiveClassesAtExit=new.jsa"
	recorded := recording(command, "new.jsa")
	if at := slices.Index(recorded, writes); at < 0 || recorded[at+1] != "-cp" || recorded[len(recorded)-1] != command[len(command)-1] {
		t.Errorf("no option makes Java write the file: %v", recorded)
	}
	if err := os.WriteFile(of.classes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if command := javaCommand(of, "conf", "node", ClusterOptions{}); !slices.Contains(command, reads) {
		t.Errorf("the file is not read: %v", command)
	}
}
