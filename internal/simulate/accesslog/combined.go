package accesslog

import (
	"bytes"
	"fmt"
	"slices"
)

// combined reads lines with an address, perhaps among other text, a time in brackets, and a request: the common log
// format of Apache and nginx, the combined one, and HAProxy's.
//
// There may be other text beside the address, such as the name of a virtual host. A line with several addresses before
// the time is unreadable.
type combined struct {
	head      [headFields][]wanted
	time      []wanted
	rest      *template
	forwarded []wanted
}

// The fields before the time.
const (
	headAddress = iota
	headIdent
	headUser
	headFields
)

// The variables of these lines beside those of their rest.
var (
	headNames     = []string{"remote_addr", "ident", "remote_user"}
	stampName     = "time_local"
	forwardedName = "http_x_forwarded_for"
)

// The fields after the time. In the combined format, those after the size may be missing.
const (
	afterStamp        = `"$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`
	afterStampNeeds   = 3
	afterStampHAProxy = `$frontend_name $server_name $timers $status $bytes_sent $request_cookie $response_cookie` +
		` $termination_state $connections $queues "$request"`
)

func newCombined(rest string, needs int, opts *Options) (*combined, error) {
	t, err := splitTemplate(rest)
	if err != nil {
		return nil, err
	}
	if needs > 0 {
		t.needs = needs
	}
	c := &combined{rest: t}
	all, err := layout{times: []string{stampName}, common: commonVariables, has: func(name string) bool {
		return slices.Contains(headNames, name) || name == stampName || name == forwardedName || t.has(name)
	}}.want(opts)
	if err != nil {
		return nil, err
	}
	t.want(all)
	for i, name := range headNames {
		c.head[i] = all[name]
	}
	c.time, c.forwarded = all[stampName], all[forwardedName]
	return c, nil
}

func (c *combined) parse(line []byte, r *Record) error {
	head, stamp, rest := cutStamp(line)
	if stamp == nil {
		return fmt.Errorf("%w: there is no time such as [10/Oct/2026:13:55:36 +0200]", errShape)
	}
	values, err := readHead(head)
	if err != nil && len(c.head[headAddress]) > 0 {
		return err
	}
	for i, value := range values {
		if err := fillAll(c.head[i], r, value); err != nil {
			return err
		}
	}
	if err := fillAll(c.time, r, stamp); err != nil {
		return err
	}
	if rest, err = c.rest.scan(rest, r); err != nil {
		return err
	}
	return c.more(rest, r)
}

// more reads the fields after the agent: X-Forwarded-For, if it is that.
func (c *combined) more(rest []byte, r *Record) error {
	value, quoted := bytes.CutPrefix(rest, []byte(` "`))
	if !quoted {
		return nil
	}
	value, _, _ = bytes.Cut(value, []byte(`"`))
	if _, _, err := parseClient(value); err != nil {
		return nil //nolint:nilerr // it is another field
	}
	r.forwarded = len(c.head[headAddress]) > 0
	return fillAll(c.forwarded, r, value)
}

func fillAll(all []wanted, r *Record, value []byte) error {
	for i := range all {
		if err := all[i].fill(r, value); err != nil {
			return err
		}
	}
	return nil
}

// cutStamp splits line at the first time of the common log format in brackets. stamp is nil if there is none.
func cutStamp(line []byte) (head, stamp, rest []byte) {
	for from := 0; ; {
		at := bytes.IndexByte(line[from:], '[')
		if at < 0 {
			return nil, nil, nil
		}
		at += from
		if from = at + 1; len(line)-from < len(commonStamp) || !looksCommon(line[from:]) {
			continue
		}
		if end := bytes.IndexByte(line[from:], ']'); end > 0 {
			return line[:at], line[from : from+end], bytes.TrimLeft(line[from+end+1:], " ")
		}
	}
}

// readHead returns the address, the ident and the user from the text before the time.
func readHead(head []byte) (values [headFields][]byte, err error) {
	address, rest, _ := bytes.Cut(head, space)
	ident, user, _ := bytes.Cut(rest, space)
	user = bytes.TrimRight(user, " ")
	if isAddress(address) && !isAddress(ident) && !isAddress(user) && bytes.IndexByte(user, ' ') < 0 {
		return [headFields][]byte{address, ident, user}, nil
	}
	return searchHead(bytes.Fields(head))
}

// searchHead looks for the one address among words. Words joined by commas are a list, such as X-Forwarded-For.
func searchHead(words [][]byte) (values [headFields][]byte, err error) {
	after := 0 // the address
	for from, to := 0, 0; from < len(words); from = to {
		for to = from + 1; to < len(words) && bytes.HasSuffix(words[to-1], comma); to++ {
		}
		text := unwrapped(bytes.Join(words[from:to], space))
		found, _, err := parseClient(text)
		switch {
		case err != nil && anyOfList(text):
			return values, errNoAddress // the client is "unknown", and a proxy follows
		case err != nil:
		case values[headAddress] != nil && !sameClient(values[headAddress], found):
			return values, errSeveral
		default:
			values[headAddress], after = text, to
		}
	}
	common := len(words) >= headFields && string(words[len(words)-2]) == "-"
	switch {
	case common && after == len(words):
		return values, errNoAddress // a user has an address as the name
	case common && values[headAddress] == nil && string(words[len(words)-headFields]) == "-":
		after = len(words) - 2
	case values[headAddress] == nil:
		after, err = max(0, len(words)-2), errNoAddress
	}
	if rest := words[after:]; len(rest) > 1 {
		values[headIdent], values[headUser] = rest[0], bytes.Join(rest[1:], space)
	}
	return values, err
}

func sameClient(list, address []byte) bool {
	first, _, err := parseClient(list)
	return err == nil && bytes.Equal(first, address)
}

// unwrapped returns text without brackets or quotes around it.
func unwrapped(text []byte) []byte {
	if inner, found := bytes.CutPrefix(text, []byte("[")); found && bytes.HasSuffix(inner, bracket) {
		return inner[:len(inner)-1]
	}
	return bytes.Trim(text, `"()`)
}

// anyOfList reports whether text is a list with an address.
func anyOfList(text []byte) bool {
	if bytes.IndexByte(text, ',') < 0 {
		return false
	}
	for one := range bytes.SplitSeq(text, comma) {
		if isAddress(hostOf(bytes.TrimSpace(one))) {
			return true
		}
	}
	return false
}
