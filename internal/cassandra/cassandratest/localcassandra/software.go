package localcassandra

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	cassandraVersion = "5.0.9" // the same as in pom.xml
	jarsTimeout      = 8 * time.Minute
	versionTimeout   = 30 * time.Second
)

//go:embed conf/pom.xml
var pomXML []byte

// javaVersion finds the version in the output of java -version: openjdk version "17.0.15" 2025-04-15.
var javaVersion = regexp.MustCompile(`version "(([0-9]+)[0-9._]*)`)

// software is the Java and Cassandra that nodes run.
type software struct {
	java string // the program
	jars string // the folder of Cassandra's jars
	// classes is Java's archive of Cassandra's loaded classes: with it a start takes two thirds of the
	// time. It is written when the first cluster is closed. Empty with Java 11, which makes none.
	classes string
}

// findSoftware lets Maven download Cassandra's jars if they are missing.
func findSoftware(ctx context.Context, logf func(string, ...any)) (software, error) {
	java, version, err := findJava(ctx)
	if err != nil {
		return software{}, err
	}
	jars, err := ensureJars(ctx, logf)
	found := software{java: java, jars: jars}
	if !strings.HasPrefix(version, "11") {
		found.classes = jars + "-java-" + version + ".jsa"
	}
	return found, err
}

// findJava returns the java of JAVA_HOME, or the one on the PATH, and its version, on which Cassandra must be able to run.
func findJava(ctx context.Context) (path, version string, err error) {
	const want = "install Java 17 (on Debian: openjdk-17-jre-headless) and Maven"
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	path, err = exec.LookPath(java)
	if err != nil {
		return "", "", fmt.Errorf("%w by Java: %s: %w", ErrUnavailable, want, err)
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return "", "", fmt.Errorf("%w by Java: %s: %s -version: %w: %s", ErrUnavailable, want, path, err, out)
	}
	found := javaVersion.FindSubmatch(out)
	if found == nil || (string(found[2]) != "17" && string(found[2]) != "11") {
		return "", "", fmt.Errorf("%w by Java: Cassandra %s runs on Java 11 and 17 only, and %s -version says %q: %s",
			ErrUnavailable, cassandraVersion, path, out, want)
	}
	return path, string(found[1]), nil
}

// ensureJars returns the folder of Cassandra's jars in the user's cache, and lets Maven fill it if it is missing. Of
// several processes at the same time, one downloads and the others wait for it.
func ensureJars(ctx context.Context, logf func(string, ...any)) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache for Cassandra's jars: %w", err)
	}
	parent := filepath.Join(cache, "ratelimitd")
	jars := filepath.Join(parent, "cassandra-"+cassandraVersion)
	if _, err := os.Stat(jars); err == nil {
		return jars, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("making the cache for Cassandra's jars: %w", err)
	}
	unlock, err := lockFile(jars + ".lock")
	if err != nil {
		return "", fmt.Errorf("locking the cache of Cassandra's jars: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(jars); err == nil {
		return jars, nil
	}
	logf("getting the jars of Cassandra %s by Maven, once, into %s", cassandraVersion, jars)
	return jars, downloadJars(ctx, jars)
}

// downloadJars lets Maven copy the jars to a temporary folder, and moves them to their place when they are complete.
func downloadJars(ctx context.Context, jars string) error {
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%w by Java: install Maven, which gets Cassandra's jars: %w", ErrUnavailable, err)
	}
	work, err := os.MkdirTemp(filepath.Dir(jars), "partial-")
	if err != nil {
		return fmt.Errorf("making a folder to download to: %w", err)
	}
	defer os.RemoveAll(work)
	pom, partial := filepath.Join(work, "pom.xml"), filepath.Join(work, "jars")
	if err := os.WriteFile(pom, pomXML, 0o600); err != nil {
		return fmt.Errorf("writing Maven's project file: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, jarsTimeout, errors.New("it took too long"))
	defer cancel()
	cmd := exec.CommandContext(ctx, maven, "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DoutputDirectory="+partial)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("getting Cassandra's jars: %v: %w (%w)\n%s", cmd.Args, err, context.Cause(ctx), out)
	}
	if err := os.Rename(partial, jars); err != nil {
		return fmt.Errorf("moving Cassandra's jars to their place: %w", err)
	}
	return nil
}
