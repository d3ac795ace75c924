package serve

import (
	"net/http"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/http1"
)

// TestHTTPServer is http1's unless the settings name net/http, whose server is then served by nothing else.
func TestHTTPServer(t *testing.T) {
	for name, wantFast := range map[string]bool{"fast": true, settings.HTTPStd: false} {
		server := new(http.Server)
		got := (&service{settings: &settings.Settings{HTTPServer: name}}).readBy(server)
		fast, isFast := got.(*http1.Server)
		if isFast != wantFast || isFast && fast.Server != server || !isFast && got != webServer(server) {
			t.Errorf("%s: %T", name, got)
		}
	}
}
