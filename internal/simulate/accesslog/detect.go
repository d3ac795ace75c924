package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// newParser returns what reads the file whose first line is first, and whether that is a header.
func newParser(first []byte, opts *Options) (p parser, header bool, err error) {
	format := opts.Format
	if format == "" || format == FormatAuto {
		if format, err = detect(first); err != nil {
			return nil, false, err
		}
	}
	switch {
	case strings.Contains(format, "$"):
		p, err = newTemplate(format, 0, opts)
	case format == FormatCombined:
		p, err = newTemplate(combinedTemplate, combinedNeeds, opts)
	case format == FormatCSV:
		p, err = newColumns(first, opts)
		return p, true, err
	case format == FormatTraefik && !isObject(first):
		p, err = newTemplate(combinedTemplate, combinedNeeds, opts)
	default:
		p, err = newObjects(format, opts)
	}
	return p, false, err
}

func isObject(line []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) }

// detect returns the format that a first line is of.
func detect(first []byte) (string, error) {
	if isObject(first) {
		return detectObject(first)
	}
	combined, err := newTemplate(combinedTemplate, combinedNeeds, &Options{})
	if err != nil {
		return "", err
	}
	if combined.parse(first, &Record{}) == nil {
		return FormatCombined, nil
	}
	if bytes.ContainsAny(first, separators) {
		return FormatCSV, nil
	}
	return "", errors.New("the first line is of no format that is known: give --format")
}

func detectObject(first []byte) (string, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(first, &members) != nil {
		return "", errors.New("the first line begins as an object of JSON and is none: give --format")
	}
	for name, f := range jsonFormats {
		_, time := members[f.timeField]
		_, mark := members[f.mark]
		if time && mark {
			return name, nil
		}
	}
	return FormatNDJSON, nil
}
