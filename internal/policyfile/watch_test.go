package policyfile_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// news is one call of a watcher's callback.
type news struct {
	policies []limiter.Policy
	err      error
}

// watch runs w until the test ends and returns what it tells.
func watch(t *testing.T, w *policyfile.Watcher) <-chan news {
	t.Helper()
	told := make(chan news, 16)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- w.Run(ctx, func(file policyfile.File, err error) { told <- news{file.Policies, err} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return told
}

// wantName waits for the next news, which must be of a first policy of this name.
func wantName(t *testing.T, told <-chan news, name string) {
	t.Helper()
	select {
	case n := <-told:
		if n.err != nil || len(n.policies) == 0 || n.policies[0].Name != name {
			t.Fatalf("told %+v (%v), want policy %q", n.policies, n.err, name)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("not told of policy %q within 10 s", name)
	}
}

func wantError(t *testing.T, told <-chan news) {
	t.Helper()
	select {
	case n := <-told:
		if n.err == nil {
			t.Fatalf("told %+v, want an error", n)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("not told of the error within 10 s")
	}
}

func named(name string) []byte {
	return []byte("policies: [{name: " + name + ", limits: [{algorithm: sliding-log, limit: 1, window: 1s}]}]\n")
}

// write has data in the file at once: one that is being written may be read half way.
func write(t *testing.T, path string, data []byte) {
	t.Helper()
	made := path + ".new"
	if err := os.WriteFile(made, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(made, path); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, path string) *policyfile.Watcher {
	t.Helper()
	w := policyfile.NewWatcher(path)
	if _, err := w.Load(); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWatchTellsOfChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	write(t, path, named("first"))
	w := load(t, path)
	write(t, path, named("between"))
	told := watch(t, w)
	wantName(t, told, "between") // changed before Run, and told of though nothing happened since

	write(t, path, named("renamed"))
	wantName(t, told, "renamed")

	w.Reload()
	wantName(t, told, "renamed") // asked for, so told of though nothing changed

	write(t, path, []byte("policies: 1\n"))
	wantError(t, told)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantError(t, told)
	write(t, path, named("back"))
	wantName(t, told, "back")
}

// Editors and shells may write the file that is there. It may be read half way, and what is
// wrong with it told, but what it says in the end is told, too.
func TestWatchTellsOfAFileWrittenInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	write(t, path, named("first"))
	w := load(t, path)
	told := watch(t, w)
	for range 2 { // Run has begun, and has looked for what changed before it
		w.Reload()
		wantName(t, told, "first")
	}
	if err := os.WriteFile(path, named("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	for last := time.After(10 * time.Second); ; {
		select {
		case n := <-told:
			if n.err != nil {
				continue
			}
			if len(n.policies) != 1 || n.policies[0].Name != "second" {
				t.Fatalf("told %+v, want policy \"second\"", n.policies)
			}
			return
		case <-last:
			t.Fatal("not told of what was written in place within 10 s")
		}
	}
}

// Kubernetes mounts a config map as p.yaml → ..data/p.yaml, ..data → ..2026_01,
// and replaces the link ..data.
func TestWatchFollowsConfigMaps(t *testing.T) {
	dir := t.TempDir()
	version := func(name string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, ".."+name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, ".."+name, "p.yaml"), named(name))
		next := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(".."+name, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("one")
	path := filepath.Join(dir, "p.yaml")
	if err := os.Symlink("..data/p.yaml", path); err != nil {
		t.Fatal(err)
	}
	told := watch(t, load(t, path))
	version("two")
	wantName(t, told, "two")
}

// Nothing is told of what happens in the folder that a link leads to.
func TestWatchLooksAtWhatNothingIsToldOf(t *testing.T) {
	elsewhere, path := filepath.Join(t.TempDir(), "p.yaml"), filepath.Join(t.TempDir(), "p.yaml")
	write(t, elsewhere, named("first"))
	if err := os.Symlink(elsewhere, path); err != nil {
		t.Fatal(err)
	}
	told := watch(t, load(t, path))
	write(t, elsewhere, named("second"))
	wantName(t, told, "second")
	if err := os.Remove(elsewhere); err != nil {
		t.Fatal(err)
	}
	wantError(t, told)
	write(t, elsewhere, named("third"))
	wantName(t, told, "third")
}

// Nor of a folder that was made anew.
func TestWatchLooksAtFoldersThatAreMadeAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "p.yaml")
	made := func(name string) {
		t.Helper()
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path, named(name))
	}
	made("first")
	told := watch(t, load(t, path))
	write(t, path, named("watched"))
	wantName(t, told, "watched")
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	wantError(t, told)
	made("second")
	wantName(t, told, "second")
}

func TestWatchWithoutAFolder(t *testing.T) {
	w := policyfile.NewWatcher(filepath.Join(t.TempDir(), "absent", "p.yaml"))
	told := watch(t, w)
	wantError(t, told) // the folder
	wantError(t, told) // the file
	w.Reload()
	wantError(t, told)
}
