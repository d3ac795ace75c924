package filewatch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/filewatch"
)

// news is one call of a watcher's callback.
type news struct {
	said string
	err  error
}

// mistake is what no file may say.
const mistake = "a mistake"

// said returns what files say, one after the other.
func said(contents [][]byte) (string, error) {
	var all []string
	for _, data := range contents {
		if string(data) == mistake {
			return "", errors.New(mistake)
		}
		all = append(all, string(data))
	}
	return strings.Join(all, " and "), nil
}

// watch runs w until the test ends and returns its reports.
func watch(t *testing.T, w *filewatch.Watcher[string]) <-chan news {
	t.Helper()
	told := make(chan news, 16)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- w.Run(ctx, func(said string, err error) { told <- news{said, err} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return told
}

// want waits for the next news, which must be that the files say this.
func want(t *testing.T, told <-chan news, said string) {
	t.Helper()
	select {
	case n := <-told:
		if n.err != nil || n.said != said {
			t.Fatalf("told %q (%v), want %q", n.said, n.err, said)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("not told of %q within 10 s", said)
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

// write has data in the file at once: one that is being written may be read half way.
func write(t *testing.T, path, data string) {
	t.Helper()
	made := path + ".new"
	if err := os.WriteFile(made, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(made, path); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, paths ...string) *filewatch.Watcher[string] {
	t.Helper()
	w := filewatch.New("words", paths, said)
	if _, err := w.Load(); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWatchTellsOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "p.yaml")
		write(t, path, "first")
		w := load(t, path)
		write(t, path, "between")
		told := watch(t, w)
		want(t, told, "between") // changed before Run, and told of though nothing happened since

		write(t, path, "renamed")
		want(t, told, "renamed")

		w.Reload()
		want(t, told, "renamed") // asked for, so told of though nothing changed

		write(t, path, mistake)
		wantError(t, told)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wantError(t, told)
		write(t, path, "back")
		want(t, told, "back")
	})
}

// A certificate and its key are two files. Each change is told of, with what the other says.
func TestWatchOfSeveralFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "other")
		write(t, one, "first")
		write(t, other, "second")
		w := load(t, one, other)
		told := watch(t, w)
		write(t, other, "third")
		want(t, told, "first and third")
		write(t, one, "fourth")
		want(t, told, "fourth and third")
		if err := os.Remove(one); err != nil {
			t.Fatal(err)
		}
		wantError(t, told)
		w.Reload()
		wantError(t, told) // one of them does not do
	})
}

// TestWatchWaitsForAFileThatIsBeingWritten changes the file in place, again before each look, until it is whole.
func TestWatchWaitsForAFileThatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "p.yaml")
		write(t, path, "")
		told := watch(t, load(t, path))
		time.Sleep(time.Second / 2) // so that each change is between two looks
		for i := range 5 {
			if err := os.WriteFile(path, []byte("whole"[:i+1]), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		want(t, told, "whole")
		time.Sleep(time.Minute)
		if len(told) > 0 {
			t.Errorf("also told %+v", <-told)
		}
	})
}

// Kubernetes mounts a config map as p.yaml → ..data/p.yaml, ..data → ..2026_01,
// and replaces the link ..data.
func TestWatchFollowsConfigMaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		version := func(name string) {
			t.Helper()
			if err := os.Mkdir(filepath.Join(dir, ".."+name), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, ".."+name, "p.yaml"), name)
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
		want(t, told, "two")
	})
}

// TestWatchFollowsLinks into another folder.
func TestWatchFollowsLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		elsewhere, path := filepath.Join(t.TempDir(), "p.yaml"), filepath.Join(t.TempDir(), "p.yaml")
		write(t, elsewhere, "first")
		if err := os.Symlink(elsewhere, path); err != nil {
			t.Fatal(err)
		}
		told := watch(t, load(t, path))
		write(t, elsewhere, "second")
		want(t, told, "second")
		if err := os.Remove(elsewhere); err != nil {
			t.Fatal(err)
		}
		wantError(t, told)
		write(t, elsewhere, "third")
		want(t, told, "third")
	})
}

// TestWatchFollowsFoldersThatAreMadeAnew removes the folder and makes it again.
func TestWatchFollowsFoldersThatAreMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "folder", "p.yaml")
		made := func(name string) {
			t.Helper()
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, path, name)
		}
		made("first")
		told := watch(t, load(t, path))
		write(t, path, "watched")
		want(t, told, "watched")
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		wantError(t, told)
		made("second")
		want(t, told, "second")
	})
}

func TestWatchWithoutAFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filewatch.New("words", []string{filepath.Join(t.TempDir(), "absent", "p.yaml")}, said)
		told := watch(t, w)
		wantError(t, told)
		w.Reload()
		wantError(t, told)
	})
}
