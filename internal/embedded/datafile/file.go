// Package datafile keeps an embedded store's records in one file of an embedded database (bbolt): a B+ tree that is
// copied on write and synced with every transaction, so that a crash of the process or the machine leaves the last
// transaction whole.
//
// It does not know the contents of records.
package datafile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
)

// File is an embedded.Disk. Make one with Open.
type File struct{ db *bbolt.DB }

var _ embedded.Disk = (*File)(nil)

const (
	// Name is the name of the file in its folder.
	Name = "ratelimitd.db"
	// format is the version of the file's buckets, stored in a bucket of its own. Records have a format of their own.
	format = 1
	// lockTimeout is how long Open waits for another process to release the file. A process that was just stopped needs less
	// time.
	lockTimeout = 2 * time.Second
)

var (
	metaBucket = []byte("meta")
	formatKey  = []byte("format")
	tables     = []embedded.Table{embedded.TableKeys, embedded.TableChanges}
)

// Open opens the file in folder. If the file or the folder is missing, it makes one that only its owner can read. It does not
// change a file that it can't read: the error says what an operator can do.
func Open(folder string) (f *File, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, Name)
	err = guard(func() error {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType, NoStatistics: true})
		if err == nil {
			f = &File{db}
			err = f.prepare()
		}
		return err
	})
	if err == nil {
		return f, nil
	}
	if f != nil {
		_ = f.Close() // nothing was written, so nothing is lost
	}
	return nil, explain(path, err)
}

// explain returns an error of Open or Load in an operator's terms.
func explain(path string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%s is in use by another process: stop that one, or give each a folder of its own", path)
	case errors.Is(err, errLater):
		return fmt.Errorf("%s: %w", path, err)
	case errors.As(err, new(*fs.PathError)): // its text has the path
		return err
	}
	return fmt.Errorf("%s can't be read, and was left as it is: restore it, or move it away to begin with no counts: %w", path, err)
}

// errLater means that a later version wrote the file.
var errLater = errors.New("written by a later version of ratelimitd: run that one, or give this one a folder of its own")

// prepare makes the buckets of a new file, and checks the format of an existing one.
func (f *File) prepare() error {
	found, err := f.format()
	switch {
	case err != nil:
		return err
	case found > format:
		return fmt.Errorf("format %d is %w", found, errLater)
	case found == format:
		return nil
	}
	return f.db.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists(metaBucket)
		if err != nil {
			return err
		}
		for _, t := range tables {
			if _, err := tx.CreateBucketIfNotExists([]byte(t)); err != nil {
				return err
			}
		}
		return meta.Put(formatKey, []byte{format})
	})
}

// format returns the file's format, 0 for a new file.
func (f *File) format() (found byte, err error) {
	err = f.db.View(func(tx *bbolt.Tx) error {
		if err := whole(tx); err != nil {
			return err
		}
		meta := tx.Bucket(metaBucket)
		if meta == nil {
			if name, _ := tx.Cursor().First(); name != nil {
				return fmt.Errorf("it contains %q, which is not ratelimitd's", name)
			}
			return nil
		}
		value := meta.Get(formatKey)
		if len(value) != 1 || value[0] == 0 {
			return fmt.Errorf("its format is %x", value)
		}
		found = value[0]
		return nil
	})
	return found, err
}

// whole returns an error if the file is shorter than its database.
func whole(tx *bbolt.Tx) error {
	info, err := os.Stat(tx.DB().Path())
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size())
	}
	return nil
}

// Load calls visit for every record.
func (f *File) Load(visit func(*embedded.Record) error) error {
	err := guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			for _, t := range tables {
				if err := load(tx, t, visit); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return explain(f.db.Path(), err)
	}
	return nil
}

func load(tx *bbolt.Tx, t embedded.Table, visit func(*embedded.Record) error) error {
	bucket := tx.Bucket([]byte(t))
	if bucket == nil {
		return fmt.Errorf("it has no table %q", t)
	}
	return bucket.ForEach(func(key, value []byte) error {
		return visit(&embedded.Record{Table: t, Key: key, Value: value})
	})
}

// Save stores r as one transaction.
func (f *File) Save(r []embedded.Record) error {
	return guard(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			for i := range r {
				if err := save(tx, &r[i]); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func save(tx *bbolt.Tx, r *embedded.Record) error {
	bucket := tx.Bucket([]byte(r.Table))
	if r.Value == nil {
		return bucket.Delete(r.Key)
	}
	return bucket.Put(r.Key, r.Value)
}

// Close waits for open transactions, and releases the file.
func (f *File) Close() error { return f.db.Close() }

// guard returns panics of do as errors. bbolt panics on damaged pages, and the runtime on pages that can't be read, because the
// file is mapped into memory.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it is damaged: %v", r)
		}
	}()
	return do()
}
