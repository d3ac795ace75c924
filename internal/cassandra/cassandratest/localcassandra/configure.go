package localcassandra

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// maxReplicas is the replication factor for which tokens are spread: the project's keyspaces have at most three
// replicas.
const maxReplicas = 3

var (
	//go:embed conf/cassandra.yaml.tmpl
	configSource string
	//go:embed conf/logback.xml
	logbackXML []byte

	configTemplate = template.Must(template.New("cassandra.yaml").Parse(configSource))
)

// The packages of Java 11 and 17 that Cassandra 5.0 needs to be open. Its own start script opens the same ones.
var (
	opened = strings.Fields(`
		java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect java.base/java.io java.base/java.nio
		java.base/java.util java.base/java.util.concurrent java.base/java.util.concurrent.atomic java.base/sun.nio.ch
		java.base/jdk.internal.loader java.base/jdk.internal.ref java.base/jdk.internal.reflect java.base/jdk.internal.math
		java.base/jdk.internal.module java.base/jdk.internal.util.jar jdk.management/com.sun.management.internal
		java.rmi/sun.rmi.transport.tcp`)
	exported = strings.Fields(`
		java.base/jdk.internal.misc java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry
		java.rmi/sun.rmi.server java.rmi/sun.rmi.transport.tcp java.sql/java.sql java.base/java.lang.ref jdk.unsupported/sun.misc`)
)

// The settings of Options.Tuned; docs/howto/cassandra.md has the reasons.
const (
	tunedHeapMB   = 1024
	trieMemtables = "{configurations: {trie: {class_name: TrieMemtable}, default: {inherits: trie}}}"
)

// tunedJava has the Java options of Cassandra 5.0's own package (jvm-server.options, jvm17-server.options), without
// assertions, because they make it slower.
var tunedJava = []string{
	"-XX:+ParallelRefProcEnabled", "-XX:MaxTenuringThreshold=1", "-XX:G1HeapRegionSize=16m", "-XX:G1RSetUpdatingPauseTimePercent=5",
	"-XX:MaxGCPauseMillis=300", "-XX:InitiatingHeapOccupancyPercent=70", "-XX:+AlwaysPreTouch", "-XX:+PerfDisableSharedMem",
	"-Dio.netty.tryReflectionSetAccessible=true", "-Dio.netty.allocator.useCacheForAllThreads=true", "-Dio.netty.allocator.maxOrder=11",
	"-XX:+IgnoreUnrecognizedVMOptions", // for other versions of Java
}

var tunedConfig = map[string]string{
	"memtable":                 trieMemtables,
	"memtable_allocation_type": "offheap_objects",
}

// sharedConfig is for nodes of Start, which are never killed: they need not sync writes, which parks a thread for
// each write, and their timeouts are long, so that they answer late on a busy machine instead of failing.
var sharedConfig = map[string]string{
	"auto_snapshot":                 "false",
	"commitlog_sync":                "periodic",
	"commitlog_sync_group_window":   "",
	"commitlog_sync_period":         "10s",
	"read_request_timeout":          "10s",
	"range_request_timeout":         "10s",
	"write_request_timeout":         "10s",
	"counter_write_request_timeout": "10s",
}

// schemaUnflushed keeps a node from flushing each change of a schema to files at once, which is half of a change's
// time. A killed node may lose such a change when it starts again, but nodes of Start are never killed.
const schemaUnflushed = "-Dcassandra.test.flush_local_schema_changes=false"

// quickStart makes nodes start within seconds. A new one need not wait half a minute for a ring that is minutes old and on the
// same machine.
var quickStart = []string{
	"-Dcassandra.ring_delay_ms=2000",
	"-Dcassandra.skip_wait_for_gossip_to_settle=0",
	"-Dcassandra.consistent.rangemovement=false",
	"-Dcassandra.memtable.row_overhead_size=181", // the result of a measurement that takes two seconds at each start
}

// unoptimized is Java without its optimizing compiler: see ClusterOptions.Lasting.
const unoptimized = "-XX:TieredStopAtLevel=1"

