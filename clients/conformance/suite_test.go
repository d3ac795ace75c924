package conformance_test

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// serve starts a ratelimitd of the suite's policies, and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	binary := os.Getenv("RATELIMITD_BIN")
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "ratelimitd")
		if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/ratelimitd").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	server := exec.Command(binary, "serve", "--listen", "127.0.0.1:0", "--policies", "policies.yaml")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // the error is that it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("ratelimitd said %q, %v", line, err)
	}
	return url
}

// readCases reads the cases of a file.
func readCases[C any](t *testing.T, file string) []C {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("cases", file+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []C
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(cases) == 0 {
		t.Fatalf("%s has no cases", file)
	}
	return cases
}

// names returns the value of $name: one that a step saved, or else a text of this case alone.
type names struct {
	values map[string]string
	prefix string
}

func newNames() *names { return &names{make(map[string]string), rand.Text()} }

func (n *names) resolved(t *testing.T, s *step) *step {
	t.Helper()
	asked := *s
	asked.Expect, asked.Save = nil, nil
	var changed step
	text, err := json.Marshal(n.replace(plain(t, asked)))
	if err == nil {
		err = json.Unmarshal(text, &changed)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &changed
}

func (n *names) replace(value any) any {
	switch v := value.(type) {
	case string:
		if saved, ok := n.values[v]; ok {
			return saved
		}
		if strings.HasPrefix(v, "$") {
			return n.prefix + v
		}
	case []any:
		for i := range v {
			v[i] = n.replace(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = n.replace(v[name])
		}
	}
	return value
}

// plain returns value after a round trip through JSON.
func plain(t *testing.T, value any) (v any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// match checks that got has all members of want.
func match(t *testing.T, got, want any, where string) {
	t.Helper()
	switch w := want.(type) {
	case nil:
		if got != nil && where != "" && strings.Contains(where, ".") {
			t.Errorf("%s: %v, want null", where, got)
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			t.Errorf("%s: %v, want %v", where, got, want)
			return
		}
		for i := range w {
			match(t, g[i], w[i], where+"[]")
		}
	case map[string]any:
		matchMembers(t, got, w, where)
	default:
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", where, got, want)
		}
	}
}

func matchMembers(t *testing.T, got any, want map[string]any, where string) {
	t.Helper()
	if present, ok := want["$present"]; ok {
		if (got != nil && got != "") != present {
			t.Errorf("%s: %v, want present: %v", where, got, present)
		}
		return
	}
	if least, ok := want["$at_least"].(float64); ok {
		most, _ := want["$at_most"].(float64)
		if g, ok := got.(float64); !ok || g < least || g > most {
			t.Errorf("%s: %v, want %v to %v", where, got, least, most)
		}
		return
	}
	members, ok := got.(map[string]any)
	if !ok {
		t.Errorf("%s: %v, want %v", where, got, want)
		return
	}
	for name, w := range want {
		match(t, members[name], w, where+"."+name)
	}
}
