// Package packaging_test checks that all released files have the version of CHANGELOG.md.
package packaging_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestVersions finds the newest release of CHANGELOG.md in each file that has a version.
func TestVersions(t *testing.T) {
	release := version(t, root, "--release")
	if !strings.Contains(read(t, root, "CHANGELOG.md"), "\n## "+release+" - ") {
		t.Fatalf("the changelog has no release %q", release)
	}
	between := regexp.MustCompile(`^` + regexp.QuoteMeta(release) + `\+g[0-9a-f]{7,}$`)
	if whole := version(t, root); whole != release && !between.MatchString(whole) {
		t.Errorf("the version of this tree is %q, the release %q", whole, release)
	}
	checkVersions(t, root, release)
}

// checkVersions checks the chart and the clients of a tree.
func checkVersions(t *testing.T, tree, release string) {
	t.Helper()
	for file, pattern := range map[string]string{
		"deploy/helm/ratelimitd/Chart.yaml": "(?m)^version: " + regexp.QuoteMeta(release) + "\nappVersion: v" + regexp.QuoteMeta(release) + "$",
		"clients/java/README.md":            "<version>" + regexp.QuoteMeta(release) + "</version>",
		"clients/spring/README.md":          "<version>" + regexp.QuoteMeta(release) + "</version>",
		"clients/python/pyproject.toml":     `(?m)^name = "ratelimitd"\nversion = "` + regexp.QuoteMeta(release) + `"$`,
		"go.mod":                            requires(release),
		"bench/go.mod":                      requires(release),
		"examples/middleware/go.mod":        requires(release),
		"internal/faults/go.mod":            requires(release),
	} {
		if !regexp.MustCompile(pattern).MatchString(read(t, tree, file)) {
			t.Errorf("%s does not have the release %s: make version", file, release)
		}
	}
	for file, artifact := range map[string]string{
		"clients/pom.xml":                   "ratelimitd-java",
		"clients/java/pom.xml":              "ratelimitd-client",
		"clients/spring/pom.xml":            "ratelimitd-spring-boot-starter",
		"clients/spring/test/boot3/pom.xml": "ratelimitd-spring-boot-3-test",
		"clients/spring/test/boot4/pom.xml": "ratelimitd-spring-boot-4-test",
	} {
		want := "<artifactId>" + artifact + "</artifactId>\n  <version>" + release + "</version>"
		if !strings.Contains(read(t, tree, file), want) {
			t.Errorf("%s does not have the release %s: make version", file, release)
		}
	}
	var own struct{ Version string }
	var lock struct {
		Version  string
		Packages map[string]struct{ Version string }
	}
	unmarshal(t, read(t, tree, "clients/typescript/package.json"), &own)
	unmarshal(t, read(t, tree, "clients/typescript/package-lock.json"), &lock)
	if own.Version != release || lock.Version != release || lock.Packages[""].Version != release {
		t.Errorf("the npm package has %q, its lock file %q and %q, want %q: make version",
			own.Version, lock.Version, lock.Packages[""].Version, release)
	}
}

// requires returns a pattern for a go.mod that requires a release of the Go client.
func requires(release string) string {
	return `(?m)^\tgithub\.com/ratelimitd/ratelimitd/client v` + regexp.QuoteMeta(release) + "( // indirect)?$"
}

// TestVersionOfNextRelease gives the changelog a new release, and writes it into copies of all files.
func TestVersionOfNextRelease(t *testing.T) {
	tree := t.TempDir()
	for _, file := range []string{
		"deploy/package/version", "deploy/helm/ratelimitd/Chart.yaml", "clients/python/pyproject.toml",
		"clients/typescript/package.json", "clients/typescript/package-lock.json", "CHANGELOG.md",
		"go.mod", "bench/go.mod", "examples/middleware/go.mod", "internal/faults/go.mod",
		"clients/java/pom.xml", "clients/java/README.md", "clients/spring/README.md",
		"clients/pom.xml", "clients/spring/pom.xml", "clients/spring/test/boot3/pom.xml", "clients/spring/test/boot4/pom.xml",
	} {
		text := read(t, root, file)
		if file == "CHANGELOG.md" {
			text = strings.Replace(text, "## Unreleased\n", "## Unreleased\n\n## 7.8.9-rc.1 - 2027-01-02\n", 1)
		}
		if err := os.MkdirAll(filepath.Join(tree, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, file), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(tree)) // a source archive has no commit
	if got := version(t, tree); got != "7.8.9-rc.1" {
		t.Errorf("without git it is %q", got)
	}
	version(t, tree, "--write")
	checkVersions(t, tree, "7.8.9-rc.1")
	const lock = "clients/typescript/package-lock.json"
	_, before, _ := strings.Cut(read(t, root, lock), `"node_modules/`)
	if _, after, _ := strings.Cut(read(t, tree, lock), `"node_modules/`); before == "" || before != after {
		t.Error("versions of dependencies have changed")
	}
}

func version(t *testing.T, tree string, args ...string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(tree, "deploy/package/version"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func read(t *testing.T, tree, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
