package policyfile

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// Format returns policies as a file that Parse reads, with all defaults except the consistency levels, whose default is
// the server's. Policies must have no Problems.
func Format(policies []policy.Policy) []byte { return FormatFile(File{Policies: policies}) }

// FormatFile returns file in the form that ParseFile reads: policies as Format does, and the section for Envoy.
func FormatFile(file File) []byte {
	return []byte(lines(fileMembers, &contents{File: file}) + "\n")
}

func writePolicies(file *contents) string {
	return list(file.Policies, func(p *policy.Policy) string {
		whole := p.WithDefaults()
		return lines(policyMembers, &whole)
	})
}

// pairs returns the members of a T that are not left out, with their keys. A list or a map of several lines begins with
// a line break.
func pairs[T any](members []member[T], from *T) (all []string) {
	for _, m := range members {
		switch value := m.write(from); {
		case value == "":
		case value[0] == '\n':
			all = append(all, m.key+":"+value)
		default:
			all = append(all, m.key+": "+value)
		}
	}
	return all
}

// lines returns a T as a map with a line for each member.
func lines[T any](members []member[T], from *T) string {
	return strings.Join(pairs(members, from), "\n")
}

// flow returns a T as a map in one line, empty if all members are left out.
func flow[T any](members []member[T], from *T) string {
	all := pairs(members, from)
	if len(all) == 0 {
		return ""
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// list returns items as a list with a line for each, as a value under a key.
func list[T any](items []T, write func(*T) string) string {
	var b strings.Builder
	for i := range items {
		b.WriteString("\n  - " + strings.ReplaceAll(write(&items[i]), "\n", "\n    "))
	}
	return b.String()
}

// scalar returns text as a YAML scalar: plain if that is read as the same text in a flow map and in a block, else as a
// JSON string, which is YAML, too. It also quotes text that is not text in YAML 1.1, which many programs still use.
func scalar(text string) string {
	if !otherIn11.MatchString(text) && readsBack("- {text: "+text+", end: x}", text) && readsBack("- text: "+text+"\n  end: x", text) {
		return text
	}
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string into memory: cannot fail
	return strings.TrimSpace(quoted.String())
}

// otherIn11 matches scalars that are text in YAML 1.2, but booleans, numbers of base 60, dates or defaults in 1.1.
var otherIn11 = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|=|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|` +
	`[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*)$`)

// readsBack reports whether list is a list of one map whose first of two members is text.
func readsBack(list, text string) bool {
	f := yamlfile.Parse("", []byte(list))
	if f.Err() != nil || f.Root.Kind != yamlfile.List || len(f.Root.Items) != 1 || len(f.Root.Items[0].Members) != 2 {
		return false
	}
	read := f.Root.Items[0].Find("text")
	return read.Kind == yamlfile.Text && !read.Quoted && read.Text == text
}

// scalars returns texts as a list in one line, empty if there are none.
func scalars(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = scalar(text)
	}
	return "[" + strings.Join(all, ", ") + "]"
}
