package simulate_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/simulate"
	"github.com/ratelimitd/ratelimitd/internal/simulate/report"
)

// agent has what a line may trip over: a comma, parentheses, brackets and an address.
const agent = `Mozilla/5.0 (X11; [10/Oct/2026]) Gecko, like 10.9.8.7`

// logged is a request of the log that each layout writes.
type logged struct {
	ip string
	at time.Time
	n  int
}

func (l *logged) common() string { return l.at.Format("02/Jan/2006:15:04:05 -0700") }

func (l *logged) request() string {
	return fmt.Sprintf(`[%s] "POST /login?n=%d HTTP/1.1" 401 512`, l.common(), l.n)
}

func (l *logged) combined() string {
	return fmt.Sprintf(`%s - - %s "-" "%s"`, l.ip, l.request(), agent)
}

func (l *logged) iso() string { return l.at.Format(time.RFC3339Nano) }

// asJSON writes members, the odd ones names.
func asJSON(members ...any) string {
	all := make(map[string]any)
	for i := 0; i < len(members); i += 2 {
		all[members[i].(string)] = members[i+1]
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// layouts are how programs write a request, each with what comes first in the log.
var layouts = map[string]struct {
	first string
	line  func(l *logged) string
}{
	"common":             {"", func(l *logged) string { return l.ip + " - anna " + l.request() }},
	"combined":           {"", (*logged).combined},
	"a name with spaces": {"", func(l *logged) string { return l.ip + " - Anna Smith " + l.request() }},
	"quotes in the agent": {"", func(l *logged) string {
		return fmt.Sprintf(`%s - - %s "-" "say \"1, 2\" \\"`, l.ip, l.request())
	}},
	"more fields":       {"", func(l *logged) string { return l.combined() + ` 0.003 "www.example.org" upstream: 10.0.0.1:80` }},
	"vhost_combined":    {"", func(l *logged) string { return "www.example.org:443 " + l.combined() }},
	"virtual host last": {"", func(l *logged) string { return l.combined() + ` "www.example.org"` }},
	"forwarded for first, now and then": {"", func(l *logged) string {
		if l.n%2 == 1 {
			return fmt.Sprintf(`%s, 10.0.0.7 - - %s "-" "%s"`, l.ip, l.request(), agent)
		}
		return l.combined()
	}},
	"forwarded for without a space": {"", func(l *logged) string { return fmt.Sprintf(`%s,10.0.0.7 - - %s`, l.ip, l.request()) }},
	"forwarded for in quotes":       {"", func(l *logged) string { return fmt.Sprintf(`"%s, 10.0.0.7" - - %s`, l.ip, l.request()) }},
	"the real address in brackets":  {"", func(l *logged) string { return fmt.Sprintf(`%s - [%s] - - %s`, l.ip, l.ip, l.request()) }},
	"with a port":                   {"", func(l *logged) string { return fmt.Sprintf(`%s:%d - - %s`, l.ip, 40000+l.n, l.request()) }},
	"fractions of seconds": {"", func(l *logged) string {
		return fmt.Sprintf(`%s - - [%s] "POST /login HTTP/1.1" 401 512`, l.ip, l.at.Format("02/Jan/2006:15:04:05.000 -0700"))
	}},
	"what a server says first": {"nginx: starting, with 4 workers\n/docker-entrypoint.sh: ready\n", (*logged).combined},

	"CRI":                {"", func(l *logged) string { return l.iso() + " stdout F " + l.combined() }},
	"CRI around JSON":    {"", func(l *logged) string { return l.iso() + " stdout F " + caddy(l) }},
	"docker compose":     {"", func(l *logged) string { return "nginx-1  | " + l.combined() }},
	"kubectl":            {"", func(l *logged) string { return "[pod/nginx-7c5ddbdf54-x2x9p/nginx] " + l.combined() }},
	"kubectl with times": {"", func(l *logged) string { return "[pod/nginx-7c5ddbdf54-x2x9p/nginx] " + l.iso() + " " + caddy(l) }},
	"stern":              {"", func(l *logged) string { return "nginx-7c5ddbdf54-x2x9p nginx " + l.combined() }},
	"docker with times":  {"", func(l *logged) string { return l.iso() + " " + l.combined() }},
	"docker's files":     {"", func(l *logged) string { return asJSON("log", l.combined()+"\n", "stream", "stdout", "time", l.iso()) }},
	"docker's, JSON":     {"", func(l *logged) string { return asJSON("log", caddy(l)+"\n", "stream", "stdout", "time", l.iso()) }},
	"syslog":             {"", func(l *logged) string { return l.at.Format("Jan _2 15:04:05") + " web-1 nginx: " + l.combined() }},
	"syslog of an address": {"", func(l *logged) string {
		return l.at.Format("<190>Jan _2 15:04:05") + " 10.0.0.1 nginx: " + l.combined()
	}},
	"RFC 5424": {"", func(l *logged) string { return "<165>1 " + l.iso() + " 10.0.0.1 nginx 17 - - " + l.combined() }},
	"rsyslog":  {"", func(l *logged) string { return l.iso() + " web-1 nginx[17]: " + l.combined() }},
	"journald, JSON": {"", func(l *logged) string {
		return asJSON("MESSAGE", l.combined(), "__REALTIME_TIMESTAMP", fmt.Sprint(l.at.UnixMicro()), "_PID", "17")
	}},

	"Caddy":              {"", caddy},
	"Caddy, as it began": {`{"level":"info","ts":1791640499.5,"msg":"serving initial configuration"}` + "\n", caddy},
	"Caddy 2.6": {"", func(l *logged) string {
		return asJSON("ts", float64(l.at.UnixMilli())/1000, "request", map[string]string{"remote_ip": l.ip, "method": "POST", "uri": "/login?a"})
	}},
	"Traefik": {"", func(l *logged) string {
		return asJSON("ClientHost", l.ip, "RequestMethod", "POST", "RequestPath", "/login?a", "StartUTC", l.iso(), "time", "2026-10-11T00:00:00Z")
	}},
	"Traefik, text": {"", func(l *logged) string { return l.combined() + ` 7 "router@docker" "http://10.0.0.1:80" 3ms` }},
	"Envoy": {"", func(l *logged) string {
		return fmt.Sprintf(`[%s] "POST /login?n=%d HTTP/2" 204 - 154 0 226 100 "%s" "%s" "cc21d9b0" "www.example.org" "10.0.2.1:80"`,
			l.at.Format("2006-01-02T15:04:05.000Z"), l.n, l.ip, agent)
	}},
	"Istio": {"", func(l *logged) string {
		forwarded, peer := l.ip, "10.44.1.1"
		if l.n%2 == 1 {
			forwarded, peer = "-", l.ip
		}
		return fmt.Sprintf(`[%s] "POST /login HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "%s" "%s" "84961386" "a:80" "127.0.0.1:80"`+
			` inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 %s:37652 outbound_.8000_._.a default`,
			l.at.Format("2006-01-02T15:04:05.000Z"), forwarded, agent, peer)
	}},
	"Envoy, JSON": {"", func(l *logged) string {
		return asJSON("start_time", l.iso(), "method", "POST", "path", "/login?a", "downstream_remote_address", l.ip+":4711")
	}},
	"Envoy Gateway": {"", func(l *logged) string {
		return asJSON("start_time", l.iso(), "method", "POST", "x-envoy-origin-path", "/login?a", "downstream_remote_address", l.ip+":4711",
			"x-forwarded-for", "10.0.0.9")
	}},
	"HAProxy": {"", func(l *logged) string {
		return fmt.Sprintf(`haproxy[14389]: %s:33317 [%s] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0`+
			` {a, b} {} "POST /login HTTP/1.1"`,
			l.ip, l.at.Format("02/Jan/2006:15:04:05.000"))
	}},
	"ALB": {"", func(l *logged) string {
		return fmt.Sprintf(`https %s app/my-lb/50dc6c495c0c9188 %s:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 `+
			`"POST https://www.example.com:443/login?a HTTP/1.1" "%s" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:x "Root=1"`, l.iso(), l.ip, agent)
	}},
	"classic ELB": {"", func(l *logged) string {
		return fmt.Sprintf(`%s my-lb %s:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 `+
			`"POST http://www.example.com:80/login HTTP/1.1" "%s" - -`,
			l.iso(), l.ip, agent)
	}},
	"nginx, JSON": {"", func(l *logged) string {
		return asJSON("time_iso8601", l.at.Format(time.RFC3339), "remote_addr", l.ip, "request", "POST /login?a HTTP/1.1")
	}},
	"JSON, timestamp": {"", func(l *logged) string {
		return asJSON("timestamp", l.at.UnixMilli(), "ip", l.ip, "path", "/login", "method", "POST")
	}},
	"JSON, ts": {"", func(l *logged) string {
		return asJSON("ts", l.at.UnixMicro(), "ip", l.ip, "path", "/login", "method", "POST")
	}},
	"JSON, @timestamp": {"", func(l *logged) string {
		return asJSON("@timestamp", l.iso(), "client_ip", l.ip, "path", "/login", "method", "POST")
	}},
	"columns": {"time,ip,method,path,agent\n", func(l *logged) string {
		return fmt.Sprintf(`%s,%s,POST,/login,"%s"`, l.at.Format("2006-01-02 15:04:05"), l.ip, agent)
	}},
	"columns, timestamp": {"timestamp\tremote_addr\trequest\n", func(l *logged) string {
		return fmt.Sprintf("%d\t%s\tPOST /login?a HTTP/1.1", l.at.UnixNano(), l.ip)
	}},
}

func caddy(l *logged) string {
	return asJSON("level", "info", "ts", float64(l.at.UnixMilli())/1000, "request",
		map[string]string{"remote_ip": "10.0.0.1", "client_ip": l.ip, "method": "POST", "uri": "/login?a"})
}

// write returns the log of 26 requests: ten addresses come twice, and one comes six times.
func write(first string, line func(*logged) string) string {
	text := first
	for n := range 26 {
		ip := fmt.Sprintf("192.0.2.%d", 1+n/2)
		if n >= 20 {
			ip = "203.0.113.9"
		}
		text += line(&logged{ip, time.Date(2026, 10, 10, 13, 55, n, 0, time.UTC), n}) + "\n"
	}
	return text
}

// simulateLog returns what three logins a minute would have done to a log.
func simulateLog(t *testing.T, opts simulate.Options, log string) (*report.Report, error) {
	t.Helper()
	var err error
	if opts.Policies, err = policyfile.Parse("policies.yaml",
		[]byte("policies: [{name: login, limits: [{name: l, algorithm: sliding-log, limit: 3, window: 1m}]}]\n")); err != nil {
		t.Fatal(err)
	}
	opts.Logs, opts.Stdin, opts.Reorder = []string{"-"}, strings.NewReader(log), 10*time.Second
	return simulate.Run(t.Context(), &opts)
}

// atLogin are conditions that each request of layouts meets.
func atLogin(t *testing.T) (conditions []simulate.Condition) {
	t.Helper()
	for _, text := range []string{"path=/login", "method=POST"} {
		c, err := simulate.ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		conditions = append(conditions, c)
	}
	return conditions
}

// TestCallersOfLayouts finds the same callers whatever program wrote the log, and in whatever encoding.
func TestCallersOfLayouts(t *testing.T) {
	for name, layout := range layouts {
		plain := write(layout.first, layout.line)
		logs := map[string]string{"as it is": plain, "with CRLF": strings.ReplaceAll(plain, "\n", "\r\n")}
		if name == "combined" || name == "Caddy" || name == "columns" {
			logs["with a byte order mark"], logs["by gzip"] = "\xef\xbb\xbf"+plain, packed(t, plain)
			logs["in UTF-16"], logs["big-endian"] = inUTF16(plain, binary.LittleEndian, true), inUTF16(plain, binary.BigEndian, true)
			logs["in UTF-16 without a mark"] = inUTF16(plain, binary.LittleEndian, false)
		}
		for how, log := range logs {
			made, err := simulateLog(t, simulate.Options{Where: atLogin(t)}, log)
			if err != nil {
				t.Errorf("%s, %s: %v", name, how, err)
				continue
			}
			if len(made.Policies) != 1 || made.Decided != 26 || made.Policies[0].Denied != 3 || made.Policies[0].Callers != 11 {
				t.Errorf("%s, %s: %d of %d lines decided, left out %+v, examples %+v", name, how, made.Decided, made.Lines, made.LeftOut, made.Examples)
			}
		}
	}
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func inUTF16(text string, order binary.AppendByteOrder, mark bool) string {
	var b []byte
	if mark {
		b = order.AppendUint16(b, 0xfeff)
	}
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// TestNoCallerIsGuessed refuses lines that do not tell their client, says which, and counts them.
func TestNoCallerIsGuessed(t *testing.T) {
	good := (&logged{"192.0.2.1", time.Date(2026, 10, 10, 13, 55, 0, 0, time.UTC), 0}).combined()
	request := strings.SplitN(good, " - - ", 2)[1]
	for text, want := range map[string]string{
		"www.example.org - - " + request:                 "no address",
		"unknown, 10.0.0.7 - - " + request:               "no address",
		"unix: - 192.0.2.3 " + request:                   "no address",
		"10.0.0.5:443 192.0.2.1 - - " + request:          "several addresses",
		"10.0.0.5 192.0.2.1 - " + request:                "several addresses",
		"10.0.0.5 - 192.0.2.1 " + request:                "several addresses",
		"192.0.2.1 10.0.0.7, 10.0.0.8 - anna " + request: "several addresses",
		"1234 - - " + request:                            "no address",
		": - - " + request:                               "no address",
	} {
		made, err := simulateLog(t, simulate.Options{}, good+"\n"+text+"\n")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if made.Decided != 1 || made.NoAddress != 1 || made.Examples[0].Line != 2 || !strings.Contains(made.Examples[0].Why, want) {
			t.Errorf("%q: %d decided, %+v, want %q", text, made.Decided, made.Examples, want)
		}
		if _, err := simulateLog(t, simulate.Options{}, text); err == nil || !strings.Contains(err.Error(), "standard input, line 1: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q alone: %v", text, err)
		}
	}
	for _, log := range []string{"time,ip\n0,192.0.2.1\n0,anna\n", `{"time":1,"ip":"192.0.2.1"}` + "\n" + `{"time":1,"ip":"anna"}`} {
		if made, err := simulateLog(t, simulate.Options{}, log); err != nil || made.Decided != 1 || made.NoAddress != 1 {
			t.Errorf("%q: %v, %+v", log, err, made)
		}
	}
}

// TestErrorsHaveNoText of the log: there are identifiers in it.
func TestErrorsHaveNoText(t *testing.T) {
	for name, log := range map[string]string{
		"a comma": "192.0.2.1 visited / with Gecko, like Chrome\n", "columns without a header": "2026-10-10 13:55:00,192.0.2.1,/login\n",
		"JSON": `{"ip":"192.0.2.1","when":"now"}` + "\n", "JSON that is cut off": `{"ip":"192.0.2.1"` + "\n", "spaces": "192.0.2.1 /login\n",
		"W3C": "#Version: 1.0\n#Fields: date time c-ip\n2026-10-10\t13:55:00\t192.0.2.1\n", "journald": "__CURSOR=s\nMESSAGE=192.0.2.1 - -\n",
		"old lines":          "192.0.2.1 - - [10/Oct/2026:13:55:00 +0000] \"GET / HTTP/1.1\" 1 1\r192.0.2.2 - - [10/Oct/2026:13:55:00\r",
		"a month":            "192.0.2.1 - - [31/Feb/2026:13:55:00 +0000] \"GET / HTTP/1.1\" 1 1\n",
		"a zone":             "192.0.2.1 - - [10/Oct/2026:13:55:00 +9900] \"GET / HTTP/1.1\" 1 1\n",
		"a date as a number": "time,ip\n20261010135500,192.0.2.1\n", "empty": "", "empty lines": "\n\r\n", "a mark alone": "\xef\xbb\xbf",
	} {
		for _, format := range []string{"", "csv", "combined", "ndjson", "envoy"} {
			_, err := simulateLog(t, simulate.Options{Format: format}, log)
			said := strings.Trim(log, "\r\n\xef\xbb\xbf") != ""
			if err == nil || strings.Contains(err.Error(), "192.0.2") || said && !strings.Contains(err.Error(), "line ") {
				t.Errorf("%s, as %q: %v", name, format, err)
			}
		}
	}
	_, err := simulateLog(t, simulate.Options{}, `{"when":"2026-10-10T13:55:00Z","ip":"192.0.2.1"}`)
	if err == nil || !strings.Contains(err.Error(), "--time-field") {
		t.Errorf("a time of another name: %v", err)
	}
}

// TestAddressesAreClients counts what forward-auth counts: of IPv6 a network of 64 bits, however it is written.
func TestAddressesAreClients(t *testing.T) {
	log := ""
	for n, ip := range []string{
		"2001:db8:1:2::1", "[2001:db8:1:2::2]", "[2001:db8:1:2::3]:443", "2001:db8:1:2:ffff::%eth0", "::ffff:192.0.2.7", "192.0.2.7",
	} {
		log += (&logged{ip, time.Date(2026, 10, 10, 13, 55, n, 0, time.UTC), n}).combined() + "\n"
	}
	made, err := simulateLog(t, simulate.Options{ShowIdentifiers: true}, log)
	if err != nil || made.Decided != 6 || made.Policies[0].Callers != 2 || made.Policies[0].Worst[0].Caller != "2001:db8:1:2::/64" {
		t.Errorf("%v: %+v", err, made)
	}
	c, err := simulate.ParseCondition("ip=2001:db8:1:2::3")
	if err != nil {
		t.Fatal(err)
	}
	if made, err = simulateLog(t, simulate.Options{Where: []simulate.Condition{c}}, log); err != nil || made.Decided != 1 {
		t.Errorf("--where is about the address itself: %v, %+v", err, made)
	}
}

// TestForwardedIsTold of lines with X-Forwarded-For, as the client may be there.
func TestForwardedIsTold(t *testing.T) {
	var log string
	for n, forwarded := range []string{"192.0.2.7", "192.0.2.8, 10.0.0.1", "-", "www.example.org"} {
		log += (&logged{"10.0.0.9", time.Date(2026, 10, 10, 13, 55, n, 0, time.UTC), n}).combined() + ` "` + forwarded + "\"\n"
	}
	made, err := simulateLog(t, simulate.Options{}, log)
	if err != nil || made.Forwarded != 2 || made.Policies[0].Callers != 1 {
		t.Errorf("%v: %+v", err, made)
	}
	made, err = simulateLog(t, simulate.Options{Identifier: "http_x_forwarded_for"}, log)
	if err != nil || made.Forwarded != 0 || made.Listed != 1 || made.Policies[0].Callers != 2 || made.LeftOut.NoIdentifier != 2 {
		t.Errorf("%v: %+v", err, made)
	}
}

// TestAnHourThatRepeats is out of order where the log has no zone, and in order where it has.
func TestAnHourThatRepeats(t *testing.T) {
	line := "192.0.2.1 - - [25/Oct/2026:02:%02d:00%s] \"GET / HTTP/1.1\" 200 1\n"
	for zones, late := range map[[2]string]int64{{" +0200", " +0100"}: 0, {"", ""}: 1} {
		log := fmt.Sprintf(line, 1, zones[0]) + fmt.Sprintf(line, 59, zones[0]) + fmt.Sprintf(line, 0, zones[1])
		made, err := simulateLog(t, simulate.Options{}, log)
		if err != nil || made.Late != late || made.Decided != 3 {
			t.Errorf("%q: %v, %+v", zones, err, made)
		}
	}
}

// TestPathsOfColumnsHaveNoQuery checks that a condition on path is about the path alone, as in all formats.
func TestPathsOfColumnsHaveNoQuery(t *testing.T) {
	const log = "time,ip,path\n0,192.0.2.1,/login?next=a\n1,192.0.2.1,/login\n2,192.0.2.1,/start\n"
	c, err := simulate.ParseCondition("path=/login")
	if err != nil {
		t.Fatal(err)
	}
	if made, err := simulateLog(t, simulate.Options{Where: []simulate.Condition{c}}, log); err != nil || made.Decided != 2 {
		t.Errorf("%v: %+v", err, made)
	}
}