// slackenAndRun runs the command in its arguments after the first, which is the timer slack in nanoseconds: how late
// Linux may wake up sleeping threads. Wake-ups are a quarter of an idle node's cost. Other systems have no timer slack.
const (
	slackenAndRun = `{ echo "$0" >/proc/self/timerslack_ns; } 2>/dev/null; exec "$@"`
	slack         = "500000"
)

// configure writes the node's folder and sets the command that runs it. JMX stays closed, so it needs no port.
func (n *Node) configure(opts ClusterOptions, datacenter string, in places, of software) error {
	conf := filepath.Join(n.dir, "conf")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		return fmt.Errorf("making the folder of node %s: %w", n.address, err)
	}
	yaml, err := n.config(opts, in)
	if err != nil {
		return fmt.Errorf("configuring node %s: %w", n.address, err)
	}
	for name, content := range map[string][]byte{
		"cassandra.yaml":              []byte(yaml),
		"logback.xml":                 logbackXML,
		"cassandra-rackdc.properties": []byte("dc=" + datacenter + "\nrack=rack1\n"),
	} {
		if err := os.WriteFile(filepath.Join(conf, name), content, 0o600); err != nil {
			return fmt.Errorf("configuring node %s: %w", n.address, err)
		}
	}
	n.command = javaCommand(of, conf, n.dir, opts)
	return nil
}

func (n *Node) config(opts ClusterOptions, in places) (string, error) {
	var out strings.Builder
	err := configTemplate.Execute(&out, map[string]any{
		"Cluster": "local-" + in.addresses[0], "Dir": n.dir, "Addr": n.address, "Seed": in.addresses[0],
		"NativePort": in.nativePort, "StoragePort": in.storagePort,
		"ReplicationFactor": min(opts.Nodes, maxReplicas),
	})
	return override(out.String(), opts.Config), err
}

// override replaces or adds one-line settings by name, and drops those with an empty value.
func override(yaml string, settings map[string]string) string {
	lines := slices.DeleteFunc(strings.Split(yaml, "\n"), func(line string) bool {
		name, _, isSetting := strings.Cut(line, ":")
		_, replaced := settings[name]
		return isSetting && replaced
	})
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if settings[name] != "" {
			lines = append(lines, name+": "+settings[name])
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func javaCommand(of software, conf, dir string, opts ClusterOptions) []string {
	heap := strconv.Itoa(opts.HeapMB) + "M"
	command := []string{
		"/bin/sh", "-c", slackenAndRun, slack,
		of.java, "-Xms" + heap, "-Xmx" + heap, "-Xss256k", "-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError",
		"-Djdk.attach.allowAttachSelf=true",
		"-Dcassandra.storagedir=" + dir,
		"-Dcassandra.config=file://" + filepath.Join(conf, "cassandra.yaml"),
		"-Dcassandra-rackdc.properties=file://" + filepath.Join(conf, "cassandra-rackdc.properties"),
		"-Dlogback.configurationFile=" + filepath.Join(conf, "logback.xml"),
	}
	command = append(command, quickStart...)
	if !opts.Lasting {
		command = append(command, unoptimized)
	}
	if _, err := os.Stat(of.classes); err == nil {
		command = append(command, "-XX:SharedArchiveFile="+of.classes)
	}
	for _, p := range opened {
		command = append(command, "--add-opens", p+"=ALL-UNNAMED")
	}
	for _, p := range exported {
		command = append(command, "--add-exports", p+"=ALL-UNNAMED")
	}
	command = append(command, opts.JavaOptions...)
	return append(command, "-cp", filepath.Join(of.jars, "*"), "org.apache.cassandra.service.CassandraDaemon")
}

// recording returns command with an option that makes Java write the classes that it loaded when it ends cleanly.
func recording(command []string, file string) []string {
	return slices.Insert(slices.Clone(command), slices.Index(command, "-cp"), "-XX:ArchiveClassesAtExit="+file)
}
