package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// kind is a format that can be detected by its lines. A format may have several.
type kind struct {
	format string
	make   func(*Options) (parser, error)
}

// kinds are tried in this order: the first that can read a line is used.
var kinds = []kind{
	{FormatCombined, func(opts *Options) (parser, error) { return newCombined(afterStamp, afterStampNeeds, opts) }},
	{FormatEnvoy, fixed(`[$time_iso8601] "$request" $status $response_flags $response_code_details $connection_termination_details`+
		` "$upstream_transport_failure_reason" $bytes_received $bytes_sent $duration $upstream_service_time "$http_x_forwarded_for"`+
		` "$http_user_agent" "$http_x_request_id" "$host" "$upstream_host" $upstream_cluster $upstream_local_address`+
		` $downstream_local_address $remote_addr $requested_server_name $route_name`, envoyVariables)}, // Istio's
	{FormatEnvoy, fixed(`[$time_iso8601] "$request" $status $response_flags $bytes_received $bytes_sent $duration`+
		` $upstream_service_time "$http_x_forwarded_for" "$http_user_agent" "$http_x_request_id" "$host" "$upstream_host"`, envoyVariables)},
	{FormatHAProxy, func(opts *Options) (parser, error) { return newCombined(afterStampHAProxy, 0, opts) }},
	{FormatAWS, fixed(`$type $time_iso8601 $elb $remote_addr $target $request_processing_time $target_processing_time`+
		` $response_processing_time $status $target_status $received_bytes $sent_bytes "$request" "$http_user_agent" $ssl_cipher`,
		commonVariables)},
	{FormatAWS, fixed(`$time_iso8601 $elb $remote_addr $backend $request_processing_time $backend_processing_time`+
		` $response_processing_time $status $backend_status $received_bytes $sent_bytes "$request" "$http_user_agent" $ssl_cipher`,
		commonVariables)},
}

// envoyVariables are the places of common fields in Envoy's text. The client's address is in X-Forwarded-For, or else it
// is that of the connection.
var envoyVariables = map[string][]source{
	FieldIP:     {{"http_x_forwarded_for", nil}, {"remote_addr", nil}},
	FieldMethod: commonVariables[FieldMethod],
	FieldURI:    commonVariables[FieldURI],
	FieldPath:   commonVariables[FieldPath],
}

// fixed returns a constructor of a template for whole lines. common are the places of common fields; a line without the
// best one may have another.
func fixed(text string, common map[string][]source) func(*Options) (parser, error) {
	return func(opts *Options) (parser, error) {
		t, err := newTemplate(text, common, true, opts)
		if err != nil {
			return nil, err
		}
		t.strict = true
		return t, nil
	}
}

// formatKinds returns the kinds of a format besides JSON. That of traefik is the combined one.
func formatKinds(format string) []kind {
	if format == FormatTraefik {
		format = FormatCombined
	}
	var found []kind
	for _, k := range kinds {
		if format == FormatAuto || k.format == format {
			found = append(found, k)
		}
	}
	return found
}

// isJSON reports whether a format may have lines of JSON.
func isJSON(format string) bool {
	return slices.Contains([]string{FormatAuto, FormatCaddy, FormatEnvoy, FormatTraefik, FormatNDJSON}, format)
}

// errUnknown is the error of a line in an unknown format.
var errUnknown = fmt.Errorf("its format is not known: give --format. A header of columns must have "+
	"one with the time, called %s; otherwise give --time-field", oneOf(usualTimes))

// whyW3C is about logs of CloudFront and IIS.
const whyW3C = "it is of the extended log format of W3C, which is not known: convert it to CSV with a header such as time,ip,method,path"

// known are the beginnings of logs in unsupported formats, with hints.
var known = []struct{ start, why string }{
	{"#Version:", whyW3C},
	{"#Software:", whyW3C},
	{"#Fields:", whyW3C},
	{"__CURSOR=", "it is journald's export format: use journalctl --output=cat"},
}

// undecided is the error of a line that does not tell the format of its log. Another line may.
type undecided struct{ why error }

// Error says why the line can't be read.
func (u *undecided) Error() string { return u.why.Error() }

// newParser returns a parser for the log of line, and reports whether line is a header. The error is an undecided if
// another line may tell the format. first says that line is the first one.
func newParser(line []byte, first bool, opts *Options) (p parser, header bool, err error) {
	format := cmp.Or(opts.Format, FormatAuto)
	switch {
	case strings.Contains(format, "$"):
		p, err = newTemplate(format, commonVariables, false, opts)
		return p, false, err
	case format == FormatCSV:
		p, err = newColumns(line, opts)
		return p, true, err
	}
	for _, k := range known {
		if first && bytes.HasPrefix(line, []byte(k.start)) {
			return nil, false, errors.New(k.why)
		}
	}
	p, err = detect(line, format, opts)
	if err != nil && first && format == FormatAuto && isHeader(line, opts) {
		p, err = newColumns(line, opts)
		return p, true, err
	}
	return p, false, err
}

// detect returns a parser for line, which also strips its prefix or envelope. If none can read the line, it returns one
// that knows its format and refuses it.
func detect(line []byte, format string, opts *Options) (parser, error) {
	var refuses parser
	why := errUnknown
	for n := 0; ; n++ {
		text, cut := cutPrefixes(line, n)
		if cut < n {
			break
		}
		found, err := detectText(text, format, opts)
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		if cut > 0 {
			found = &prefixed{cut, found}
		}
		err = found.parse(line, newRecord(len(opts.Fields)))
		switch {
		case err == nil:
			return found, nil
		case isRefusal(err) && refuses == nil:
			refuses = found
		case errors.Is(why, errUnknown):
			why = err
		}
	}
	if refuses != nil {
		return refuses, nil
	}
	return nil, &undecided{why}
}

// detectText returns a parser that can read text, nil if there is none. For a named format, it returns one that may be
// able to.
func detectText(text []byte, format string, opts *Options) (parser, error) {
	of := formatKinds(format)
	if isObject(text) && isJSON(format) || len(of) == 0 {
		return detectObject(text, format, opts)
	}
	for _, k := range of {
		probe, err := k.make(&Options{Fields: []string{FieldIP}})
		if err != nil {
			return nil, err
		}
		if err := probe.parse(text, newRecord(1)); err == nil || isRefusal(err) {
			return k.make(opts)
		}
	}
	if format == FormatAuto {
		return nil, nil
	}
	return of[0].make(opts)
}

// isRefusal reports whether err is about a line in a known format.
func isRefusal(err error) bool { return errors.Is(err, errNoAddress) || errors.Is(err, errSeveral) }
