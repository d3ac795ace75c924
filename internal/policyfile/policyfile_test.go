package policyfile_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // wherever the tests run

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

var update = flag.Bool("update", false, "write the golden files anew")

// lines returns the mistakes in text, one a line, or fails.
func lines(t *testing.T, text string) []string {
	t.Helper()
	policies, err := policyfile.Parse("p.yaml", []byte(text))
	if err == nil {
		t.Fatalf("accepted as %+v:\n%s", policies, text)
	}
	if policies != nil {
		t.Errorf("%d policies beside the error", len(policies))
	}
	var mistakes yamlfile.Errors
	if !errors.As(err, &mistakes) {
		t.Fatalf("error is a %T, want yamlfile.Errors", err)
	}
	return strings.Split(err.Error(), "\n")
}

func TestTenMistakesGiveTenMessages(t *testing.T) {
	const file = "testdata/ten-mistakes.yaml"
	_, err := policyfile.Load(file)
	var mistakes yamlfile.Errors
	if !errors.As(err, &mistakes) {
		t.Fatalf("error is %v, want yamlfile.Errors", err)
	}
	if len(mistakes) != 10 {
		t.Errorf("%d messages, want 10", len(mistakes))
	}
	golden(t, strings.TrimSuffix(file, ".yaml")+".golden", err.Error()+"\n")
}

// golden compares got with the contents of file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// policy returns a file of one policy with more members, each on its own line.
func written(members ...string) string {
	return "policies:\n  - name: p\n    " + strings.Join(members, "\n    ") + "\n"
}

// limit returns a file whose policy's one limit, on line 4, is given.
func limit(text string) string { return written("limits:", "  - {"+text+"}") }

const goodLimits = "limits: [{algorithm: sliding-log, limit: 10, window: 1h}]"

