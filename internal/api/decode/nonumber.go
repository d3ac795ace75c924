package decode

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// noNumber returns the error of a body that has NaN or an infinite number at a byte, which some languages write
// although JSON has no such numbers. It names the member. It returns nil if the body has another mistake.
func noNumber(body []byte, at int64) error {
	rest := body[max(0, at-1):]
	if !bytes.HasPrefix(rest, []byte("NaN")) && !bytes.HasPrefix(rest, []byte("Infinity")) {
		return nil
	}
	path := memberAt(body)
	if path == "" {
		return nil
	}
	return &Error{Kind: ErrBody, Field: path, Detail: "It must be an integer; JSON has no NaN and no infinite numbers."}
}

// memberAt returns the path of the member whose value is not JSON; empty if a name in the path is unknown.
func memberAt(body []byte) string {
	type level struct {
		list  bool
		index int    // of a list: the next element
		name  string // of an object: the last name; empty: a name comes next
	}
	var levels []level
	tokens := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := tokens.Token()
		if err != nil {
			break
		}
		delim, _ := token.(json.Delim)
		switch text, isText := token.(string); {
		case delim == '}' || delim == ']':
			levels = levels[:len(levels)-1]
		case isText && len(levels) > 0 && !levels[len(levels)-1].list && levels[len(levels)-1].name == "":
			levels[len(levels)-1].name = text
			continue
		case delim != 0:
			levels = append(levels, level{list: delim == '['})
			continue
		}
		if n := len(levels); n > 0 { // a value has ended
			levels[n-1].index, levels[n-1].name = levels[n-1].index+1, ""
		}
	}
	path := ""
	for _, l := range levels {
		switch {
		case l.list:
			path += "[" + strconv.Itoa(l.index) + "]"
		case l.name != "operations" && !slices.Contains(operationNames, l.name):
			return ""
		default:
			path += "." + l.name
		}
	}
	return string(bytes.TrimPrefix([]byte(path), []byte(".")))
}
