package apidoc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// request is one example of the document.
type request struct {
	Method  string
	Path    string // with values in the place of parameters
	Headers [][2]string
	Body    string // empty: none
}

// answer is the server's answer to a request.
type answer struct {
	Status      int
	ContentType string
	Body        string
}

// markdown returns the page for an OpenAPI document, with the requests of its examples
// and what ask answers to each, in their order. policies is the file of those that the
// examples go by. The error says what the document lacks.
func markdown(document, policies []byte, ask func(*request) (answer, error)) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document: %w", err)
	}
	p := &page{root: objectOf(ordered(&root)), ask: ask}
	p.printf("%s", head)
	p.printf("%s\n", p.root.object("info").text("description"))
	p.printf("The examples are asked of a server with these policies:\n\n```yaml\n%s```\n", policies)
	paths := p.root.object("paths")
	for _, path := range paths {
		for _, method := range p.resolve(path.Value) {
			p.operation(method.Key, path.Key, p.resolve(method.Value))
		}
	}
	p.errors(paths)
	p.headers()
	p.objects()
	return p.out.Bytes(), p.err
}

const head = `# HTTP API

<!-- Made from internal/api/openapi.yaml by make docs: change that -->

What [openapi.yaml](../internal/api/openapi.yaml) says, which every server serves at ` + "`/openapi.yaml`" + `. Each example is a
request that the tests send, with the answer that they got; receipts and reservations, which never
are the same twice, are shown as ` + "`…`" + `.

`

// page is docs/api.md while it is written.
type page struct {
	root object
	ask  func(*request) (answer, error)
	out  bytes.Buffer
	err  error // the first
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

func (p *page) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// operation writes the section of one method of one path.
func (p *page) operation(method, path string, op object) {
	p.printf("\n## %s %s\n\n%s\n", strings.ToUpper(method), path, op.text("summary"))
	if more := op.text("description"); more != "" {
		p.printf("\n%s", paragraph(more))
	}
	request := request{Method: strings.ToUpper(method), Path: path}
	for _, item := range op.list("parameters") {
		parameter := p.resolve(item)
		p.printf("\n**%s** (%s): %s\n", code(parameter.text("name")), parameter.text("in"), p.parameter(parameter))
		request.give(parameter)
	}
	p.body(op)
	p.answers(op.object("responses"))
	p.examples(&request, op)
}

// give gives r the example of a parameter that it needs.
func (r *request) give(parameter object) {
	name, example := parameter.text("name"), parameter.text("example")
	if list := parameter.list("example"); len(list) > 0 {
		example = fmt.Sprint(list[0])
	}
	required := parameter.get("required") == true
	switch parameter.text("in") {
	case "path":
		r.Path = strings.ReplaceAll(r.Path, "{"+name+"}", example)
	case "query":
		if required {
			r.Path += "?" + name + "=" + example
		}
	case "header":
		if required {
			r.Headers = append(r.Headers, [2]string{name, example})
		}
	}
}

func (p *page) parameter(parameter object) string {
	described := oneLine(parameter.text("description"))
	return strings.TrimSpace(described + " " + sentence(p.typeOf(parameter.get("schema"))))
}

// body writes the schema of the request's body.
func (p *page) body(op object) {
	body := p.resolve(op.get("requestBody"))
	if body == nil {
		return
	}
	p.printf("\n%s\n\n", strings.TrimSpace("**Body** "+oneLine(body.text("description"))))
	p.members(p.resolve(p.content(body).get("schema")))
}

// content returns the first media type of a body or an answer.
func (p *page) content(of object) object {
	for _, media := range of.object("content") {
		return p.resolve(media.Value)
	}
	return nil
}

// answers writes what each status means; problems are told of further down.
func (p *page) answers(responses object) {
	p.printf("\n**Answers**\n\n")
	var problems []string
	for _, item := range responses {
		status, response := item.Key, p.resolve(item.Value)
		if isProblem(status) {
			problems = append(problems, "["+status+"](#"+status+")")
			continue
		}
		p.printf("- %s: %s%s\n", status, oneLine(response.text("description")), p.made(p.content(response).get("schema")))
	}
	p.printf("- %s\n", strings.Join(problems, ", "))
}

// made says what an answer's body is.
func (p *page) made(schema any) string {
	if kind := p.typeOf(schema); schema != nil && kind != "string" {
		return " " + sentence(kind)
	}
	return ""
}

// isProblem reports whether all that a status answers with is a problem. A denial is a
// decision too.
func isProblem(status string) bool { return status >= "400" && status != "429" }

// examples writes the operation's examples and has them answered.
func (p *page) examples(request *request, op object) {
	asked := p.content(p.resolve(op.get("requestBody"))).object("examples")
	if request.Method == "GET" {
		p.example("", request)
		return
	}
	if len(asked) == 0 {
		p.fail("%s %s: the document has no example of its body: give one", request.Method, request.Path)
	}
	for i, item := range asked {
		r := *request
		value, err := json.Marshal(jsonOf{p.resolve(item.Value).get("value")})
		if err != nil {
			p.fail("%s %s: the example %s: %w", r.Method, r.Path, item.Key, err)
		}
		r.Body = string(value)
		if i == 0 {
			r.Headers = p.headerExamples(op)
		}
		p.example(item.Key, &r)
	}
}

// headerExamples returns the headers that go with an operation's first example: those that it needs. Two
// operations can't share an idempotency key, so it is take's.
func (p *page) headerExamples(op object) (headers [][2]string) {
	for _, item := range op.list("parameters") {
		parameter := p.resolve(item)
		if parameter.text("in") == "header" && (parameter.get("required") == true || op.text("operationId") == "take") {
			headers = append(headers, [2]string{parameter.text("name"), parameter.text("example")})
		}
	}
	return headers
}

// example writes one request and its answer.
func (p *page) example(title string, r *request) {
	if title != "" {
		title = " (" + title + ")"
	}
	p.printf("\n**Example**%s\n\n```\n%s %s\n", title, r.Method, r.Path)
	for _, header := range r.Headers {
		p.printf("%s: %s\n", header[0], header[1])
	}
	if r.Body != "" {
		p.printf("%s\n", indent(shown(r.Body)))
	}
	answer, err := p.ask(r)
	if err != nil {
		p.fail("%s %s %s: %w", r.Method, r.Path, r.Body, err)
	}
	p.printf("\n%d\n", answer.Status)
	switch {
	case strings.HasSuffix(answer.ContentType, "json"):
		p.printf("%s\n", indent(shown(answer.Body)))
	case answer.ContentType != "":
		p.printf("%s\n", answer.ContentType)
	}
	p.printf("```\n")
}

// hiddenMember is a receipt, a release or a reservation, which never is the same twice.
var hiddenMember = regexp.MustCompile(`"(receipt|release|reservation)":"[A-Za-z0-9_-]+"`)

// shown returns text without its tokens.
func shown(text string) string { return hiddenMember.ReplaceAllString(text, `"$1":"…"`) }

// indent returns JSON on several lines where one would be long; what is short stays on
// one line.
func indent(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	return wrap(strings.TrimSpace(text), "")
}
