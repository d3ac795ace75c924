package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// beMain makes the test binary the program itself.
const beMain = "BE_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(beMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestVersion(t *testing.T) {
	printed := make(map[string]string)
	for _, arg := range []string{"version", "--version"} {
		cmd := exec.Command(os.Args[0], arg)
		cmd.Env = append(os.Environ(), beMain+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		printed[arg] = string(out)
	}
	got := printed["version"]
	if !strings.HasPrefix(got, "ratelimitd ") || !strings.Contains(got, " go1.") || strings.Count(got, "\n") != 1 {
		t.Errorf("version prints %q", got)
	}
	if printed["--version"] != got {
		t.Errorf("--version prints %q, version %q", printed["--version"], got)
	}
}

func TestSignalsEndTheProgram(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "serve")
			cmd.Env = append(os.Environ(), beMain+"=1", "RATELIMITD_LISTEN=127.0.0.1:0")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "listening on http://127.0.0.1:") {
				t.Errorf("first line %q, %v", line, err)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("ended with %v, want exit code 0", err)
			}
		})
	}
}
