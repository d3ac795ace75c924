package check_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	unit = root + "/deploy/package/ratelimitd.service"

	// debian is an image with dpkg in which a package is installed. The tests of the store already need it.
	debian = "cassandra:5.0"

	fromTools = "make packages builds it"
)

// packaged returns the folder of a release of this tree for one system. The others differ only in flags of the compiler.
func packaged(t *testing.T) (folder string) {
	t.Helper()
	tool(t, "nfpm", fromTools)
	tool(t, "cyclonedx-gomod", fromTools)
	folder = filepath.Join(t.TempDir(), "dist")
	runIn(t, root, nil, "deploy/package/release", folder, "linux/amd64")
	return folder
}

// one returns the only file in a folder with this suffix.
func one(t *testing.T, folder, ending string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*"+ending))
	if err != nil || len(found) != 1 {
		t.Fatalf("files with %s: %v, %v", ending, found, err)
	}
	return found[0]
}

// TestRelease builds a release, and checks each part with the tool of its users.
func TestRelease(t *testing.T) {
	dist := packaged(t)
	version := strings.TrimSpace(run(t, root+"/deploy/package/version"))
	if name := filepath.Base(one(t, dist, ".tar.gz")); name != "ratelimitd_"+version+"_linux_amd64.tar.gz" {
		t.Errorf("the archive of version %s is %s", version, name)
	}
	t.Run("checksums", func(t *testing.T) { checkSums(t, dist) })
	t.Run("archive", func(t *testing.T) { checkArchive(t, one(t, dist, ".tar.gz")) })
	t.Run("bill of materials", func(t *testing.T) { checkBill(t, one(t, dist, ".cdx.json")) })
	t.Run("rpm", func(t *testing.T) { checkRPM(t, one(t, dist, ".rpm")) })
	t.Run("deb", func(t *testing.T) { checkDeb(t, one(t, dist, ".deb")) })
}

// TestMakeDeb builds a package for this machine, with the version of CHANGELOG.md, by the command in the docs.
func TestMakeDeb(t *testing.T) {
	nfpm := tool(t, "nfpm", fromTools)
	dpkg := tool(t, "dpkg-deb", "apt-get install dpkg")
	dist := t.TempDir()
	run(t, "make", "-C", root, "deb", "DIST="+dist, "NFPM="+nfpm)
	version := strings.TrimSpace(run(t, root+"/deploy/package/version"))
	if got := strings.TrimSpace(run(t, dpkg, "--field", one(t, dist, ".deb"), "Version")); got != version {
		t.Errorf("the package has the version %q, want %q", got, version)
	}
	unpacked := t.TempDir()
	run(t, dpkg, "--extract", one(t, dist, ".deb"), unpacked)
	if out := run(t, unpacked+"/usr/bin/ratelimitd", "version"); !strings.HasPrefix(out, "ratelimitd v"+version+" ") {
		t.Errorf("the program in the package prints %q, want %q", out, version)
	}
}

func checkSums(t *testing.T, dist string) {
	sums := 0
	for line := range strings.Lines(read(t, filepath.Join(dist, "checksums.txt"))) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, filepath.Join(dist, name))))); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		sums++
	}
	if sums != 4 { // archive, bill, deb, rpm
		t.Errorf("%d files have a checksum", sums)
	}
}

func checkArchive(t *testing.T, path string) {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
	slices.Sort(names)
	if want := []string{"CHANGELOG.md", "LICENSE", "README.md", "policies.yaml", "ratelimitd", "ratelimitd.env"}; !slices.Equal(names, want) {
		t.Errorf("the archive has %v, want %v", names, want)
	}
}

