package ui_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

const policies = `policies:
  - name: login
    limits: [{algorithm: sliding-log, limit: 2, window: 1h}, {name: next, algorithm: sliding-log, limit: 1, window: 1h, shadow: true}]
  - {name: codes, limits: [{algorithm: conversion, unconfirmed: 4, min_conversion: 50%, window: 1h}]}
  - {name: tighter, mode: shadow, limits: [{algorithm: fixed-window, limit: 1, window: 1h}]}
  - {name: german, normalize: e164, countries: {allow: [DE]}, block_for: 1h, limits: [{algorithm: sliding-log, limit: 1, window: 1h}]}
  - {name: a-policy-whose-name-is-as-long-as-names-may-be-63-characters-xx, limits: [{algorithm: token-bucket, limit: 5, window: 1m}]}
`

// css selects the first element of a selector.
type css = chromedp.CSS

// serve starts a server with the page.
func serve(t *testing.T, flags ...string) *clitest.Server {
	t.Helper()
	return clitest.Start(t, nil, append([]string{"--ui", "--policies=" + clitest.Write(t, "p.yaml", policies)}, flags...)...)
}

// TestPage loads the page, sees decisions, and explains and overrides by its form.
func TestPage(t *testing.T) {
	s := serve(t)
	for range 4 {
		s.Take(t, "login")
		s.Take(t, "tighter")
	}
	s.Take(t, "codes")
	for _, number := range []string{"+4915112345678", "+4915112345678", "+4915112345678", "+4915112345678", "+33612345678"} {
		s.TakeOf(t, "german", number)
	}
	b := openTab(t, 1200, 900, false)
	b.open(s.URL)
	b.see("#policies tr:nth-child(1)", "german\t1\t4\t80.0 %\t1 over limit, 2 blocked, 1 refused\t0")
	b.see("#policies tr:nth-child(2)", "login\t1\t2\t50.0 %\tover limit\t1")
	b.see("#policies tr:nth-child(3)", "tighter shadow\t1\t0\t0.0 %\t–\t3")
	if evaluate[bool](b, "document.querySelector('#tiles .bad') !== null") {
		t.Errorf("denials, which are what a limiter is for, look like a failure: %s", b.text("#tiles"))
	}
	b.see("#confirmations", "codes\t–\t1\t0\t0.0 %\t1\t25.0 %")
	b.see("#shadow", "tighter\tfixed-window-1h\t4\t3\t75.0 %\t1\t")
	b.see("#shadow", "login\tnext\t4\t1\t25.0 %\t1\t")
	b.see("#shadow .spark", "█")
	b.see("#worst", "login")
	b.see("#decisions-chart", "Would deny")
	b.see("#latency-chart", "Requests, p99")

	b.do(
		chromedp.SetValue(css("#ask [name=policy]"), "login"),
		chromedp.SendKeys(css("#ask [name=identifier]"), "+4915112345678"+kb.Enter), // which explains
	)
	b.see("#answer", "Denied now")
	b.see("#answer", "Recorded in the audit log at ")
	b.see("#answer", ": explain, by anonymous.")
	b.do(chromedp.Click(css("#ask [value=set]"))) // before anything is chosen
	complaint := evaluate[string](b, "document.querySelector('#ask [name=kind]').validationMessage")
	if complaint != "Choose the effect of the override." {
		t.Errorf("an override without an effect: %q", complaint)
	}
	b.do(chromedp.SetValue(css("#ask [name=kind]"), "allow"), chromedp.Click(css("#ask [value=set]")))
	b.see("#confirm", "Allow everything for +4915112345678 under login, for 1 h?")
	b.do(chromedp.KeyEvent(kb.Enter)) // on what has the focus, which is Cancel
	b.see("#overrides", "None.")
	b.do(chromedp.Click(css("#ask [value=set]")), chromedp.Click(css("#confirm-yes")))
	b.see("#answer", "The override is in force for")
	b.see("#answer", ": override.set, by anonymous.")
	b.see("#audit tr:nth-child(1)", "override.set")
	b.see("#overrides", "allow")
	if got := s.Take(t, "login"); got != http.StatusOK {
		t.Errorf("a take under the override: %d", got)
	}
	b.do(chromedp.Click(css("#ask [value=explain]")))
	b.see("#answer", "Allowed now")
	b.do(chromedp.Click(css("#ask [value=end]")))
	b.see("#confirm", "End the override for +4915112345678 under login?")
	b.do(chromedp.Click(css("#confirm-yes")))
	b.see("#answer", "No override is in force.")
	b.see("#overrides", "None.")

	b.do(chromedp.SetValue(css("#ask [name=unit]"), "ever"))
	b.do(chromedp.SendKeys(css("#ask [name=kind]"), "other"), chromedp.Click(css("#ask [value=set]"))) // the limits that the policy has
	b.see("#confirm", "Apply other limits (sliding-log-1h 2, next 1) for +4915112345678 under login, without end?")
	b.do(chromedp.Click(css("#confirm-yes")))
	b.see("#answer", "The override is in force")
	b.see("#overrides", "limits: sliding-log-1h 2")
	b.see("#overrides", "never")
	b.quiet()
}

