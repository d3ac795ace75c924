package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// columns reads lines of values separated by commas, semicolons or tabs. A value in quotes may contain these, and
// doubled quotes, but no line break.
type columns struct {
	separator byte
	wanted    [][]wanted // by column
	values    [][]byte
}

// separators are the possible separators of values. The first one in the header is used.
const separators = ",;\t"

// newColumns returns a parser of the lines after header.
func newColumns(header []byte, opts *Options) (*columns, error) {
	c := &columns{separator: separators[0]}
	for _, separator := range []byte(separators) {
		if bytes.IndexByte(header, separator) >= 0 {
			c.separator = separator
			break
		}
	}
	names, err := c.split(header)
	if err != nil {
		return nil, fmt.Errorf("the header: %w", err)
	}
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(bytes.TrimSpace(name))
	}
	has := func(name string) bool { return slices.Contains(list, name) }
	all, err := layout{times: usualTimes, common: commonMembers, has: has}.want(opts)
	if err != nil {
		return nil, err
	}
	for _, name := range list {
		c.wanted = append(c.wanted, all[name])
		delete(all, name) // a later column of the same name is not read
	}
	return c, nil
}

// isHeader reports whether line has the names of columns: they must be different, and include that of the time.
func isHeader(line []byte, opts *Options) bool {
	if !bytes.ContainsAny(line, separators) {
		return false
	}
	c, err := newColumns(line, &Options{TimeField: opts.TimeField})
	if err != nil {
		return false
	}
	names, err := c.split(line)
	different := make(map[string]bool, len(names))
	for _, name := range names {
		different[string(name)] = true
	}
	return err == nil && len(different) == len(names)
}

func (c *columns) parse(line []byte, r *Record) error {
	values, err := c.split(line)
	if err != nil {
		return err
	}
	if len(values) != len(c.wanted) {
		return fmt.Errorf("it has %d values, and the header %d", len(values), len(c.wanted))
	}
	for i, value := range values {
		if err := fillAll(c.wanted[i], r, value); err != nil {
			return err
		}
	}
	return nil
}

var errQuote = errors.New("a quote does not end, or something follows it")

// split returns the values of line, in memory that is reused.
func (c *columns) split(line []byte) ([][]byte, error) {
	c.values = c.values[:0]
	for {
		if len(line) == 0 || line[0] != '"' {
			value, rest, more := bytes.Cut(line, []byte{c.separator})
			if c.values = append(c.values, value); !more {
				return c.values, nil
			}
			line = rest
			continue
		}
		value, rest, err := cutQuotes(line[1:])
		if err != nil {
			return nil, err
		}
		if c.values = append(c.values, value); len(rest) == 0 {
			return c.values, nil
		}
		if rest[0] != c.separator {
			return nil, errQuote
		}
		line = rest[1:]
	}
}

// cutQuotes returns the text before the quote that ends it, and the rest.
func cutQuotes(text []byte) (value, rest []byte, err error) {
	doubled := false
	for from := 0; ; {
		at := bytes.IndexByte(text[from:], '"')
		if at < 0 {
			return nil, nil, errQuote
		}
		if at += from; at+1 < len(text) && text[at+1] == '"' {
			doubled, from = true, at+2
			continue
		}
		if value = text[:at]; doubled {
			value = bytes.ReplaceAll(value, []byte(`""`), []byte(`"`))
		}
		return value, text[at+1:], nil
	}
}
