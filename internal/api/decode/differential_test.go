package decode

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzJSON holds that the API's reader and encoding/json accept the same texts and read the same values. The reader
// also refuses bytes that are not UTF-8 and texts with half a character, which encoding/json replaces.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"policy":"a","identifier":"b","cost":1}`, ` {"a" : [1, {"b":"]}"} , "\\"] , "c":-1.5e3}`, `[[],{},[{}],{"a":[]}]`, `"a"`, `-0`,
		`{"a":"\ud83d\ude00","b":"\ud83d","c":"\u0000\/\b"}`, `{"a":1,"a":{"a":2}}`, "{\"a\":\"\xff\"}", `{"a":null,"b":true,"c":false}`,
		`[9223372036854775807,-9223372036854775808,9223372036854775808,1e2,1.0,0.1,-0,00,01,1.,.5,+1,1e,0x1]`, `{"\u0061":"\""}`,
		"[1\t,\r\n2 ]", "\ufeff{}", "[\v1]", `[1,]`, `{"a":1,}`, `{,}`, `{"a"}`, `nul`, `[true false]`, "\"\x1f\"", "\"\x7f\u2028\"", `{} {}`,
		`[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]`, `["\u12g4"]`, `["\x41"]`, `['a']`, `[NaN]`, `// a`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v, err := Parse(body)
		if valid := json.Valid(body) && utf8.Valid(body); (err == nil) != valid {
			t.Fatalf("%q: the reader says %v; that it is JSON is %v", body, err, valid)
		}
		if err != nil {
			return
		}
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		var want any
		if err := decoder.Decode(&want); err != nil {
			t.Fatal(err)
		}
		got, whole := readAny(t, v)
		if whole && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is %v, and to encoding/json %v", body, got, want)
		}
	})
}

// readAny reads v as encoding/json does, and reports whether it has no half character.
func readAny(t *testing.T, v Value) (read any, whole bool) {
	t.Helper()
	switch v[0] {
	case '{':
		object, whole := make(map[string]any), true
		for name, member := range v.Members() {
			text, isWhole := readAny(t, name)
			read, memberWhole := readAny(t, member)
			object[text.(string)] = read
			whole = whole && isWhole && memberWhole
		}
		return object, whole
	case '[':
		list, whole := make([]any, 0), true
		for element := range v.Elements() {
			read, isWhole := readAny(t, element)
			list = append(list, read)
			whole = whole && isWhole
		}
		return list, whole
	case '"':
		text, err := v.Text()
		if err != nil && !v.hasLoneSurrogate() {
			t.Fatalf("%q: %v", v, err)
		}
		return text, err == nil
	case 't', 'f':
		return v == "true", true
	case 'n':
		return nil, true
	}
	checkInteger(t, v)
	return json.Number(v), true
}

// checkInteger fails unless v is read as an integer if encoding/json does.
func checkInteger(t *testing.T, v Value) {
	t.Helper()
	var want int64
	wrong := json.Unmarshal([]byte(v), &want)
	got, err := v.Integer(-1<<63, 1<<63-1)
	if (err == nil) != (wrong == nil) || err == nil && got != want {
		t.Fatalf("%q is %d, %v; to encoding/json %d, %v", v, got, err, want, wrong)
	}
}