func checkBill(t *testing.T, path string) {
	var bill struct {
		BOMFormat  string
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal([]byte(read(t, path)), &bill); err != nil {
		t.Fatal(err)
	}
	driver := slices.ContainsFunc(bill.Components, func(c struct{ Name, Version string }) bool {
		return strings.Contains(c.Name, "gocql") && c.Version != ""
	})
	released := "v" + strings.TrimSpace(run(t, root+"/deploy/package/version", "--release"))
	client := slices.ContainsFunc(bill.Components, func(c struct{ Name, Version string }) bool {
		return c.Name == "github.com/ratelimitd/ratelimitd/client" && c.Version == released
	})
	if !client {
		t.Errorf("the bill of materials has no Go client of version %s", released)
	}
	if bill.BOMFormat != "CycloneDX" || !driver {
		t.Errorf("format %q, driver of Cassandra: %v, of %d components", bill.BOMFormat, driver, len(bill.Components))
	}
}

// installed are the files of both packages.
var installed = []string{
	"/etc/ratelimitd", "/etc/ratelimitd/policies.yaml", "/etc/ratelimitd/ratelimitd.env", "/usr/bin/ratelimitd",
	"/usr/lib/systemd/system/ratelimitd.service", "/usr/share/doc/ratelimitd/CHANGELOG.md", "/usr/share/doc/ratelimitd/copyright",
}

func checkRPM(t *testing.T, path string) {
	rpm := tool(t, "rpm", "apt-get install rpm")
	run(t, rpm, "--checksig", "--nosignature", path)
	if files := strings.Fields(run(t, rpm, "-qpl", path)); !slices.Equal(files, installed) {
		t.Errorf("the package has %v, want %v", files, installed)
	}
	if kept := strings.Fields(run(t, rpm, "-qpc", path)); len(kept) != 2 {
		t.Errorf("files that an upgrade keeps: %v", kept)
	}
	if scripts := run(t, rpm, "-qp", "--scripts", path); strings.Count(scripts, "scriptlet") != 4 {
		t.Errorf("its scripts are\n%s", scripts)
	}
}

// checkDeb installs the package in a Debian, runs its unit's command as the unit's user, and makes a call.
func checkDeb(t *testing.T, path string) {
	engine(t)
	name := container(t, "--network=none", "--init", "-v", filepath.Dir(path)+":/dist:ro", "--entrypoint", "sleep", debian, "600")
	inside := func(args ...string) string { return run(t, "docker", append([]string{"exec", name}, args...)...) }
	deb := "/dist/" + filepath.Base(path)
	s := readUnit(t, read(t, unit))
	inside("sh", "-c", "! getent passwd "+s["User"]) // the package creates the user
	inside("dpkg", "-i", deb)
	for _, file := range installed {
		inside("test", "-e", file)
	}
	state := "/var/lib/" + s["StateDirectory"]
	inside("install", "-d", "-m", s["StateDirectoryMode"], "-o", s["User"], "-g", s["Group"], state)
	begin := func() { // like systemd
		args := []string{"exec", "-d", "-u", s["User"] + ":" + s["Group"], "-w", "/"}
		for line := range strings.Lines(inside("cat", s["EnvironmentFile"])) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				args = append(args, "-e", line)
			}
		}
		run(t, "docker", append(append(args, name), strings.Fields(s["ExecStart"])...)...)
		within(t, func() (bool, string) {
			out, err := exec.Command("docker", "exec", name, "ratelimitd", "health", "--ready").CombinedOutput()
			return err == nil, string(out)
		})
	}
	begin()
	inside("ratelimitd", "take", "sms-send", "+4915112345678")
	if user := strings.TrimSpace(inside("sh", "-c", "stat -c %U /proc/$(pidof ratelimitd)")); user != s["User"] {
		t.Errorf("the service runs as %q", user)
	}
	inside("sh", "-c", "kill $(pidof ratelimitd); while pidof ratelimitd; do sleep 0.1; done")
	begin() // the counts are still there
	if out := inside("ratelimitd", "take", "sms-send", "+49 (0)151 123 456 78"); !strings.Contains(out, "8 of 10 remaining") {
		t.Errorf("after a restart: %s", out)
	}
	checkRights(t, inside, name)
	inside("sh", "-c", "kill $(pidof ratelimitd); while pidof ratelimitd; do sleep 0.1; done")
	checkUpgradeAndRemoval(t, inside, deb, state)
}

