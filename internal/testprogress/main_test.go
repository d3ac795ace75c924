package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestProgress follows a run of two packages, of which one fails and a third does not compile.
func TestProgress(t *testing.T) {
	const events = `{"Action":"start","Package":"a"}
{"Action":"start","Package":"b"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"nobody asks\n"}
{"Action":"pass","Package":"a","Test":"TestGood","Elapsed":1}
{"Action":"output","Package":"a","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"the reason\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"--- FAIL: TestBad (0.01s)\n"}
{"Action":"fail","Package":"a","Test":"TestBad","Elapsed":0.01}
{"Action":"output","Package":"a","Test":"TestUnfinished","Output":"panic: at the disco\n"}
{"Action":"output","Package":"a","Output":"-test.shuffle 7\n"}
{"Action":"fail","Package":"a","Elapsed":2}
{"Action":"skip","Package":"b","Test":"TestLazy","Elapsed":0}
{"Action":"output","Package":"b","Output":"ok b\n"}
{"Action":"pass","Package":"b","Elapsed":4}
{"ImportPath":"c","Action":"build-output","Output":"c.go:1: undefined: x\n"}
{"Action":"start","Package":"c"}
{"Action":"fail","Package":"c","Elapsed":0}
no event
`
	want := `...   a
...   b: 10 s the last time
the reason
--- FAIL: TestBad (0.01s)
panic: at the disco
-test.shuffle 7
FAIL  a 2.0 s; 2 left, about 9 s
ok    b 4.0 s; 1 left
c.go:1: undefined: x
...   c
FAIL  c 0.0 s; 0 left
no event
FAIL: a, c
1 skipped: b.TestLazy
`
	var out strings.Builder
	now := time.Unix(0, 0)
	p := &progress{
		out: &out, flags: "-race", times: map[string]float64{"-race b": 10, "b": 99}, left: map[string]*state{"a": {}, "b": {}, "c": {}},
		now: func() time.Time { now = now.Add(time.Second); return now }, // at each look
	}
	p.read(strings.NewReader(events))
	p.end()
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if p.times["-race b"] != 4 || p.times["-race a"] != 0 || p.times["b"] != 99 {
		t.Errorf("times of the next run: %v", p.times)
	}
}

// TestExitCode has a test that passes and one that fails run by go test.
func TestExitCode(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a package")
	}
	t.Setenv("GOWORK", "off")
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod":    "module m\n",
		"a_test.go": "package m\n\nimport \"testing\"\n\nfunc TestGood(*testing.T) {}\n\nfunc TestBad(t *testing.T) { t.Fatal(\"bad\") }\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	times := filepath.Join(t.TempDir(), "times.json")
	if err := run(t.Context(), []string{"-run", "TestGood", "."}, &out, times); err != nil || !strings.Contains(out.String(), "ok    m ") {
		t.Errorf("%v\n%s", err, &out)
	}
	if text, err := os.ReadFile(times); err != nil || !strings.Contains(string(text), `"-run TestGood m": `) {
		t.Errorf("%v\n%s", err, text)
	}
	if err := run(t.Context(), []string{"-run", "TestBad", "."}, &out, times); err == nil || !strings.Contains(out.String(), "FAIL: m\n") {
		t.Errorf("%v\n%s", err, &out)
	}
}
