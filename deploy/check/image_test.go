package check_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// TestImage builds the image and runs it: it answers, becomes healthy, and reports when it is not.
//
// The stage that compiles would pull an image. Instead its last command is run here, on the files that
// .dockerignore lets into the build. Docker builds the other stage from the result.
func TestImage(t *testing.T) {
	engine(t)
	tag := fmt.Sprintf("ratelimitd:check-%d", os.Getpid())
	buildImage(t, tag)
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", "-f", tag).Run() })
	checkLabels(t, tag)
	if out := run(t, "docker", "run", "--rm", tag, "version"); !strings.HasPrefix(out, "ratelimitd v1.2.3 ") {
		t.Errorf("version: %s", out)
	}
	if out, err := exec.Command("docker", "run", "--rm", tag).CombinedOutput(); err == nil || !strings.Contains(string(out), "--auth-file") {
		t.Errorf("it starts without authentication: %v\n%s", err, out)
	}
	t.Run("serves", func(t *testing.T) { checkServes(t, tag) })
	t.Run("is not healthy", func(t *testing.T) { // nothing listens where health connects
		ill := container(t, soon, "--health-retries=1", "--health-start-period=1ms", "-e", "RATELIMITD_LISTEN=127.0.0.1:9999", tag)
		waitHealth(t, ill, "unhealthy")
	})
}

// soon lets Docker check the health more often than the image says.
const soon = "--health-interval=1s"

func checkServes(t *testing.T, tag string) {
	well := container(t, "--read-only", "--cap-drop=ALL", "-p", "127.0.0.1:0:8080", soon, "-e", "RATELIMITD_INSECURE_NO_AUTH=true", tag)
	waitHealth(t, well, "healthy")
	address := strings.TrimSpace(run(t, "docker", "port", well, "8080"))
	if status, body := take("http://"+address, "sms-send", "+4915112345678", ""); status != 200 || !strings.Contains(body, `"remaining":9`) {
		t.Errorf("a take: %d %s", status, body)
	}
	run(t, "docker", "stop", "--time=20", well)
	if code := strings.TrimSpace(run(t, "docker", "inspect", "-f", "{{.State.ExitCode}}", well)); code != "0" {
		t.Errorf("a stop ends with %s", code)
	}
}

func waitHealth(t *testing.T, name, want string) {
	t.Helper()
	const shown = "{{.State.Health.Status}} {{range .State.Health.Log}}{{.Output}}{{end}}"
	within(t, func() (bool, string) {
		out, err := exec.Command("docker", "inspect", "-f", shown, name).CombinedOutput()
		return err == nil && strings.HasPrefix(string(out), want+" "), string(out)
	})
}

func checkLabels(t *testing.T, tag string) {
	t.Helper()
	var labels map[string]string
	if err := json.Unmarshal([]byte(run(t, "docker", "inspect", "-f", "{{json .Config.Labels}}", tag)), &labels); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"title": "ratelimitd", "version": "v1.2.3", "revision": "abc", "licenses": "Apache-2.0"} {
		if got := labels["org.opencontainers.image."+name]; got != want {
			t.Errorf("label %s is %q, want %q", name, got, want)
		}
	}
}

var compile = regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*)$`)

// buildImage builds the image of this tree as version v1.2.3 of the commit abc.
func buildImage(t *testing.T, tag string) {
	t.Helper()
	stages := read(t, root+"/Dockerfile")
	command := compile.FindStringSubmatch(stages)
	_, last, found := strings.Cut(stages, "\nFROM scratch\n")
	if command == nil || !found {
		t.Fatal("the Dockerfile does not have the expected stages")
	}
	made := t.TempDir()
	authorities := read(t, "/etc/ssl/certs/ca-certificates.crt")
	write(t, made+"/etc/ssl/certs/ca-certificates.crt", authorities)
	script := replace(t, command[1], " -o /ratelimitd ", " -o "+made+"/ratelimitd ")
	runIn(t, buildContext(t), []string{"VERSION=v1.2.3", "GOWORK=off"}, "sh", "-c", script)
	write(t, made+"/Dockerfile", "FROM scratch\n"+replace(t, last, "COPY --from=build ", "COPY "))
	runIn(t, "", []string{"DOCKER_BUILDKIT=0"}, "docker", "build", "-q", "-t", tag,
		"--build-arg=VERSION=v1.2.3", "--build-arg=REVISION=abc", made)
}

// buildContext returns a folder with the files that .dockerignore lets into the build.
func buildContext(t *testing.T) string {
	t.Helper()
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, root+"/.dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		if err != nil || name == "." {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(name)
		switch {
		case err != nil:
			return err
		case skip && entry.IsDir():
			return filepath.SkipDir
		case !skip && entry.Type().IsRegular():
			write(t, filepath.Join(into, name), read(t, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return into
}
