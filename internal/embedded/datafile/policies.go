package datafile

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/ratelimitd/ratelimitd/internal/policystore"
)

// The buckets of policies, by version. A file has them only once it has a version.
var (
	versionsBucket = []byte("policy-versions")
	textsBucket    = []byte("policies")
)

// Policies keeps versions of the policies in a File. It implements policystore.Store.
type Policies struct{ file *File }

var _ policystore.Store = (*Policies)(nil)

// Policies returns the versions of the policies in f.
func (f *File) Policies() *Policies { return &Policies{f} }

func versionKey(number int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(number)) }

// latestOf returns the latest version in b, 0 if b is nil or empty.
func latestOf(b *bbolt.Bucket) int64 {
	if b == nil {
		return 0
	}
	key, _ := b.Cursor().Last()
	if len(key) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(key))
}

// view calls do with the buckets if there is a version.
func (p *Policies) view(do func(versions, texts *bbolt.Bucket) error) error {
	return guard(func() error {
		return p.file.db.View(func(tx *bbolt.Tx) error {
			versions, texts := tx.Bucket(versionsBucket), tx.Bucket(textsBucket)
			if versions == nil || texts == nil {
				return nil
			}
			return do(versions, texts)
		})
	})
}

// Latest returns the latest version, 0 if there is none.
func (p *Policies) Latest(context.Context) (latest int64, err error) {
	err = p.view(func(versions, _ *bbolt.Bucket) error {
		latest = latestOf(versions)
		return nil
	})
	return latest, unreadable(err)
}

// History returns the versions that are kept.
func (p *Policies) History(context.Context) (all []policystore.Version, err error) {
	err = p.view(func(versions, _ *bbolt.Bucket) error {
		return versions.ForEach(func(_, value []byte) error {
			var v policystore.Version
			err := json.Unmarshal(value, &v)
			all = append(all, v)
			return err
		})
	})
	slices.Reverse(all)
	return all, unreadable(err)
}

// Read returns a version.
func (p *Policies) Read(_ context.Context, number int64) (set policystore.Set, err error) {
	err = p.view(func(versions, texts *bbolt.Bucket) error {
		value := versions.Get(versionKey(number))
		if value == nil {
			return nil
		}
		set.Text = slices.Clone(texts.Get(versionKey(number)))
		return json.Unmarshal(value, &set.Version)
	})
	if err == nil && set.Number == 0 {
		return set, policystore.ErrNoVersion
	}
	return set, unreadable(err)
}

// Put stores a version. It is on the disk once Put returns nil.
func (p *Policies) Put(_ context.Context, have int64, set *policystore.Set) error {
	value, err := json.Marshal(&set.Version)
	if err != nil {
		return err
	}
	return guard(func() error {
		return p.file.db.Update(func(tx *bbolt.Tx) error {
			versions, err := tx.CreateBucketIfNotExists(versionsBucket)
			if err != nil {
				return err
			}
			texts, err := tx.CreateBucketIfNotExists(textsBucket)
			if err != nil {
				return err
			}
			if latestOf(versions) != have {
				return policystore.ErrConflict
			}
			if err := put(versions, texts, set.Number, value, set.Text); err != nil {
				return err
			}
			return forget(versions, texts)
		})
	})
}

func put(versions, texts *bbolt.Bucket, number int64, version, text []byte) error {
	if err := versions.Put(versionKey(number), version); err != nil {
		return err
	}
	return texts.Put(versionKey(number), text)
}

// forget removes the oldest versions beyond policystore.Kept.
func forget(versions, texts *bbolt.Bucket) error {
	var keys [][]byte // in ascending order
	err := versions.ForEach(func(key, _ []byte) error {
		keys = append(keys, slices.Clone(key))
		return nil
	})
	for _, key := range keys[:max(0, len(keys)-policystore.Kept)] {
		if err == nil {
			err = versions.Delete(key)
		}
		if err == nil {
			err = texts.Delete(key)
		}
	}
	return err
}

// unreadable wraps err, which may be nil, in policystore.ErrUnreadable: a retry can't help.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", policystore.ErrUnreadable, err)
}
