package policyfile

import (
	"bytes"
	"fmt"
	"strings"
)

// FormatFile returns file in the form that ParseFile reads: policies as Format does, and the section for Envoy.
func FormatFile(file File) []byte {
	b := bytes.NewBuffer(Format(file.Policies))
	if file.Envoy == nil {
		return b.Bytes()
	}
	b.WriteString("envoy:\n")
	if headers := formatHeaders(&file.Envoy.Headers); headers != "" {
		fmt.Fprintf(b, "  response_headers: {%s}\n", headers)
	}
	if len(file.Envoy.Domains) == 0 {
		b.WriteString("  domains: []\n")
		return b.Bytes()
	}
	b.WriteString("  domains:\n")
	for i := range file.Envoy.Domains {
		domain := &file.Envoy.Domains[i]
		fmt.Fprintf(b, "    - domain: %s\n", scalar(domain.Name))
		if domain.Together {
			b.WriteString("      together: true\n")
		}
		formatDescriptors(b, domain.Descriptors, "      ")
	}
	return b.Bytes()
}

func formatHeaders(h *EnvoyHeaders) string {
	var parts []string
	for _, header := range []struct{ member, name string }{
		{"limit", h.Limit}, {"remaining", h.Remaining}, {"reset", h.Reset}, {"retry_after", h.RetryAfter},
	} {
		if header.name != "" {
			parts = append(parts, header.member+": "+scalar(header.name))
		}
	}
	return strings.Join(parts, ", ")
}

func formatDescriptors(b *bytes.Buffer, list []EnvoyDescriptor, indent string) {
	fmt.Fprintf(b, "%sdescriptors:\n", indent)
	for i := range list {
		d := &list[i]
		fmt.Fprintf(b, "%s  - key: %s\n", indent, scalar(d.Key))
		for _, member := range d.members() {
			fmt.Fprintf(b, "%s    %s\n", indent, member)
		}
		if d.Descriptors != nil {
			formatDescriptors(b, d.Descriptors, indent+"    ")
		}
	}
}

// members returns a line for each member of d, except its key and the descriptors below.
func (d *EnvoyDescriptor) members() (lines []string) {
	add := func(given bool, name, value string) {
		if given {
			lines = append(lines, name+": "+value)
		}
	}
	add(d.Value != "", "value", scalar(d.Value))
	add(d.Policy != "", "policy", scalar(d.Policy))
	add(d.Unlimited, "unlimited", "true")
	add(d.Name != "", "name", scalar(d.Name))
	add(d.Replaces != nil, "replaces", scalars(d.Replaces))
	add(d.Quota, "quota", "true")
	add(d.Shared, "shared", "true")
	add(d.Identifier != nil, "identifier", scalars(d.Identifier))
	return lines
}

func scalars(texts []string) string {
	list := make([]string, len(texts))
	for i, text := range texts {
		list[i] = scalar(text)
	}
	return "[" + strings.Join(list, ", ") + "]"
}
