package apidoc_test

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// object is a mapping of the document, its members in their order. A missing member reads as an empty one.
type object []item

// item is a member of an object.
type item struct {
	Key   string
	Value any // an object, a []any or a scalar
}

// ordered returns the content of a node: mappings as objects, lists as []any.
func ordered(n *yaml.Node) any {
	switch n.Kind {
	case yaml.DocumentNode:
		return ordered(n.Content[0])
	case yaml.MappingNode:
		o := make(object, 0, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			o = append(o, item{n.Content[i].Value, ordered(n.Content[i+1])})
		}
		return o
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, child := range n.Content {
			list[i] = ordered(child)
		}
		return list
	}
	var scalar any
	_ = n.Decode(&scalar) // any value takes any scalar
	return scalar
}

// objectOf returns value if it is an object, else an empty one.
func objectOf(value any) object { o, _ := value.(object); return o }

func (o object) get(key string) any {
	for _, item := range o {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

func (o object) object(key string) object { return objectOf(o.get(key)) }

func (o object) list(key string) []any { l, _ := o.get(key).([]any); return l }

// text returns a scalar as it is written.
func (o object) text(key string) string {
	if v := o.get(key); v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// resolve returns the mapping that value is or refers to.
func (p *page) resolve(value any) object {
	o := objectOf(value)
	ref := o.text("$ref")
	if ref == "" {
		return o
	}
	o = p.root
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		o = o.object(part)
	}
	if o == nil {
		p.fail("%s is not in the document", ref)
	}
	return o
}

// typeOf describes in a few words the values that a schema allows.
func (p *page) typeOf(schema any) string {
	o := objectOf(schema)
	if ref := o.text("$ref"); ref != "" {
		called := ref[strings.LastIndexByte(ref, '/')+1:]
		if p.isSection(called) {
			return "[" + called + "](#" + strings.ToLower(called) + ")"
		}
		return p.typeOf(p.schemas().get(called))
	}
	switch {
	case o.get("const") != nil:
		return code(o.text("const"))
	case o.get("enum") != nil:
		return values(o.list("enum"))
	case o.text("type") == "boolean" && o.get("not") != nil: // as is said to generators of clients
		return code("true")
	case len(o.list("allOf")) == 1:
		return p.typeOf(o.list("allOf")[0])
	case o.text("type") == "array":
		return between("list of", "", o.get("minItems"), o.get("maxItems")) + " " + p.typeOf(o.get("items"))
	case o.text("type") == "object":
		return p.inline(o)
	}
	return scalar(o)
}

// scalar says what kind of number, text or truth a schema allows.
func scalar(o object) string {
	kind := o.text("type")
	if kinds := o.list("type"); kinds != nil {
		kind = fmt.Sprintf("%v or %v", kinds[0], kinds[1])
	}
	if o.get("maximum") != nil {
		kind = between(kind+",", "", o.get("minimum"), o.get("maximum"))
	}
	if o.get("maxLength") != nil {
		kind = between(kind+",", " long", o.get("minLength"), o.get("maxLength"))
	}
	if pattern := o.text("pattern"); pattern != "" {
		kind += ", " + code(pattern)
	}
	if standard := o.text("default"); standard != "" {
		kind += ", else " + standard
	}
	return kind
}

// between says from where to where something goes.
func between(kind, unit string, least, most any) string {
	if least == nil || most == nil {
		return kind
	}
	return fmt.Sprintf("%s %v to %v%s", kind, least, most, unit)
}

// inline says what an object without a name is made of.
func (p *page) inline(o object) string {
	var parts []string
	for _, member := range o.object("properties") {
		parts = append(parts, code(member.Key)+": "+p.typeOf(member.Value))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func values(list []any) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = code(fmt.Sprint(v))
	}
	return strings.Join(texts, ", ")
}

func (p *page) schemas() object { return p.root.object("components").object("schemas") }

// isSection reports whether a schema has a section of its own: objects that an answer
// holds, or several requests do.
func (p *page) isSection(called string) bool {
	schema := p.schemas().object(called)
	return len(schema.list("oneOf"))+len(schema.list("allOf"))+len(schema.object("properties")) > 0
}

// objects writes a section for each schema that has members.
func (p *page) objects() {
	p.printf("\n## Objects\n")
	for _, item := range p.schemas() {
		if !p.isSection(item.Key) || p.isBody(item.Key) {
			continue
		}
		schema := p.resolve(item.Value)
		p.printf("\n### %s\n\n", item.Key)
		if described := schema.text("description"); described != "" {
			p.printf("%s\n", paragraph(described))
		}
		p.members(schema)
	}
}

// isBody reports whether the schema is that of a request's body, which is written with
// its operation.
func (p *page) isBody(called string) bool {
	return slices.Contains([]string{"Check", "Record", "Take", "Batch", "Target"}, called)
}

// variant is one form that an object may have.
type variant struct {
	has        []string // other objects whose members it has, as typeOf says them
	properties []property
}

type property struct {
	name     string
	schema   any
	required bool
}

// variants returns the forms that schema allows.
func (p *page) variants(schema object) []variant {
	forms := schema.list("oneOf")
	if len(forms) == 0 {
		return []variant{p.variant(schema)}
	}
	var all []variant
	for _, form := range forms {
		if objectOf(form).text("$ref") != "" {
			all = append(all, variant{has: []string{p.typeOf(form)}})
			continue
		}
		all = append(all, p.variant(objectOf(form)))
	}
	return all
}

func (p *page) variant(schema object) (v variant) {
	for _, part := range schema.list("allOf") {
		v.has = append(v.has, p.typeOf(part))
	}
	required := schema.list("required")
	for _, member := range schema.object("properties") {
		v.properties = append(v.properties, property{member.Key, member.Value, slices.Contains(required, any(member.Key))})
	}
	return v
}

// members writes the table of an object's members, and before it the forms that it can
// have where those are several.
func (p *page) members(schema object) {
	forms := p.variants(schema)
	var all []property
	for _, form := range forms {
		if len(forms) > 1 {
			p.printf("- %s\n", form.String())
		} else if len(form.has) > 0 {
			p.printf("The members of %s%s\n", strings.Join(form.has, " and of "), others(form.properties))
		}
		for _, member := range form.properties {
			if !slices.ContainsFunc(all, func(have property) bool { return have.name == member.name }) {
				all = append(all, member)
			}
		}
	}
	if len(all) == 0 {
		return
	}
	if len(forms) > 1 || len(forms[0].has) > 0 {
		p.printf("\n")
	}
	p.printf("| member | is | |\n|---|---|---|\n")
	for _, member := range all {
		member.required = member.required || len(forms) > 1
		p.row("", member)
	}
}

// others leads over to the members that an object has beside those of others.
func others(own []property) string {
	if len(own) == 0 {
		return "."
	}
	return ", and:"
}

// row writes a member's row, and below it those of the members of an object that has
// no name of its own.
func (p *page) row(prefix string, member property) {
	optional := ""
	if !member.required {
		optional = " (optional)"
	}
	kind := p.typeOf(member.schema)
	within, path := objectOf(member.schema), prefix+member.name+"."
	if items := within.object("items"); within.text("type") == "array" && items.object("properties") != nil {
		kind = between("list of", " objects", within.get("minItems"), within.get("maxItems"))
		within, path = items, prefix+member.name+"[]."
	} else if within.object("properties") != nil {
		kind = "object"
	}
	p.printf("| %s%s | %s | %s |\n", code(prefix+member.name), optional, cell(kind), cell(oneLine(p.described(member.schema))))
	for _, inner := range p.variant(within).properties {
		p.row(path, inner)
	}
}

// String lists the members, those that may be left out with a question mark.
func (v variant) String() string {
	names := slices.Clone(v.has)
	for _, member := range v.properties {
		called := code(member.name)
		if !member.required {
			called += "?"
		}
		names = append(names, called)
	}
	return strings.Join(names, ", ")
}

// described returns the description of a schema, its own or that of its definition.
func (p *page) described(schema any) string {
	if said := objectOf(schema).text("description"); said != "" {
		return said
	}
	return p.resolve(schema).text("description")
}
