package api

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v4"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestDocumentGeneratesClients holds the document to what generators of clients read. Of
// `const: true`, openapi-python-client 0.29 makes Python that does not compile, and of `enum: [true]`
// openapi-generator 7.25 Kotlin that does not. The former loses what stands beside an allOf of one, and
// a oneOf with an allOf in it. The latter takes an integer for one of 32 bits.
func TestDocumentGeneratesClients(t *testing.T) {
	var doc any
	if err := yaml.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	for _, odd := range oddities(doc, "") {
		t.Error(odd)
	}
	for name, schema := range map[string]string{
		"a constant":        "schemas: {A: {properties: {b: {const: true}}}}",
		"a boolean enum":    "schemas: {A: {properties: {b: {type: boolean, enum: [true]}}}}",
		"a long integer":    "schemas: {A: {properties: {b: {type: [integer, 'null'], minimum: 0}}}}",
		"an allOf of one":   "schemas: {A: {allOf: [{type: object}], properties: {b: {type: string}}}}",
		"an allOf in oneOf": "schemas: {A: {oneOf: [{allOf: [{type: object}, {type: object}]}]}}",
	} {
		var odd any
		if err := yaml.Unmarshal([]byte(schema), &odd); err != nil || len(oddities(odd, "")) != 1 {
			t.Errorf("%s is not found in %s: %v", name, schema, err)
		}
	}
}

// oddities returns what generators are known to get wrong in the node of the document at path.
func oddities(node any, path string) (found []string) {
	switch node := node.(type) {
	case []any:
		for i, item := range node {
			found = append(found, oddities(item, fmt.Sprintf("%s[%d]", path, i))...)
		}
	case map[string]any:
		all, _ := node["allOf"].([]any)
		switch {
		case is[bool](node["const"]), node["type"] == "boolean" && node["enum"] != nil && !strings.HasPrefix(path, ".components.headers."):
			found = append(found, path+": write {type: boolean, not: {enum: [false]}}")
		case mayBeLong(node):
			found = append(found, path+": write format: int64, or a maximum")
		case len(all) == 1 && is[map[string]any](node["properties"]):
			found = append(found, path+": put the properties into a schema of allOf, too")
		case len(all) > 0 && strings.Contains(path[strings.LastIndexByte(path, '.')+1:], "oneOf["):
			found = append(found, path+": give it a name among the schemas")
		}
		for _, key := range slices.Sorted(maps.Keys(node)) {
			if key != "example" && key != "examples" {
				found = append(found, oddities(node[key], path+"."+key)...)
			}
		}
	}
	return found
}

// mayBeLong reports whether a schema has integers of more than 32 bits, and does not say so.
func mayBeLong(schema map[string]any) bool {
	kinds, _ := schema["type"].([]any)
	if schema["type"] != "integer" && !slices.Contains(kinds, any("integer")) || schema["const"] != nil || schema["enum"] != nil {
		return false
	}
	most, bounded := schema["maximum"].(int)
	return schema["format"] != "int64" && (!bounded || most > math.MaxInt32)
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

// TestRequestNumbersAreBounded holds that the document has the range of every number in a body, and that of an
// override's units is the limiter's.
func TestRequestNumbersAreBounded(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil {
				continue
			}
			for _, media := range op.RequestBody.Value.Content {
				seen += checkBounds(t, method+" "+path, media.Schema)
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d numbers were seen", seen)
	}
	members := doc.Components.Schemas["OverrideLimits"].Value.Items.Value.Properties
	for name, least := range map[string]float64{"limit": 0, "burst": 1} {
		s := members[name].Value
		if s.Min == nil || s.Max == nil || *s.Min != least || *s.Max != policy.MaxLimit {
			t.Errorf("an override's %s has other bounds than the limiter's %v to %v", name, least, int64(policy.MaxLimit))
		}
	}
}

// checkBounds checks all numbers below ref, and returns their count.
func checkBounds(t *testing.T, path string, ref *openapi3.SchemaRef) (seen int) {
	t.Helper()
	if ref == nil {
		return 0
	}
	s := ref.Value
	if s.Type.Includes("integer") {
		seen++
		if s.Min == nil || s.Max == nil {
			t.Errorf("%s: a number without minimum and maximum", path)
		}
	}
	seen += checkBounds(t, path+"[]", s.Items)
	for _, of := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		seen += checkBounds(t, path, of)
	}
	for name, member := range s.Properties {
		seen += checkBounds(t, path+"."+name, member)
	}
	return seen
}
