package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// wide are fields that all formats of requests have.
var wide = []string{FieldIP, FieldMethod, FieldPath, FieldURI}

// TestFormats reads the same request as several programs write it.
func TestFormats(t *testing.T) {
	const want = "2000-10-10T20:55:36.000Z 192.0.2.7 POST /login /login?a=b"
	for name, test := range map[string]struct{ format, text string }{
		"common":            {"", `192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "POST /login?a=b HTTP/1.1" 200 2326`},
		"combined":          {"", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "POST /login?a=b HTTP/1.1" 200 2326 "-" "say \"hi\""`},
		"combined, by name": {FormatCombined, `192.0.2.7 - - [10/Oct/2000:20:55:36 +0000] "POST /login?a=b HTTP/1.1" 200 2326 "-" "curl"`},
		"Traefik": {"", `192.0.2.7 - - [10/Oct/2000:20:55:36 +0000] "POST /login?a=b HTTP/1.1" 200 2326 "-" "curl"` +
			` 7 "router@docker" "http://10.0.0.1:80" 3ms`},
		"Traefik, JSON": {"", `{"ClientHost":"192.0.2.7","RequestMethod":"POST",` +
			`"RequestPath":"/login?a=b","StartUTC":"2000-10-10T20:55:36.000Z","level":"info"}`},
		"Caddy": {"", `{"level":"info","ts":971211336.0,"logger":"http.log.access","request":{"remote_ip":"10.0.0.1",` +
			`"client_ip":"192.0.2.7","method":"POST","uri":"/login?a=b","headers":{"A":["\"x"]}},"status":200}`},
		"Envoy": {"", `{"start_time":"2000-10-10T20:55:36.000Z",` +
			`"method":"POST","path":"/login?a=b","downstream_remote_address":"192.0.2.7:4711"}`},
		"ndjson": {FormatNDJSON, `{"time":971211336000,"ip":"192.0.2.7","method":"POST","path":"/login","uri":"\/login?a=b"}`},
		"columns": {FormatCSV, "time;ip;method;path;uri;\"a note\"\n" +
			"2000-10-10 20:55:36;192.0.2.7;POST;/login;\"/login?a=b\";\"a;\"\"b\"\"\"\n"},
		"a format of one's own": {`[$time_iso8601] $remote_addr:$remote_port <$request_method $request_uri>`,
			`[2000-10-10T22:55:36+02:00] 192.0.2.7:99 <POST /login?a=b>`},
	} {
		for _, end := range []string{"", "\n", "\r\n"} {
			got, r := readAll(t, &Options{Format: test.format, Fields: wide}, 0, test.text+end)
			if r.Unreadable > 0 || len(got) != 1 || got[0] != want {
				t.Errorf("%s: %q, %+v", name, got, r.Examples)
			}
		}
	}
}

// readAll returns the lines of texts, each of them a log.
func readAll(t *testing.T, opts *Options, reorder time.Duration, texts ...string) (lines []string, r *Reader) {
	t.Helper()
	r, err := Open(write(t, texts...), opts, reorder, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines, r
		}
		if err != nil {
			t.Fatal(err)
		}
		line := record.At.Time().Format("2006-01-02T15:04:05.000Z")
		for _, field := range record.Fields {
			line += " " + string(field)
		}
		lines = append(lines, line)
	}
}

func write(t *testing.T, texts ...string) (names []string) {
	t.Helper()
	for i, text := range texts {
		name := filepath.Join(t.TempDir(), fmt.Sprintf("%d.log", i))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// TestUnreadableLines counts them, says why and where, and reads on.
func TestUnreadableLines(t *testing.T) {
	for name, test := range map[string]struct {
		format, good string
		bad          map[string]string // and why
	}{
		"combined": {"", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1`, map[string]string{
			`192.0.2.7 - - [10/Okt/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1`: "no time",
			`192.0.2.7 - - [10/Oct/2000:13:5x:36 -0700] "GET / HTTP/1.1" 200 1`: "no time",
			"192.0.2.7 - -":              "does not look like",
			strings.Repeat("x", MaxLine): "longer than",
		}},
		"objects": {FormatNDJSON, `{"time":1}`, map[string]string{
			`{"time":1`: "not a JSON object", `{"time":}`: "not a JSON object", `{"a":1}`: "no time", `{"time":"yesterday"}`: "no time that",
			"null":        "not a JSON object",
			`{"time":1}}`: "not a JSON object", `{"a":` + strings.Repeat("[", 100): "not a JSON object", `{"time":1,"a":"\`: "not a JSON object",
		}},
		"columns": {FormatCSV, "time,a\n1,2", map[string]string{"1": "1 values", `1,"2`: "quote", `1,"2"3`: "quote", "x,2": "no time",
			",2": "no time", "-,2": "no time"}},
	} {
		for line, why := range test.bad {
			got, r := readAll(t, &Options{Format: test.format}, 0, test.good+"\n"+line+"\n\n"+test.good[strings.LastIndex(test.good, "\n")+1:])
			if len(got) != 2 || r.Unreadable != 1 || !strings.Contains(r.Examples[0].Why, why) ||
				r.Examples[0].Line != strings.Count(test.good, "\n")+2 {
				t.Errorf("%s: %.60q: %d lines, %+v", name, line, len(got), r.Examples)
			}
		}
	}
	_, r := readAll(t, &Options{Format: FormatNDJSON}, 0, strings.Repeat("x\n", 1000))
	if r.Unreadable != 1000 || len(r.Examples) != maxExamples {
		t.Errorf("%d unreadable, %d examples", r.Unreadable, len(r.Examples))
	}
}