// TestPageFits holds that nothing of the page is out of reach on a phone, and that it is dark where it is to be.
func TestPageFits(t *testing.T) {
	s := serve(t)
	for range 4 {
		s.Take(t, "login")
		s.Take(t, "a-policy-whose-name-is-as-long-as-names-may-be-63-characters-xx")
		s.Take(t, "codes")
	}
	background := make(map[string]bool)
	for _, dark := range []bool{true, false} {
		b := openTab(t, 360, 740, dark)
		b.open(s.URL)
		b.see("#policies", "login")
		b.see("#decisions-chart", "Denied")
		b.do(chromedp.SetValue(css("#ask [name=policy]"), "login"), chromedp.SendKeys(css("#ask [name=identifier]"), "+4915112345678"+kb.Enter))
		b.see("#answer", "Denied now")
		b.fits(360)
		if broken := evaluate[[]string](b, brokenWords); len(broken) > 0 {
			t.Errorf("broken within words are %q", broken)
		}
		background[evaluate[string](b, "getComputedStyle(document.body).backgroundColor")] = true
		b.quiet()
	}
	if len(background) != 2 {
		t.Errorf("dark and light have the background %v", background)
	}
}

// fits holds that nothing of the page is beyond a screen of so many pixels.
func (b *tab) fits(width int) {
	b.t.Helper()
	wide := evaluate[[]string](b, fmt.Sprintf(`[...document.querySelectorAll("body *")]
		.filter((e) => e.getBoundingClientRect().right > %d.5).map((e) => e.outerHTML.slot(0, 90))`, width))
	if len(wide) > 0 {
		b.t.Errorf("beyond the edge are\n%s", strings.Join(wide, "\n"))
	}
	if is := evaluate[int](b, "document.documentElement.scrollWidth"); is > width {
		b.t.Errorf("the page is %d pixels wide", is)
	}
}

// brokenWords are the limits in the answer's table that take several lines.
const brokenWords = `[...document.querySelectorAll("#answer td:first-child")]
	.filter((e) => e.getBoundingClientRect().height > 30).map((e) => e.innerText)`

// TestPageByKeyboard reaches every control by Tab, and sees which one has the focus.
func TestPageByKeyboard(t *testing.T) {
	s := serve(t)
	b := openTab(t, 1200, 900, true)
	b.open(s.URL)
	b.see("#ask", "Set override")
	reached := make(map[string]bool)
	for range 20 {
		b.do(chromedp.KeyEvent(kb.Tab))
		at := evaluate[[]string](b, `(() => {
			const e = document.activeElement;
			return [e.id || e.value && e.name === "act" && e.value || e.name || e.className, getComputedStyle(e).outlineStyle];
		})()`)
		reached[at[0]] = true
		if at[1] != "solid" && at[0] != "" {
			t.Errorf("the focus on %q does not show", at[0])
		}
	}
	for _, control := range []string{"skip", "chart-policy", "policy", "identifier", "explain", "kind", "lasts", "unit", "set", "end"} {
		if !reached[control] {
			t.Errorf("%s is not reached: %v", control, reached)
		}
	}
	unlabelled := evaluate[[]string](b, `[...document.querySelectorAll("input, select")].filter((e) => !e.ariaHidden && e.labels.length === 0)
		.map((e) => e.outerHTML)`)
	untitled := evaluate[[]string](b, `[...document.querySelectorAll("table")].filter((e) => !e.querySelector("th")).map((e) => e.outerHTML)`)
	if len(unlabelled)+len(untitled) > 0 {
		t.Errorf("no label has %v, no headers have %v", unlabelled, untitled)
	}
}

