package datafile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/embedded/datafile"
)

// FuzzDamagedFile opens a file of which some bytes are others: it has an error or
// records, and is left as it is.
func FuzzDamagedFile(f *testing.F) {
	folder := f.TempDir()
	file, err := datafile.Open(folder)
	if err != nil {
		f.Fatal(err)
	}
	records := make([]embedded.Record, 50)
	for i := range records {
		records[i] = embedded.Record{Table: embedded.TableKeys, Key: []byte{byte(i)}, Value: bytes.Repeat([]byte("value"), 100)}
	}
	if err := file.Save(records); err != nil {
		f.Fatal(err)
	}
	if err := file.Close(); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(folder, datafile.Name)
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	page := os.Getpagesize()
	f.Add(uint32(0), []byte{0xff})
	f.Add(uint32(page), bytes.Repeat([]byte{0xff}, 64))
	f.Add(uint32(3*page), bytes.Repeat([]byte{0}, 64))
	f.Add(uint32(4*page+8), []byte{2, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, at uint32, patch []byte) {
		damaged := bytes.Clone(whole)
		copy(damaged[int(at)%len(damaged):], patch)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := datafile.Open(folder)
		if err == nil {
			_ = file.Load(func(r *embedded.Record) error {
				_ = bytes.Clone(r.Value) // reads all of it
				return nil
			})
			_ = file.Close()
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
			t.Fatalf("the file was changed: %v", err)
		}
	})
}
