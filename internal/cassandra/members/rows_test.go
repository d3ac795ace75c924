package members

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
)

// TestRowsOfMembersAndTheirLevels holds that rows of members and views are made and changed by compare-and-set alone,
// that they never expire, and that each read meets each change: a member that is set out must find that in its row.
func TestRowsOfMembersAndTheirLevels(t *testing.T) {
	m, c := New("shop", nil), &Cluster{Session: new(gocql.Session), Datacenter: "dc1"}
	for _, ask := range []struct {
		name      string
		query     *gocql.Query
		condition string
		level     gocql.Consistency
	}{
		{"a row that is made", m.changing(c, "view", cluster.Version{}, gocql.UUID{1}, nil), "IF NOT EXISTS", gocql.LocalQuorum},
		{"a row that is changed", m.changing(c, "view", cluster.Version{1}, gocql.UUID{2}, nil), "IF version = ?", gocql.LocalQuorum},
		{"a read", m.reading(c, "view", false), "", gocql.LocalQuorum},
		{"a read of the latest", m.reading(c, "view", true), "", gocql.Consistency(gocql.LocalSerial)},
	} {
		statement := ask.query.Statement()
		if !strings.HasSuffix(statement, ask.condition) || strings.Contains(statement, "TTL") {
			t.Errorf("%s: %s; want it to end with %q, and nothing that expires", ask.name, statement, ask.condition)
		}
		if got := ask.query.GetConsistency(); got != ask.level {
			t.Errorf("%s is asked for at %v, want %v", ask.name, got, ask.level)
		}
		if ask.condition == "" {
			continue
		}
		serial := reflect.ValueOf(ask.query).Elem().FieldByName("serialCons").Uint() // which the driver does not tell
		if serial != uint64(gocql.LocalSerial) {
			t.Errorf("%s is serial at %d, want %v", ask.name, serial, gocql.LocalSerial)
		}
	}
}