// TestWhatCanNotBeOpened is told with the file and the line.
func TestWhatCanNotBeOpened(t *testing.T) {
	for _, test := range []struct {
		opts Options
		text string
		want string
	}{
		{Options{}, "hello\n", "0.log, line 1: its format is not known: give --format"},
		{Options{}, "{hello\n", "line 1: it is not a JSON object"},
		{Options{Format: FormatCSV}, "\na,b\n",
			"line 2: the format has no field with the time, which is usually called StartUTC, start_time, time, timestamp, ts, " +
				"@timestamp or time_iso8601: give --time-field"},
		{Options{Format: FormatCSV, TimeField: "a", Fields: []string{"c"}}, "a,b\n",
			`no field "c"`},
		{Options{Format: "$remote_addr $msec", Fields: []string{"status"}}, "a,b\n", `no field "status"`},
		{Options{Format: "$remote_addr"}, "a,b\n", `msec, time_iso8601 or time_local: give --time-field`},
		{Options{}, "\x1f\x8bno gzip at all", "gzip"},
	} {
		r, err := Open(write(t, test.text), &test.opts, 0, nil)
		if err == nil {
			_, err = r.Next()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
	for format, want := range map[string]string{
		"nginx": "is not known", "$a$b": "there is no text between", "$": "no variable", "": "is not known",
	} {
		if err := CheckFormat(format); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", format, err)
		}
	}
	if _, err := Open([]string{"absent.log"}, &Options{}, 0, nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestOrder sorts lines that are a little late, merges logs, and dates what is later as the line
// before it.
func TestOrder(t *testing.T) {
	seconds := func(at ...int) (text string) {
		for _, s := range at {
			text += fmt.Sprintf("{\"time\":%d}\n", 1000+s)
		}
		return text
	}
	for _, test := range []struct {
		reorder time.Duration
		texts   []string
		want    []int
		late    int64
	}{
		{0, []string{seconds(1, 2, 2, 3)}, []int{1, 2, 2, 3}, 0},
		{0, []string{seconds(1, 3, 2, 4)}, []int{1, 3, 3, 4}, 1},
		{2 * time.Second, []string{seconds(1, 3, 2, 5, 4, 6)}, []int{1, 2, 3, 4, 5, 6}, 0},
		{2 * time.Second, []string{seconds(1, 9, 2, 8)}, []int{1, 2, 8, 9}, 0},
		{2 * time.Second, []string{seconds(1, 9, 10, 2, 11)}, []int{1, 2, 9, 10, 11}, 0},
		{2 * time.Second, []string{seconds(1, 5, 9, 2, 11)}, []int{1, 5, 5, 9, 11}, 1},
		{0, []string{seconds(4, 5, 6), seconds(1, 2, 3), seconds(2, 5)}, []int{1, 2, 2, 3, 4, 5, 5, 6}, 0},
	} {
		var want []string
		for _, s := range test.want {
			want = append(want, time.Unix(int64(1000+s), 0).UTC().Format("2006-01-02T15:04:05.000Z"))
		}
		got, r := readAll(t, &Options{Format: FormatNDJSON}, test.reorder, test.texts...)
		if !slices.Equal(got, want) || r.Late != test.late {
			t.Errorf("%v: %q, %d late", test, got, r.Late)
		}
	}
}

// TestPacked reads what gzip and zstd made, and standard input.
func TestPacked(t *testing.T) {
	text := []byte(strings.Repeat("{\"time\":1000}\n", 100_000))
	var byGzip, byZstd bytes.Buffer
	g := gzip.NewWriter(&byGzip)
	z, err := zstd.NewWriter(&byZstd)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{g, z} {
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	lines, r := readAll(t, &Options{Format: FormatNDJSON}, time.Second, byGzip.String(), byZstd.String(), string(text))
	if len(lines) != 300_000 || r.BytesRead != r.SizeBytes || r.SizeBytes != int64(byGzip.Len()+byZstd.Len()+len(text)) {
		t.Errorf("%d lines, %d of %d bytes", len(lines), r.BytesRead, r.SizeBytes)
	}
	r, err = Open([]string{Stdin}, &Options{Format: FormatNDJSON}, 0, &byGzip)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != nil || r.SizeBytes != 0 {
		t.Error(err)
	}
	r, err = Open(write(t, byZstd.String()[:byZstd.Len()/2]), &Options{Format: FormatNDJSON}, 0, nil)
	for err == nil {
		_, err = r.Next()
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "0.log, after line") {
		t.Errorf("a log that is cut off: %v", err)
	}
}

// FuzzLine reads any line in any format: it says the same whatever line was read before, or why it can't be read.
func FuzzLine(f *testing.F) {
	f.Add(`192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1`)
	f.Add(`{"time":"2000-10-10T20:55:36.000Z","request":{"headers":{"A":["x\u0041"]}}}`)
	f.Add("2000-10-10 20:55:36,\"a\"\"b\"")
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\r\n") {
			return
		}
		for _, format := range []string{
			FormatAuto, FormatCombined, FormatEnvoy, FormatHAProxy, FormatAWS, FormatNDJSON, `$msec "$a"$b $remote_addr $uri $request_method`,
		} {
			if p, _, err := newParser([]byte(line), true, &Options{Format: format, Fields: wide}); err == nil {
				readsAlike(t, p, line, len(wide))
			}
		}
		c, err := newColumns([]byte("time,a"), &Options{Fields: []string{"a"}})
		if err != nil {
			t.Fatal(err)
		}
		readsAlike(t, c, line, 1)
	})
}

// readsAlike has p read line twice into one record.
func readsAlike(t *testing.T, p parser, line string, fields int) {
	t.Helper()
	r := newRecord(fields)
	read := func() string {
		r.reset()
		if err := p.parse([]byte(line), r); err != nil {
			if err.Error() == "" {
				t.Fatalf("%q can't be read, and nobody is told why", line)
			}
			return err.Error()
		}
		if r.ranks[slotTime+1] == unset {
			return errNoTime.Error()
		}
		return fmt.Sprintf("%d %q", r.At, r.Fields)
	}
	if first, again := read(), read(); first != again {
		t.Fatalf("%q is read as %s, and then as %s", line, first, again)
	}
}

// BenchmarkRead reads lines of the combined format and of Caddy's.
func BenchmarkRead(b *testing.B) {
	for name, line := range map[string]string{
		"combined": `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "POST /login?a=b HTTP/1.1" 200 2326` +
			` "https://example.org/start" "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"`,
		"caddy": `{"level":"info","ts":971211336.25,"logger":"http.log.access","request":{"remote_ip":"10.0.0.1",` +
			`"client_ip":"192.0.2.7","method":"POST","uri":"/login?a=b",` +
			`"headers":{"User-Agent":["Mozilla/5.0 (X11; Linux x86_64)"],"Accept":["*/*"]}},` +
			`"bytes_read":0,"duration":0.0001,"size":2326,"status":200}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line) + 1))
			r, err := Open([]string{Stdin}, &Options{Fields: wide}, 0, &endless{text: line + "\n"})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// endless is a log of one line again and again.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		c := copy(p[n:], e.text[e.at:])
		n, e.at = n+c, (e.at+c)%len(e.text)
	}
	return n, nil
}
