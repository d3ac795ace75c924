package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// keyspace reads all data of one keyspace.
type keyspace struct {
	name string
	rows func(cql string, args ...any) []map[string]any
}

func openKeyspace(t *testing.T, name string) *keyspace {
	t.Helper()
	session := cassandratest.Session(t)
	return &keyspace{name: name, rows: func(cql string, args ...any) []map[string]any {
		t.Helper()
		rows, err := session.Query(cql, args...).Iter().SliceMap()
		if err != nil {
			t.Fatalf("%s: %v", cql, err)
		}
		return rows
	}}
}

// tables returns the names of all tables and of their columns.
func (k *keyspace) tables() map[string][]string {
	tables := make(map[string][]string)
	for _, row := range k.rows("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", k.name) {
		tables[row["table_name"].(string)] = nil
	}
	for _, row := range k.rows("SELECT table_name, column_name FROM system_schema.columns WHERE keyspace_name = ?", k.name) {
		table := row["table_name"].(string)
		tables[table] = append(tables[table], row["column_name"].(string))
	}
	return tables
}

// cell is one value as searchable text.
type cell struct {
	table, column, text string
}

// cells returns every value of every column of every table.
func (k *keyspace) cells(t *testing.T) (all []cell) {
	t.Helper()
	for table, columns := range k.tables() {
		for _, row := range k.rows(fmt.Sprintf("SELECT * FROM %q.%q", k.name, table)) {
			for _, column := range columns {
				value, ok := row[column]
				if !ok {
					t.Fatalf("column %s of %s was not read", column, table)
				}
				all = append(all, cell{table, column, textOf(value)})
			}
		}
	}
	return all
}

// textOf returns the bytes of a value, and its printed form.
func textOf(value any) string {
	switch v := value.(type) {
	case []byte:
		return string(v)
	case interface{ Bytes() []byte }: // a UUID
		return string(v.Bytes()) + " " + fmt.Sprint(v)
	}
	return fmt.Sprint(value)
}

// find returns the first cell that contains a needle.
func (k *keyspace) find(t *testing.T, n needles) (where string, found bool) {
	t.Helper()
	for _, c := range k.cells(t) {
		if needle, found := n.in(c.text); found {
			return fmt.Sprintf("%s.%s holds %q", c.table, c.column, needle), true
		}
	}
	return "", false
}

// A search without results proves something only if it finds planted data: in
// columns of every kind, and in every disguise.
func provePlantsAreFound(t *testing.T, k *keyspace, n needles, phone Phone) {
	t.Helper()
	digits := string(phone[1:])
	k.rows(fmt.Sprintf("CREATE TABLE %q.planted (id int PRIMARY KEY, t text, b blob, n bigint, l list<text>)", k.name))
	plants := []string{"n", "l"}
	k.rows(fmt.Sprintf("INSERT INTO %q.planted (id, n) VALUES (0, %s)", k.name, digits))
	k.rows(fmt.Sprintf("INSERT INTO %q.planted (id, l) VALUES (1, ['x', '%s'])", k.name, digits))
	for _, text := range append(disguises(string(phone)), disguises(digits)...) {
		for _, column := range []string{"t", "b"} {
			value := any(text)
			if column == "b" {
				value = []byte("\x00\x01" + text)
			}
			k.rows(fmt.Sprintf("INSERT INTO %q.planted (id, %s) VALUES (?, ?)", k.name, column), len(plants), value)
			plants = append(plants, column)
		}
	}
	found := 0
	for _, c := range k.cells(t) {
		if _, ok := n.in(c.text); ok {
			found++
			if c.table != "planted" || !slices.Contains(plants, c.column) {
				t.Errorf("found in %s.%s", c.table, c.column)
			}
		}
	}
	if found != len(plants) {
		t.Errorf("%d of %d planted numbers are found", found, len(plants))
	}
}
