package policyfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// Format returns policies as a file that Parse reads, with all defaults except the consistency levels, whose default is
// the server's. Policies must have no Problems.
func Format(policies []policy.Policy) []byte {
	var b bytes.Buffer
	b.WriteString("policies:\n")
	for _, p := range policies {
		formatPolicy(&b, p.WithDefaults())
	}
	return b.Bytes()
}

func formatPolicy(b *bytes.Buffer, p policy.Policy) {
	fmt.Fprintf(b, "  - name: %s\n", scalar(p.Name))
	if p.Description != "" {
		fmt.Fprintf(b, "    description: %s\n", scalar(p.Description))
	}
	b.WriteString("    limits:\n")
	for _, l := range p.Limits {
		fmt.Fprintf(b, "      - %s\n", formatLimit(l))
	}
	fmt.Fprintf(b, "    count: %s\n", p.Count)
	fmt.Fprintf(b, "    counting: %s\n", p.Counting)
	fmt.Fprintf(b, "    guarantee: %s\n", p.Guarantee)
	if p.WriteFrom != 0 {
		fmt.Fprintf(b, "    write_from: %d%%\n", p.WriteFrom)
	}
	if levels := formatLevels(p.Consistency); levels != "" {
		fmt.Fprintf(b, "    consistency: %s\n", levels)
	}
	fmt.Fprintf(b, "    mode: %s\n", p.Mode)
	fmt.Fprintf(b, "    on_store_error: %s\n", p.OnStoreError)
	formatIdentifiers(b, &p)
	formatNumbers(b, &p)
	if p.BlockFor > 0 {
		fmt.Fprintf(b, "    block_for: %s\n", policy.FormatWindow(p.BlockFor))
		fmt.Fprintf(b, "    block_factor: %d\n", p.BlockFactor)
		fmt.Fprintf(b, "    block_max: %s\n", policy.FormatWindow(p.BlockMax))
	}
}

func formatLimit(l policy.Limit) string {
	window := "window"
	if l.IsConcurrent() {
		window = "hold"
	}
	text := fmt.Sprintf("{name: %s, algorithm: %s, %s, %s: %s",
		scalar(l.Name), l.Algorithm, formatUnits(&l), window, l.WindowName())
	if l.Timezone != "" {
		text += ", timezone: " + scalar(l.Timezone)
	}
	if l.Buckets != 0 {
		text += ", buckets: " + strconv.Itoa(l.Buckets)
	}
	if l.Rounding != "" {
		text += ", rounding: " + string(l.Rounding)
	}
	if l.Burst != 0 {
		text += ", burst: " + strconv.FormatInt(l.Burst, 10)
	}
	if l.Shadow {
		text += ", shadow: true"
	}
	return text + formatConfirmed(&l) + "}"
}

func formatLevels(c policy.Consistency) string {
	var parts []string
	if c.Write != "" {
		parts = append(parts, "write: "+string(c.Write))
	}
	if c.Read != "" {
		parts = append(parts, "read: "+string(c.Read))
	}
	if parts == nil {
		return ""
	}
	return "{" + strings.Join(parts, ", ") + "}"
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