func TestMistakes(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", "1: there is nothing in this file: start it with policies: and a list of at least one policy"},
		{"only a comment", "# soon\n", "1: there is nothing in this file"},
		{"no policies", "policies: []\n", "1: policies: there are no policies: give at least one"},
		{"a list at the top", "- name: p\n", "1: a list where a map belongs: start it with policies:"},
		{"another key at the top", "policy: []\n", "1: policy: unknown key: did you mean policies?"},
		{"a policy that is a word", "policies: [login]\n", "1: policies[0]: text where a map belongs: write name: and limits:"},
		{"several documents", written(goodLimits) + "---\npolicies: []\n", "4: a second YAML document starts here: put everything into one"},
		{"not YAML", "policies: [\n", "1: not YAML: "},
		{"a tab", "policies:\n\t- name: p\n", "2: a tab in the indentation, which YAML forbids: indent by spaces"},
		{"not UTF-8", "policies:\n  - name: \xff\n", "2: this line is not UTF-8: save the file in that encoding"},
		{"no name", "policies:\n  - " + goodLimits + "\n", "2: policies[0].name: missing: give the policy a name"},
		{"a bad name", "policies:\n  - name: SMS\n    " + goodLimits + "\n", `2: policies[0].name: "SMS" is not a policy name: use 1 to 63`},
		{"a name that is a number", "policies:\n  - name: 12\n    " + goodLimits + "\n",
			"2: policies[0].name: a number where text belongs: put 12 in quotes"},
		{"no limits", written("count: all"), "2: policies[0].limits: missing: give the policy at least one limit"},
		{"an empty list of limits", written("limits: []"), "3: policies[0].limits: 0 limits: a policy needs 1 to 16"},
		{"a limit that is a number", written("limits: [10]"), "3: policies[0].limits[0]: a number where a map belongs: write {algorithm:"},
		{"limits left out", written("limits:"), "3: policies[0].limits: has no value: give it one or remove it"},
		{"limits of one name", written("limits:", "  - {algorithm: sliding-log, limit: 1, window: 1h}",
			"  - {algorithm: sliding-log, limit: 2, window: 60m}"), "5: policies[0].limits[1].name: \"sliding-log-1h\" names limits[0] too"},
		{"a word that is empty", written(goodLimits, "mode: ''"), "4: policies[0].mode: is empty: give it a value or remove it"},
		{"a boolean", written(goodLimits, "mode: false"), "4: policies[0].mode: true or false where text belongs: put false in quotes"},
		{"a mode there is not", written(goodLimits, "mode: dry"), `4: policies[0].mode: "dry" is not known: use one of enforce, shadow, off`},
		{"a shadow of a bucket", limit("algorithm: leaky-bucket, limit: 1, window: 1h, shadow: true"),
			"4: policies[0].limits[0].shadow: a leaky-bucket in shadow never drains"},
		{"shadows alone", limit("algorithm: sliding-log, limit: 1, window: 1h, shadow: true"), "3: policies[0].limits: all of them are shadow"},
		{"a shadow that is text", limit("algorithm: sliding-log, limit: 1, window: 1h, shadow: 'true'"),
			"4: policies[0].limits[0].shadow: text where true or false belongs"},
		{"a level there is not", written(goodLimits, "consistency:", "  read: MANY"),
			`5: policies[0].consistency.read: "MANY" is not a read level: use one of ONE`},
		{"a write level for reads", written(goodLimits, "consistency: {read: ANY}"), `consistency.read: "ANY" is not a read level`},
		{"a level alone", written(goodLimits, "consistency: QUORUM"), "4: policies[0].consistency: text where a map belongs: write {write:"},
		{"a guarantee there is not", written(goodLimits, "guarantee: locla"),
			`4: policies[0].guarantee: "locla" is not known: use one of counted, local`},
		{"a bucket beside a log", written("limits:", "  - {algorithm: sliding-log, limit: 1, window: 1h}",
			"  - {algorithm: leaky-bucket, limit: 1, window: 1h}"),
			"5: policies[0].limits[1].algorithm: a leaky-bucket can't stand beside limits[0], a sliding-log: " +
				"put the leaky-bucket into a policy of its own and name both in the call"},
		{"leases", written(goodLimits, "leases: early"),
			"4: policies[0].leases: leases are gone since every key has an owner: delete the line"},
		{"leases of no mode", written("leases: [1]", goodLimits),
			"3: policies[0].leases: leases are gone since every key has an owner: delete the line"},
		{"a key like one that is gone", written(goodLimits, "lease: late"),
			"4: policies[0].lease: unknown key: known ones: name, description"},
		{"a guarantee that is gone", written(goodLimits, "guarantee: serial"),
			"4: policies[0].guarantee: serial is gone, since owners deny nobody while there is room: delete the line"},
		{"buckets that count denied attempts", written("limits: [{algorithm: leaky-bucket, limit: 1, window: 1h}]", "count: all"),
			`4: policies[0].count: "all" has no meaning for limits[0], a leaky-bucket: use "admitted"`},
		{"no algorithm", limit("limit: 1, window: 1h"), "4: policies[0].limits[0].algorithm: missing: give an algorithm"},
		{"no limit", limit("algorithm: sliding-log, window: 1h"), "4: policies[0].limits[0].limit: missing: give the number of units"},
		{"a misspelt window", limit("algorithm: sliding-log, limit: 1, windwo: 1h"), "limits[0].windwo: unknown key: did you mean window?"},
		{"a misspelt algorithm", limit("algorihtm: sliding-log, limit: 1, window: 1h"), "did you mean algorithm?"},
		{"a limit far too large for a log", limit("algorithm: sliding-log, limit: 9000000000000000, window: 1h"), "is out of range"},
		{"no window", limit("algorithm: sliding-log, limit: 1"), "4: policies[0].limits[0].window: missing: give the length"},
		{"a window that is none", limit("algorithm: sliding-log, limit: 1, window: 1 hour"),
			`4: policies[0].limits[0].window: "1 hour" is not a window: use a duration such as 30s`},
		{"a window in parts of ms", limit("algorithm: sliding-log, limit: 1, window: 1500500us"), "window: 1.5005s is not whole milliseconds"},
		{"a negative limit", limit("algorithm: sliding-log, limit: -1, window: 1h"), "limit: -1 is out of range: use 0 (denies always) to"},
		{"a limit past all bounds", limit("algorithm: sliding-log, limit: 2000000000000000, window: 1h"), "is out of range"},
		{"a limit past int64", limit("algorithm: fixed-window, limit: 99999999999999999999, window: 1h"), "is out of range: use 0"},
		{"a limit in quotes", limit(`algorithm: sliding-log, limit: "10", window: 1h`), "text where a number belongs: write 10 without quotes"},
		{"half a unit", limit("algorithm: sliding-log, limit: 10.5, window: 1h"), `"10.5" is not a whole number: write plain digits`},
		{"an octal limit", limit("algorithm: sliding-log, limit: 010, window: 1h"), `"010" is not a whole number: write plain digits`},
		{"underscores", limit("algorithm: sliding-log, limit: 1_000, window: 1h"), `"1_000" is not a whole number`},
		{"a list of limits", limit("algorithm: sliding-log, limit: [1], window: 1h"), "limit: a list where a number belongs: write plain digits"},
		{"a burst of a log", limit("algorithm: sliding-log, limit: 1, window: 1h, burst: 2"), "burst: only a token-bucket has a burst"},
		{"no burst", limit("algorithm: token-bucket, limit: 1, window: 1h, burst: 0"), "burst: 0 is out of range: use 1 to 1000000000000000"},
		{"a burst in words", limit("algorithm: token-bucket, limit: 1, window: 1h, burst: 2k"), `burst: "2k" is not a whole number`},
		{"a burst too large", limit("algorithm: token-bucket, limit: 1, window: 1h, burst: 2000000000000000"), "burst: 2000000000000000 is"},
		{"a burst too small for whole milliseconds", limit("algorithm: token-bucket, limit: 2000, window: 1s, burst: 1"),
			"burst: a burst of 1 loses tokens of 2000 in 1s: time counts in whole milliseconds, and the tokens of a millisecond must fit: " +
				"use a burst of at least 2"},
		{"a log by the calendar", limit("algorithm: sliding-log, limit: 1, window: day"),
			"4: policies[0].limits[0].window: a sliding-log counts over one length of time"},
		{"a calendar there is not", limit("algorithm: fixed-window, limit: 1, window: year"), `window: "year" is not a window`},
		{"a zone of no calendar", limit("algorithm: fixed-window, limit: 1, window: 1d, timezone: Europe/Berlin"),
			"timezone: a window of 1d starts everywhere at once, at a multiple of its length in UTC: remove it, or use window: day"},
		{"a zone of a wrong window", limit("algorithm: fixed-window, limit: 1, window: dayly, timezone: Europe/Berlin"),
			`"dayly" is not a window`},
		{"a zone of no window", limit("algorithm: fixed-window, limit: 1, timezone: Europe/Berlin"), "window: missing: give the length"},
		{"a zone there is not", limit("algorithm: fixed-window, limit: 1, window: week, timezone: Berlin"),
			`4: policies[0].limits[0].timezone: "Berlin" is not a time zone: use a name of the IANA database such as Europe/Berlin, or UTC`},
		{"an offset", limit("algorithm: fixed-window, limit: 1, window: week, timezone: +2"), "timezone: a number where text belongs: put +2 in"},
		{"buckets of a log", limit("algorithm: sliding-log, limit: 1, window: 1h, buckets: 4"), "buckets: only a sliding-window has buckets"},
		{"no buckets", limit("algorithm: sliding-window, limit: 1, window: 1h, buckets: 0"), "buckets: 0 is out of range: use 2 to 100"},
		{"too many buckets", limit("algorithm: sliding-window, limit: 1, window: 1h, buckets: 101"), "buckets: 101 is out of range"},
		{"half a bucket", limit("algorithm: sliding-window, limit: 1, window: 1h, buckets: 1.5"), `"1.5" is not a whole number`},
		{"buckets that don't fit", limit("algorithm: sliding-window, limit: 1, window: 1s, buckets: 7"),
			"buckets: 7 do not divide a window of 1s into whole milliseconds"},
		{"rounding a log", limit("algorithm: sliding-log, limit: 1, window: 1h, rounding: up"), "limits[0].rounding: only sliding-tail rounds"},
		{"an anchor", written(goodLimits, "mode: &m shadow"), "4: policies[0].mode: anchors such as &m are not supported"},
		{"an alias", written(goodLimits, "mode: *m"), "4: *m stands for an anchor, and there is none: put text that begins with a * in quotes"},
		{"a merge key", written("<<: {mode: shadow}"), "3: policies[0].<<: merge keys are not supported: write the members out"},
		{"a tag", written(goodLimits, "mode: !!str shadow"), "4: policies[0].mode: tags such as !!str are not supported: remove it"},
		{"a share without its unit", written(goodLimits, "guarantee: local", "write_from: 10"),
			"write_from: 10 has no unit: write it as a percentage such as 20%"},
		{"write_from where all is written first", written(goodLimits, "write_from: 10%"),
			`4: policies[0].write_from: under guarantee "counted" every unit is written before it is admitted`},
		{"a key nothing is like", written(goodLimits, "x: 1"),
			"known ones: name, description, limits, count, counting, guarantee"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := lines(t, test.text)
			if len(got) != 1 {
				t.Errorf("%d messages, want one:\n%s", len(got), strings.Join(got, "\n"))
			}
			if !strings.HasPrefix(got[0], "p.yaml:") || !strings.Contains(got[0], test.want) {
				t.Errorf("message:\n%s\nwant within it:\n%s", got[0], test.want)
			}
		})
	}
}

