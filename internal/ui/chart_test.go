package ui_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
)

// recordCanvas keeps what is written on each canvas since it was last cleared, and counts the circles that are drawn.
const recordCanvas = `
	window.circles = 0;
	const { clearRect, fillText } = CanvasRenderingContext2D.prototype, arc = Path2D.prototype.arc;
	CanvasRenderingContext2D.prototype.clearRect = function (...a) { this.canvas.texts = []; return clearRect.apply(this, a); };
	CanvasRenderingContext2D.prototype.fillText = function (...a) { (this.canvas.texts ??= []).push(a[0]); return fillText.apply(this, a); };
	Path2D.prototype.arc = function (...a) { window.circles++; return arc.apply(this, a); };`

// TestChartSoonAfterStart draws what an instance decided in its first seconds and minutes: as lines, with each minute once.
func TestChartSoonAfterStart(t *testing.T) {
	b := openTab(t, 1000, 800, false)
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: recordCanvas})
	for _, seconds := range []int{5, 15, 20, 75, 240, 900} {
		h := newHour(t)
		for range seconds / 5 {
			h.now = h.now.Add(5 * time.Second)
			h.take(t, "login", "caller")
			h.measured.ObserveHTTP("/v1/take", 200, time.Millisecond, "")
			h.page.Read(t.Context())
		}
		b.open(h.server.URL)
		b.see("#latency-chart", "Requests, p99")
		for _, chart := range []string{"decisions", "latency"} {
			b.see("#"+chart+"-chart", "Time")
			labels := evaluate[[]string](b, `[...document.querySelector("#`+chart+`-chart canvas").texts]`)
			minutes := slices.DeleteFunc(labels, func(label string) bool { return !strings.Contains(label, ":") })
			if once := slices.Compact(slices.Sorted(slices.Values(minutes))); len(minutes) == 0 || len(minutes) > 17 || len(once) != len(minutes) {
				t.Errorf("after %d s the %s have the minutes %q", seconds, chart, minutes)
			}
		}
		if circles := evaluate[int](b, "window.circles"); circles > 0 {
			t.Errorf("after %d s, %d points are drawn without a line", seconds, circles)
		}
	}
}

// TestHistoryBegins has no figures before there is a rate, and then the begin and the end of the first sample.
func TestHistoryBegins(t *testing.T) {
	h := newHour(t)
	history := func() []int64 { return h.page.History(func(string) bool { return true }).Times }
	h.now = h.now.Add(3 * time.Second)
	if times := history(); len(times) != 0 {
		t.Errorf("after 3 s: %v", times)
	}
	h.now = h.now.Add(3 * time.Second)
	if times, end := history(), h.now.Unix(); !slices.Equal(times, []int64{end - 6, end}) {
		t.Errorf("after 6 s: %v, want %v", times, []int64{end - 6, end})
	}
}

// TestOffsetOfNothing is shown without a sign.
func TestOffsetOfNothing(t *testing.T) {
	h := newHour(t)
	h.measured.SetClockOffset(-time.Microsecond)
	b := openTab(t, 1000, 800, false)
	b.open(h.server.URL)
	b.see("#tiles", "\n0.00 ms from the store's")
}
