package auth

import (
	"bytes"
	"encoding/hex"
	"errors"
	"regexp"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/filewatch"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// MaxCallers is the maximum of callers in a file, which people should be able to read.
const MaxCallers = 10_000

// Watcher reads a file again whenever it changes. Make one with NewWatcher.
type Watcher = filewatch.Watcher[*Callers]

// NewWatcher returns a Watcher of the file at path, which reads it as Parse does.
func NewWatcher(path string) *Watcher {
	return filewatch.New("who may ask", []string{path}, func(contents [][]byte) (*Callers, error) {
		return Parse(path, contents[0])
	})
}

const (
	wholeFile = "start it with callers: and a list of at least one caller"
	oneCaller = "write name:, token_sha256: and scopes:"
)

var (
	callerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	callerKeys = []string{"name", "token_sha256", "certificate", "scopes", "policies"}
)

// file is a file that is being read.
type file struct {
	*yamlfile.File
	callers Callers
	names   map[string]int // lines
}

// Parse reads the callers in data; name is the name of the file. The error is yamlfile.Errors, one for each mistake. It
// never contains the value in the place of a digest, or a token in any other place.
func Parse(name string, data []byte) (*Callers, error) {
	f := &file{File: yamlfile.Parse(name, data), names: make(map[string]int)}
	f.callers = Callers{byToken: make(map[digest]*Caller), byCertificate: make(map[certificateName]*Caller)}
	f.read()
	if !ended(data) {
		f.AddAt(yamlfile.Position{Line: 1 + bytes.Count(data, []byte("\n"))}, "",
			"the last line does not end, so the file may be half written: end it with a line break")
	}
	if err := f.Err(); err != nil {
		return nil, withoutTokens(err)
	}
	return &f.callers, nil
}

// aToken matches a token from NewToken, or a part of one.
var aToken = regexp.MustCompile(TokenPrefix + `[A-Za-z0-9_-]+`)

// withoutTokens removes tokens from the errors of a file.
func withoutTokens(err error) error {
	var mistakes yamlfile.Errors
	if !errors.As(err, &mistakes) {
		return err
	}
	for i := range mistakes {
		m := &mistakes[i]
		m.Path, m.Message = aToken.ReplaceAllString(m.Path, TokenPrefix+"…"), aToken.ReplaceAllString(m.Message, TokenPrefix+"…")
	}
	return mistakes
}

// ended reports whether the last line of data is complete. A truncated name could be another name.
func ended(data []byte) bool {
	return len(data) == 0 || bytes.ContainsAny(data[len(data)-1:], "\n]}\"'")
}

func (f *file) read() {
	if f.Root == nil {
		if f.Err() == nil {
			f.AddAt(yamlfile.Position{Line: 1}, "", "there is nothing in this file: %s", wholeFile)
		}
		return
	}
	if !f.Expect(f.Root, yamlfile.Map, wholeFile) {
		return
	}
	f.ExpectKeys(f.Root, []string{"callers"})
	list := f.Root.Member("callers")
	switch {
	case list == nil:
		f.Missing(f.Root, "callers", "%s", wholeFile)
	case !f.Expect(list, yamlfile.List, "start each caller with - name:"):
	case len(list.Items) == 0 || len(list.Items) > MaxCallers:
		f.Add(list, "%d callers: a file has 1 to %d", len(list.Items), MaxCallers)
	default:
		for _, item := range list.Items {
			f.readCaller(item)
		}
	}
}

func (f *file) readCaller(n *yamlfile.Node) {
	if !f.Expect(n, yamlfile.Map, oneCaller) {
		return
	}
	f.ExpectKeys(n, callerKeys)
	c := &Caller{Name: f.readName(n), scopes: f.readScopes(n)}
	c.policies, c.anyPolicy = f.readPolicies(n)
	token, certificate := n.Member("token_sha256"), n.Member("certificate")
	switch {
	case token != nil && certificate != nil:
		f.Add(certificate, "the caller has a token already: give certificates a caller of their own")
	case token != nil:
		f.readToken(token, c)
	case certificate != nil:
		f.readCertificate(certificate, c)
	default:
		f.Missing(n, "token_sha256",
			`give the SHA-256 of the caller's token, which "ratelimitd token" prints, or a certificate: name`)
	}
}

func (f *file) readName(n *yamlfile.Node) string {
	name := n.Member("name")
	switch {
	case name == nil:
		f.Missing(n, "name", "give the caller a name, for the audit log")
	case !f.Expect(name, yamlfile.Text, "write one word"):
	case strings.HasPrefix(name.Text, TokenPrefix):
		f.Add(name, "that is a token, which must not be in the audit log: "+
			"give the caller a name, and replace the token, which others may have read")
	case !callerName.MatchString(name.Text):
		f.Add(name, "%.64q is not a name: use 1 to 63 letters, digits, '.', '_' and '-', a letter or digit first", name.Text)
	case f.names[name.Text] > 0:
		f.Add(name, "%q names the caller on line %d too: the audit log must tell them apart", name.Text, f.names[name.Text])
	default:
		f.names[name.Text] = name.Line
		return name.Text
	}
	return ""
}

func (f *file) readScopes(n *yamlfile.Node) (granted Scope) {
	list := n.Member("scopes")
	if list == nil {
		f.Missing(n, "scopes", "list what the caller may do, such as [decide, record]. Scopes: %s", strings.Join(ScopeNames(), ", "))
		return 0
	}
	for _, name := range f.words(list, "scopes") {
		scope, known := ParseScope(name.Text)
		switch {
		case !known:
			f.Add(name, "%.64q is not a scope: %s", name.Text, yamlfile.DidYouMean(name.Text, ScopeNames()))
		case granted&scope != 0:
			f.Add(name, "%s is given twice: keep one of them", name.Text)
		}
		granted |= scope
	}
	return granted
}

// anyPolicy is the value of policies: that permits all policies. Without policies: a caller may use none, because a
// file that is half written must not permit more than the whole one.
const anyPolicy = "any"

// readPolicies returns the policies that a caller may use, or that it may use any.
func (f *file) readPolicies(n *yamlfile.Node) (policies map[string]struct{}, all bool) {
	list := n.Member("policies")
	if list == nil {
		return nil, false
	}
	if list.Kind == yamlfile.Text && list.Text == anyPolicy {
		return nil, true
	}
	policies = make(map[string]struct{})
	for _, name := range f.words(list, "policies") {
		if _, twice := policies[name.Text]; twice {
			f.Add(name, "this policy is given twice: keep one of them")
		}
		policies[name.Text] = struct{}{}
	}
	return policies, false
}

// words returns the items of list that are text. It adds a mistake for an empty list.
func (f *file) words(list *yamlfile.Node, what string) (words []*yamlfile.Node) {
	cure := "write [one, another]"
	if what == "policies" {
		cure += ", or any"
	}
	if !f.Expect(list, yamlfile.List, cure) {
		return nil
	}
	if len(list.Items) == 0 {
		f.Add(list, "there are no %s: give at least one", what)
	}
	for _, item := range list.Items {
		if f.Expect(item, yamlfile.Text, "put it in quotes if it is meant as text") {
			words = append(words, item)
		}
	}
	return words
}

func (f *file) readToken(n *yamlfile.Node, c *Caller) {
	if n.Kind != yamlfile.Number && !f.Expect(n, yamlfile.Text, "write 64 digits of hex") { // of digits alone it is a number to YAML
		return
	}
	decoded, err := hex.DecodeString(n.Text)
	var of digest
	switch {
	case strings.HasPrefix(n.Text, TokenPrefix):
		f.Add(n, "that is a token itself: write its SHA-256, and replace the token, which others may have read")
	case err != nil || copy(of[:], decoded) != len(of) || len(decoded) != len(of):
		f.Add(n, `that is not a SHA-256: write 64 digits of hex, as "ratelimitd token" prints them`)
	case f.callers.byToken[of] != nil:
		f.Add(n, "the caller %s has the same token: give each caller its own", f.callers.byToken[of].Name)
	default:
		f.callers.byToken[of] = c
	}
}

func (f *file) readCertificate(n *yamlfile.Node, c *Caller) {
	switch {
	case !f.Expect(n, yamlfile.Text, "write a DNS name or URI of the certificate, or its common name if it has neither"):
	case n.Text == "":
		f.Add(n, "is empty: write a DNS name or URI of the certificate, or its common name if it has neither")
	case f.callers.byCertificate[certificateNameOf(n.Text)] != nil:
		f.Add(n, "the caller %s has the same certificate: keep one of them", f.callers.byCertificate[certificateNameOf(n.Text)].Name)
	default:
		f.callers.byCertificate[certificateNameOf(n.Text)] = c
	}
}
