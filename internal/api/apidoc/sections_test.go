package apidoc_test

import (
	"slices"
	"strings"
)

// errors writes what each problem means, with an example of each.
func (p *page) errors(paths object) {
	p.printf("\n## Errors\n\nA body of `application/problem+json`: a [Problem](#problem).\n")
	for _, status := range p.problemStatuses(paths) {
		p.printf("\n### %s\n", status)
		for _, response := range p.problemsOf(paths, status) {
			p.printf("\n%s", paragraph(response.text("description")))
			for _, example := range p.content(response).object("examples") {
				value, err := jsonOf{p.resolve(example.Value).get("value")}.MarshalJSON()
				if err != nil {
					p.fail("the example %s of %s: %w", example.Key, status, err)
				}
				p.printf("\n```json\n%s\n```\n", indent(string(value)))
			}
		}
	}
}

// problemStatuses returns the statuses of all problems, in order.
func (p *page) problemStatuses(paths object) (statuses []string) {
	p.eachResponse(paths, func(status string, _ object) {
		if isProblem(status) && !slices.Contains(statuses, status) {
			statuses = append(statuses, status)
		}
	})
	slices.Sort(statuses)
	return statuses
}

// problemsOf returns the different answers with a status.
func (p *page) problemsOf(paths object, status string) (all []object) {
	p.eachResponse(paths, func(s string, response object) {
		described := response.text("description")
		known := slices.ContainsFunc(all, func(o object) bool { return o.text("description") == described })
		if s == status && !known {
			all = append(all, response)
		}
	})
	return all
}

func (p *page) eachResponse(paths object, do func(status string, response object)) {
	for _, path := range paths {
		for _, method := range p.resolve(path.Value) {
			for _, response := range p.resolve(method.Value).object("responses") {
				do(response.Key, p.resolve(response.Value))
			}
		}
	}
}

// headers writes the descriptions of the headers of answers.
func (p *page) headers() {
	p.printf("\n## Headers of answers\n\n| header | is | |\n|---|---|---|\n")
	for _, item := range p.root.object("components").object("headers") {
		header := p.resolve(item.Value)
		said := oneLine(header.text("description"))
		if example := header.text("example"); example != "" {
			said += " For example " + code(example) + "."
		}
		p.printf("| %s | %s | %s |\n", code(item.Key), cell(p.typeOf(header.object("schema"))), cell(said))
	}
}

func code(text string) string { return "`" + text + "`" }

// cell returns text that does not end a table's cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// sentence ends text like one.
func sentence(text string) string { return strings.TrimSuffix(text, ".") + "." }

// paragraph returns text that ends with one line break.
func paragraph(text string) string { return strings.TrimRight(text, "\n") + "\n" }
