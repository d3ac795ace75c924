// Package schema has the migrations of the Cassandra tables as numbered CQL files. It does not apply them.
package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// OldestReader is the lowest Version of a binary that can serve from tables at
// this binary's Version. A migration that older binaries could not work with
// raises it; additive ones leave it, so that rolling upgrades work in both directions.
const OldestReader = 1

//go:embed *.cql
var files embed.FS

// Migration is one step from a version of the schema to the next.
type Migration struct {
	Version    int      // the version of the tables afterwards; the first is 1
	Name       string   // name of the file
	Statements []string // CQL, in order; each can be repeated
}

// Migrations returns all migrations in order of version. The error describes
// a mistake in the files, which only a change of this package can cause.
func Migrations() ([]Migration, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	var migrations []Migration
	for i, entry := range entries { // ReadDir sorts by name
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		number, _, _ := strings.Cut(entry.Name(), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("schema: %s is not numbered %04d", entry.Name(), i+1)
		}
		migrations = append(migrations, Migration{Version: version, Name: entry.Name(), Statements: split(string(text))})
	}
	return migrations, nil
}

var comment = regexp.MustCompile(`(?m)--.*$`)

// split returns the statements of a file. No literal in them contains "--" or ";".
func split(text string) []string {
	var statements []string
	for _, s := range strings.Split(comment.ReplaceAllString(text, ""), ";") {
		if s = strings.TrimSpace(s); s != "" {
			statements = append(statements, s)
		}
	}
	return statements
}
