// Package policies keeps versions of the policies in Cassandra. It first writes the text of a version, in parts and under an
// id of its own, and then changes the row of the latest version by compare-and-set. So a version that can be found is
// complete, and of two concurrent versions one is refused.
//
// It does not know the contents of texts.
package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/policystore"
)

// Requests to the tables of policies. All data centres share the row of a namespace, which changes at SERIAL and QUORUM, and is
// read at LOCAL_QUORUM.
const (
	latestRead   = "SELECT number FROM policy_versions WHERE namespace = ?"
	historyRead  = "SELECT number, history FROM policy_versions WHERE namespace = ?"
	latestInsert = "INSERT INTO policy_versions (namespace, number, history) VALUES (?, ?, ?) IF NOT EXISTS"
	latestChange = "UPDATE policy_versions SET number = ?, history = ? WHERE namespace = ? IF number = ?"

	partInsert  = "INSERT INTO policies (namespace, id, part, value) VALUES (?, ?, ?, ?)"
	partsRead   = "SELECT value FROM policies WHERE namespace = ? AND id = ?"
	partsDelete = "DELETE FROM policies WHERE namespace = ? AND id = ?"
)

// partLen is the length of a part of a text in bytes. Nodes warn about larger values.
const partLen = 64 << 10

// Store keeps the versions of one namespace. It implements policystore.Store.
type Store struct {
	open      func() (*gocql.Session, *conn.Config, error)
	namespace string
}

var _ policystore.Store = (*Store)(nil)

// New returns the store of the versions of namespace. open returns the session, or an error if there is none yet.
func New(namespace string, open func() (*gocql.Session, *conn.Config, error)) *Store {
	return &Store{open: open, namespace: namespace}
}

// entry is a version in the history.
type entry struct {
	policystore.Version
	ID gocql.UUID `json:"id"` // of its text
}

// Latest returns the number of the latest version.
func (s *Store) Latest(ctx context.Context) (number int64, err error) {
	session, config, err := s.open()
	if err != nil {
		return 0, err
	}
	q := session.Query(latestRead, s.namespace).WithContext(ctx).Consistency(gocql.LocalQuorum)
	if err := config.Repeatable(q).Scan(&number); err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return 0, failure("reading the latest version of policies", err)
	}
	return number, nil
}

// history returns the stored versions, the latest first, and the number of the latest.
func (s *Store) history(ctx context.Context, level gocql.Consistency) (latest int64, all []entry, err error) {
	session, config, err := s.open()
	if err != nil {
		return 0, nil, err
	}
	var text string
	err = config.Repeatable(session.Query(historyRead, s.namespace).WithContext(ctx).Consistency(level)).Scan(&latest, &text)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return 0, nil, nil
	case err != nil:
		return 0, nil, failure("reading versions of policies", err)
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return latest, nil, fmt.Errorf("%w: the list of versions: %w", policystore.ErrUnreadable, err)
	}
	return latest, all, nil
}

// History returns the stored versions.
func (s *Store) History(ctx context.Context) (versions []policystore.Version, err error) {
	_, all, err := s.history(ctx, gocql.LocalQuorum)
	for i := range all {
		versions = append(versions, all[i].Version)
	}
	return versions, err
}

// Read returns a version. If this data centre does not have it yet, it reads from the others.
func (s *Store) Read(ctx context.Context, number int64) (set policystore.Set, err error) {
	for _, level := range []gocql.Consistency{gocql.LocalQuorum, gocql.Quorum} {
		set, err = s.read(ctx, level, number)
		if err == nil {
			return set, nil
		}
	}
	return set, err
}

func (s *Store) read(ctx context.Context, level gocql.Consistency, number int64) (policystore.Set, error) {
	_, all, err := s.history(ctx, level)
	if err != nil {
		return policystore.Set{}, err
	}
	for i := range all {
		if all[i].Number == number {
			return s.readText(ctx, level, &all[i])
		}
	}
	return policystore.Set{}, policystore.ErrNoVersion
}