func TestMistakesDoNotHideEachOther(t *testing.T) {
	got := lines(t, `policies:
  - name: a
    limits: [{algorithm: sliding-log, limit: many, window: soon, colour: red}, 7]
    mode: [shadow]
  - 12
  - name: a
    limits: [{algorithm: nothing, limit: -1, window: 0s}]
`)
	want := []string{
		"3: policies[0].limits[0].limit:", "3: policies[0].limits[0].window:", "3: policies[0].limits[0].colour:",
		"3: policies[0].limits[1]:", "4: policies[0].mode:", "5: policies[1]:", "6: policies[2].name:",
		"7: policies[2].limits[0].algorithm:", "7: policies[2].limits[0].limit:", "7: policies[2].limits[0].window:",
	}
	if len(got) != len(want) {
		t.Fatalf("%d messages, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], "p.yaml:"+want[i]) {
			t.Errorf("message %d is %q, want it to start with %q", i, got[i], want[i])
		}
	}
}

func TestABadNameIsToldOnceForEachPolicy(t *testing.T) {
	got := lines(t, "policies:\n  - {name: SMS, "+goodLimits+"}\n  - {name: SMS, "+goodLimits+"}\n")
	if len(got) != 2 || !strings.Contains(got[0], "is not a policy name") || !strings.Contains(got[1], "is not a policy name") {
		t.Errorf("messages: %q", got)
	}
}