const callers = `callers:
  - {name: operator, token_sha256: %s, scopes: [admin], policies: any}
  - {name: half, token_sha256: %s, scopes: [admin], policies: [tighter]}
  - {name: shop, token_sha256: %s, scopes: [decide], policies: any}
`

// TestPageAsksWhoItIs shows nothing to strangers, and each caller the policies that it may use.
func TestPageAsksWhoItIs(t *testing.T) {
	file := fmt.Sprintf(callers, auth.Digest("op"), auth.Digest("ha"), auth.Digest("sh"))
	s := serve(t, "--auth-file="+clitest.Write(t, "callers.yaml", file))
	b := openTab(t, 800, 900, false)
	b.open(s.URL)
	b.see("#sign-in", "Token")
	signIn := func(token string) { b.do(chromedp.SendKeys(css("#sign-in [name=token]"), token+kb.Enter)) }
	signIn("wrong")
	b.see("#notices", "Send a token")
	signIn("sh")
	b.see("#notices", "it needs the scope admin")
	if !evaluate[bool](b, "document.querySelector('main').hidden && document.querySelector('#policies').innerText.trim() === ''") {
		t.Errorf("it shows\n%s", b.text("main"))
	}
	signIn("ha")
	b.see("#policies", "tighter")
	if text := b.text("main"); strings.Contains(text, "login") || strings.Contains(text, "/ui/state") {
		t.Errorf("who may ask about one policy sees\n%s", text)
	}
	b.do(chromedp.Reload()) // which this tab outlives
	b.see("#policies", "tighter")
	b.do(chromedp.Click(css("#sign-out")))
	b.see("#sign-in", "Token")
	signIn("op")
	b.see("#policies", "login")
	b.see("#audit", "/ui/state")
	b.quiet("401", "403")
}

// TestPageIsOffUnlessAsked holds that a server without --ui has no page.
func TestPageIsOffUnlessAsked(t *testing.T) {
	off, on := clitest.Start(t, nil), serve(t)
	for _, path := range []string{"/ui", "/ui/", "/ui/ui.js", "/ui/state", "/ui/history"} {
		if got := off.Get(t, path); got != http.StatusNotFound {
			t.Errorf("%s: %d without --ui", path, got)
		}
		if got := on.Get(t, path); got != http.StatusOK {
			t.Errorf("%s: %d with --ui", path, got)
		}
	}
	if got := on.Get(t, "/ui/none.js"); got != http.StatusNotFound {
		t.Errorf("a file that is not there: %d", got)
	}
}

// TestPageIsStrict holds what keeps other pages and scripts out, and that what did not change is not sent again.
func TestPageIsStrict(t *testing.T) {
	s := serve(t)
	resp, err := http.Get(s.URL + "/ui")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	again, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/ui", nil)
	if err != nil {
		t.Fatal(err)
	}
	again.Header.Set("If-None-Match", resp.Header.Get("ETag"))
	if resp, err := http.DefaultClient.Do(again); err != nil || resp.StatusCode != http.StatusNotModified {
		t.Errorf("again: %v, %v", resp, err)
	}
	for _, want := range []string{
		"default-src 'none'", "script-src 'self';", "style-src 'self';", "form-action 'none'", "frame-ancestors 'none'",
	} {
		if got := resp.Header.Get("Content-Security-Policy"); !strings.Contains(got, want) {
			t.Errorf("the policy is %q, without %q", got, want)
		}
	}
}
