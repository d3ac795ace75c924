package ui_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// tab is a tab of a real browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	complain []string // what its console has of errors
}

// findChromium returns the path of a Chromium. Without one, the test is skipped, or fails where CI runs it.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("no Chromium, in which the page is tested: apt-get install chromium")
	}
	t.Skip("the page is tested in a real browser, and there is none: apt-get install chromium")
	return ""
}

// openTab returns a tab of a headless Chromium of its own, so many CSS pixels wide and high.
func openTab(t *testing.T, width, height int64, dark bool) *tab {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(findChromium(t)),
		chromedp.NoSandbox, // which root can't have
	)
	ctx, cancel := context.WithTimeout(t.Context(), 4*clitest.Patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600,
	})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	return b
}

func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.complain = append(b.complain, e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		b.complain = append(b.complain, e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.complain = append(b.complain, fmt.Sprint(e.Args))
		}
	}
}

// complaints returns the errors in the console.
func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.complain)
}

// quiet holds that the console has no errors but those that hold one of but.
func (b *tab) quiet(but ...string) {
	b.t.Helper()
	for _, text := range b.complaints() {
		if !slices.ContainsFunc(but, func(known string) bool { return strings.Contains(text, known) }) {
			b.t.Errorf("the console has %q", text)
		}
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v\n%s", err, b.complaints())
	}
}

// open loads the page of a server.
func (b *tab) open(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url + "/ui"))
}

// see waits until the text of what selector selects holds text.
func (b *tab) see(selector, text string) {
	b.t.Helper()
	again, late := time.NewTicker(20*time.Millisecond), time.After(clitest.Patience)
	defer again.Stop()
	for !strings.Contains(b.text(selector), text) {
		select {
		case <-again.C:
		case <-late:
			b.t.Fatalf("no %q in %s, which is %q\n%s", text, selector, b.text(selector), b.complaints())
		}
	}
}

// text returns what somebody can read of what selector selects.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return evaluate[string](b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? 'not there'", selector))
}

// evaluate returns the value of an expression of JavaScript.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.complaints())
	}
	return value
}