func TestParseKeepsWhatIsWritten(t *testing.T) {
	got, err := policyfile.Parse("p.yaml", []byte(`{"policies": [{"name": "2fa", "description": "", "mode": off, "count": all,
  "consistency": {"write": quorum}, "on_store_error": "local", "guarantee": 'counted',
  "limits": [{"name": "x", "algorithm": "sliding-tail", "limit": 0, "window": "1d12h", "rounding": up}]}]}`))
	want := []policy.Policy{{
		Name: "2fa", Mode: policy.ModeOff, Count: policy.CountAll, OnStoreError: policy.OnStoreErrorLocal,
		Guarantee: policy.GuaranteeCounted, Consistency: policy.Consistency{Write: policy.LevelQuorum},
		Limits: []policy.Limit{{Name: "x", Algorithm: "sliding-tail", Window: 36 * time.Hour, Rounding: policy.RoundUp}},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestBounds(t *testing.T) {
	var b strings.Builder
	b.WriteString("policies:\n")
	for i := range policyfile.MaxPolicies {
		fmt.Fprintf(&b, "- {name: p%d, limits: [{algorithm: sliding-log, limit: 1, window: 1s}]}\n", i)
	}
	policies, err := policyfile.Parse("p.yaml", []byte(b.String()))
	if err != nil || len(policies) != policyfile.MaxPolicies {
		t.Errorf("%d policies, %v; want all %d", len(policies), err, policyfile.MaxPolicies)
	}
	got := lines(t, b.String()+"- {name: x}\n")
	if len(got) != 1 || !strings.Contains(got[0], "10001 policies: a file may hold at most 10000") {
		t.Errorf("one policy too many: %q", got)
	}
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, []byte(strings.Repeat("#\n", yamlfile.MaxSize)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := policyfile.Load(large); err == nil || !strings.Contains(err.Error(), "a file may have at most 1048576") {
		t.Errorf("a file of 2 MiB: %v", err)
	}
	if _, err := policyfile.Load(large + ".absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
}

func TestDefault(t *testing.T) {
	policies, err := policyfile.Default()
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, p := range policies {
		for _, l := range p.Limits {
			got += fmt.Sprintf("%s %s %d %s\n", p.Name, l.Algorithm, l.Limit, policy.FormatWindow(l.Window))
		}
	}
	const want = "sms-send sliding-log 10 1h\nlogin sliding-log 5 15m\napi sliding-tail 1000 1m\n"
	if got != want {
		t.Errorf("default policies:\n%swant:\n%s", got, want)
	}
}

// TestWriteFromIsReadAndWritten holds that a file keeps write_from.
func TestWriteFromIsReadAndWritten(t *testing.T) {
	read, err := policyfile.Parse("p.yaml", []byte(written(goodLimits, "guarantee: local", "write_from: 10%")))
	if err != nil || read[0].WriteFrom != 10 {
		t.Fatalf("%+v, %v", read, err)
	}
	again, err := policyfile.Parse("p.yaml", policyfile.Format(read))
	if err != nil || again[0].WriteFrom != 10 {
		t.Errorf("%+v, %v", again, err)
	}
}
