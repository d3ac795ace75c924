package client

import (
	"net/http"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/internal/join"
)

// TestNoTraceCostsNothing holds that calls outside of any span allocate nothing for it.
func TestNoTraceCostsNothing(t *testing.T) {
	ctx, header := t.Context(), make(http.Header)
	if n := testing.AllocsPerRun(100, func() {
		if traceOf(ctx) != join.Untraced {
			t.Fatal("it is traced")
		}
		inject(ctx, header)
	}); n != 0 || len(header) > 0 {
		t.Errorf("%v allocations, header %v", n, header)
	}
}