func (s *Store) readText(ctx context.Context, level gocql.Consistency, e *entry) (policystore.Set, error) {
	session, config, err := s.open()
	if err != nil {
		return policystore.Set{}, err
	}
	set := policystore.Set{Version: e.Version}
	rows := config.Repeatable(session.Query(partsRead, s.namespace, e.ID).WithContext(ctx).Consistency(level)).Iter()
	var part []byte
	for rows.Scan(&part) {
		set.Text = append(set.Text, part...)
	}
	if err := rows.Close(); err != nil {
		return policystore.Set{}, failure("reading policies", err)
	}
	if policystore.DigestOf(set.Text) != e.Digest {
		return policystore.Set{}, fmt.Errorf("%w: its text is missing in the table policies, or has changed: apply policies anew",
			policystore.ErrUnreadable)
	}
	return set, nil
}

// Put stores a version: its text first, and then its number.
func (s *Store) Put(ctx context.Context, have int64, set *policystore.Set) error {
	latest, all, err := s.history(ctx, gocql.Consistency(gocql.Serial))
	switch {
	case errors.Is(err, policystore.ErrUnreadable): // a new list replaces the unreadable one
		all = nil
	case err != nil:
		return err
	}
	if latest != have {
		return policystore.ErrConflict
	}
	id, err := gocql.RandomUUID()
	if err != nil {
		return err
	}
	if err := s.writeText(ctx, id, set.Text); err != nil {
		return err
	}
	all = append([]entry{{Version: set.Version, ID: id}}, all...)
	kept := all[:min(len(all), policystore.Kept)]
	err = s.swap(ctx, have, set.Number, kept)
	switch {
	case errors.Is(err, policystore.ErrConflict):
		s.forget(ctx, id)
	case err == nil:
		for i := range all[len(kept):] {
			s.forget(ctx, all[len(kept)+i].ID)
		}
	}
	return err
}

func (s *Store) writeText(ctx context.Context, id gocql.UUID, text []byte) error {
	session, config, err := s.open()
	if err != nil {
		return err
	}
	for part := 0; part*partLen < len(text); part++ {
		value := text[part*partLen : min(len(text), (part+1)*partLen)]
		q := session.Query(partInsert, s.namespace, id, part, value).WithContext(ctx).Consistency(gocql.Quorum)
		if err := config.Repeatable(q).Exec(); err != nil {
			return failure("writing policies", err)
		}
	}
	return nil
}

// swap makes number the latest version if that is still have. The driver sends it only once. After an attempt without an
// answer, the latest version shows whether it was stored.
func (s *Store) swap(ctx context.Context, have, number int64, history []entry) error {
	session, _, err := s.open()
	if err != nil {
		return err
	}
	text, err := json.Marshal(history)
	if err != nil {
		return err
	}
	q := session.Query(latestChange, number, string(text), s.namespace, have)
	if have == 0 {
		q = session.Query(latestInsert, s.namespace, number, string(text))
	}
	applied, err := q.WithContext(ctx).Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).RetryPolicy(nil).
		MapScanCAS(make(map[string]any))
	switch {
	case err != nil:
		return failure("making a version of policies the latest", err)
	case !applied:
		return policystore.ErrConflict
	}
	return nil
}

// forget removes a text that no version has. It ignores a failure, after which the text only takes room.
func (s *Store) forget(ctx context.Context, id gocql.UUID) {
	if session, config, err := s.open(); err == nil {
		_ = config.Repeatable(session.Query(partsDelete, s.namespace, id).WithContext(ctx).Consistency(gocql.Quorum)).Exec()
	}
}

// failure wraps err in ErrUnreadable if a node refused the request, else in ErrUnavailable, which may be temporary.
func failure(doing string, err error) error {
	if refused, ok := errors.AsType[gocql.RequestError](err); ok {
		switch refused.Code() {
		case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig:
			return fmt.Errorf("%w: %s: %w", policystore.ErrUnreadable, doing, err)
		}
	}
	return fmt.Errorf("%w: %s: %w", store.ErrUnavailable, doing, err)
}