// checkRights checks that other users can't read settings, and that the service can't change any.
func checkRights(t *testing.T, inside func(...string) string, name string) {
	t.Helper()
	rights := inside("stat", "-c", "%a %U:%G", "/etc/ratelimitd", "/etc/ratelimitd/ratelimitd.env")
	if rights != "750 root:ratelimitd\n640 root:ratelimitd\n" {
		t.Errorf("rights: %s", rights)
	}
	for user, command := range map[string]string{
		"nobody":     "cat /etc/ratelimitd/ratelimitd.env",
		"ratelimitd": "echo >>/etc/ratelimitd/policies.yaml",
	} {
		if exec.Command("docker", "exec", "-u", user, name, "sh", "-c", command).Run() == nil {
			t.Errorf("%s may: %s", user, command)
		}
	}
}

// checkUpgradeAndRemoval checks that settings outlive an upgrade and a removal, and that a purge leaves only
// the user.
func checkUpgradeAndRemoval(t *testing.T, inside func(...string) string, deb, state string) {
	t.Helper()
	inside("sh", "-c", "echo '# mine' >>/etc/ratelimitd/ratelimitd.env")
	inside("dpkg", "--force-confold", "-i", deb)
	inside("grep", "-q", "# mine", "/etc/ratelimitd/ratelimitd.env")
	inside("dpkg", "-r", "ratelimitd")
	inside("sh", "-c", "test ! -e /usr/bin/ratelimitd && test -e /etc/ratelimitd/ratelimitd.env && test -e "+state)
	inside("dpkg", "-P", "ratelimitd")
	inside("sh", "-c", "test ! -e /etc/ratelimitd && test ! -e "+state+" && getent passwd ratelimitd")
}

// readUnit returns the settings of a unit. If a setting is repeated, the last one counts.
func readUnit(t *testing.T, text string) map[string]string {
	t.Helper()
	settings := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if key, value, found := strings.Cut(lines.Text(), "="); found && !strings.HasPrefix(key, "#") {
			settings[key] = value
		}
	}
	for _, key := range []string{"User", "Group", "EnvironmentFile", "ExecStart", "StateDirectory", "StateDirectoryMode"} {
		if settings[key] == "" {
			t.Fatalf("the unit has no %s", key)
		}
	}
	return settings
}

// TestUnit lets systemd read the unit, and rate what an attacker could do from within the service.
func TestUnit(t *testing.T) {
	const most = "15" // tenths of 10: from 0, nothing, to 10
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip(err)
	}
	folder := t.TempDir()
	copied := filepath.Join(folder, "ratelimitd.service")
	write(t, copied, replace(t, read(t, unit), "/usr/bin/ratelimitd serve", program(t)+" serve"))
	if out := run(t, analyze, "verify", copied); strings.TrimSpace(out) != "" {
		t.Error(out)
	}
	run(t, analyze, "security", "--offline=true", "--no-pager", "--threshold="+most, copied)
}

// TestPackagedSettings checks that all settings are known, including those in comments.
func TestPackagedSettings(t *testing.T) {
	var env []string
	for line := range strings.Lines(read(t, root+"/deploy/package/ratelimitd.env")) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "#"); strings.HasPrefix(line, "RATELIMITD_") {
			name, value, _ := strings.Cut(line, "=")
			if value == "" {
				value = "x" // an empty one counts as absent
			}
			env = append(env, name+"="+value)
		}
	}
	if len(env) < 10 {
		t.Errorf("%d settings are found", len(env))
	}
	mustKnow(t, env)
	run(t, program(t), "policies", "lint", root+"/deploy/package/policies.yaml", root+"/deploy/compose/ratelimitd/policies.yaml")
}
