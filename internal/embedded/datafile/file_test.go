package datafile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/embedded/datafile"
)

func open(t *testing.T, folder string) *datafile.File {
	t.Helper()
	f, err := datafile.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// load returns the records of f as "table/key=value".
func load(t *testing.T, f *datafile.File) (found []string) {
	t.Helper()
	err := f.Load(func(r *embedded.Record) error {
		found = append(found, fmt.Sprintf("%s/%s=%s", r.Table, r.Key, r.Value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestRecords(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "made", "when missing")
	f := open(t, folder)
	for _, step := range []struct {
		save []embedded.Record
		want string
	}{
		{nil, "[]"},
		{[]embedded.Record{{Table: embedded.TableKeys, Key: []byte("a"), Value: []byte("1")}}, "[keys/a=1]"},
		{[]embedded.Record{
			{Table: embedded.TableKeys, Key: []byte("b"), Value: []byte("2")},
			{Table: embedded.TableChanges, Key: []byte("a"), Value: []byte("3")},
		}, "[keys/a=1 keys/b=2 changes/a=3]"},
		{[]embedded.Record{
			{Table: embedded.TableKeys, Key: []byte("a")},
			{Table: embedded.TableKeys, Key: []byte("absent")},
			{Table: embedded.TableKeys, Key: []byte("b"), Value: []byte("4")},
		}, "[keys/b=4 changes/a=3]"},
	} {
		if err := f.Save(step.save); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(load(t, f)); got != step.want {
			t.Errorf("records are %s, want %s", got, step.want)
		}
	}
	wrong := []embedded.Record{{Table: embedded.TableKeys, Key: []byte("c"), Value: []byte("5")}, {Table: "absent", Key: []byte("a")}}
	if err := f.Save(wrong); err == nil {
		t.Error("a record of a table that is not there was saved")
	}
	if got := fmt.Sprint(load(t, f)); got != "[keys/b=4 changes/a=3]" {
		t.Errorf("after a save that failed records are %s", got)
	}
	info, err := os.Stat(filepath.Join(folder, datafile.Name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	folder := t.TempDir()
	open(t, folder)
	_, err := datafile.Open(folder)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(folder, datafile.Name)+" is in use by another process: stop that one") {
		t.Errorf("opened twice: %v", err)
	}
}

// TestWhatCannotBeReadIsLeftAsItIs opens files that are not, or no longer, what this
// version writes.
func TestWhatCannotBeReadIsLeftAsItIs(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(t *testing.T, path string)
		want  string
	}{
		{"another kind of file", func(t *testing.T, path string) {
			write(t, path, bytes.Repeat([]byte("no database"), 1000))
		}, "can't be read, and was left as it is"},
		{"the first half of it", func(t *testing.T, path string) {
			write(t, path, read(t, path)[:len(read(t, path))/2])
		}, "can't be read, and was left as it is"},
		{"its first pages", func(t *testing.T, path string) { write(t, path, read(t, path)[:8192]) }, "can't be read, and was left as it is"},
		{"with pages overwritten", func(t *testing.T, path string) {
			b := read(t, path)
			for i := 2 * 4096; i < len(b); i++ {
				b[i] = 0xff
			}
			write(t, path, b)
		}, "can't be read, and was left as it is"},
		{"a later format", func(t *testing.T, path string) {
			update(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte{2}) })
		}, "format 2 is written by a later version of ratelimitd: run that one, or give this one a folder of its own"},
		{"somebody else's database", func(t *testing.T, path string) {
			update(t, path, func(tx *bbolt.Tx) error {
				_, err := tx.CreateBucket([]byte("theirs"))
				return err
			}, "meta", "keys", "changes")
		}, `it contains "theirs", which is not ratelimitd's`},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, datafile.Name)
			f := open(t, folder)
			var records []embedded.Record
			for i := range 100 {
				r := embedded.Record{Table: embedded.TableKeys, Key: fmt.Append(nil, i), Value: bytes.Repeat([]byte("value"), 100)}
				records = append(records, r)
			}
			if err := errors.Join(f.Save(records), f.Close()); err != nil {
				t.Fatal(err)
			}
			test.spoil(t, path)
			before := read(t, path)
			spoiled, err := datafile.Open(folder)
			if err == nil {
				err = spoiled.Load(func(*embedded.Record) error { return nil })
				_ = spoiled.Close()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("opened: %v\nwant %s", err, test.want)
			}
			if !bytes.Equal(read(t, path), before) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestFolderThatIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, nil)
	if _, err := datafile.Open(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("opened: %v", err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// update changes the database in path, without the buckets named.
func update(t *testing.T, path string, change func(*bbolt.Tx) error, without ...string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range without {
			if err := tx.DeleteBucket([]byte(name)); err != nil {
				return err
			}
		}
		return change(tx)
	})
	if err != nil {
		t.Fatal(err)
	}
}
