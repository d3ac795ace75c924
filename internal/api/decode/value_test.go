package decode

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// FuzzReadObject holds that the strict reader and encoding/json read the same.
func FuzzReadObject(f *testing.F) {
	for _, seed := range []string{
		`{"policy":"a","identifier":"b","cost":1}`, ` {"a" : [1, {"b":"]}"} , "\\"] , "c":-1.5e3}`, `{}`, `[]`, `"a"`, `{"a":{"a":{}}}`,
		`{"a":"\ud83d\ude00","b":"\ud83d"}`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":null,"b":true,"c":false}`, `{"\u0061":"\""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v, err := Parse(body)
		if (err == nil) && !json.Valid(body) {
			t.Fatalf("%q is taken for JSON", body)
		}
		if err != nil || v[0] != '{' {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]Value)
		for rawName, member := range v.Members() {
			name, err := rawName.Text()
			if err != nil {
				return // half a character, which encoding/json replaces
			}
			got[name] = member
			checkScalar(t, member)
			if member[0] == '[' {
				checkElements(t, member)
			}
		}
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
			t.Fatalf("members of %q: %q, want %q", body, got, want)
		}
		for name, member := range got {
			if string(member) != string(want[name]) {
				t.Fatalf("member %q of %q: %q, want %q", name, body, member, want[name])
			}
		}
	})
}

func checkScalar(t *testing.T, v Value) {
	t.Helper()
	var text string
	if got, err := v.Text(); err == nil {
		if json.Unmarshal([]byte(v), &text) != nil || got != text {
			t.Fatalf("%q is read as %q", v, got)
		}
	}
	var number int64
	if got, err := v.Integer(-1<<62, 1<<62); err == nil {
		if json.Unmarshal([]byte(v), &number) != nil || got != number {
			t.Fatalf("%q is read as %d", v, got)
		}
	}
}

func checkElements(t *testing.T, v Value) {
	t.Helper()
	var want []json.RawMessage
	if err := json.Unmarshal([]byte(v), &want); err != nil {
		t.Fatal(err)
	}
	got := slices.Collect(v.Elements())
	same := func(a Value, b json.RawMessage) bool { return string(a) == string(b) }
	if !slices.EqualFunc(got, want, same) {
		t.Fatalf("elements of %q: %q, want %q", v, got, want)
	}
}
