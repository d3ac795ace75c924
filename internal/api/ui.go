package api

import (
	"context"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/auth"
)

// UI is the live page, and its figures as documents of JSON. may reports whether a caller may ask about a
// policy; of the name "", whether about any.
type UI struct {
	Page    http.Handler // of /ui, and of what it loads below that
	State   func(may func(policy string) bool) any
	History func(policy string, may func(policy string) bool) any // of all policies if it is empty
}

// routeUI adds the live page. The page itself is open, as a browser that follows a link shows no token,
// and there are no figures in it; it asks for them as any client does.
func (s *Server) routeUI() {
	s.mux.Method(http.MethodGet, "/ui", s.opts.UI.Page)
	s.mux.Method(http.MethodGet, "/ui/", http.RedirectHandler("../ui", http.StatusPermanentRedirect))
	s.mux.Method(http.MethodGet, "/ui/*", s.opts.UI.Page)
	s.mux.Get("/ui/state", handle(s, auth.Admin, decodeCaller, s.uiState))
	s.mux.Get("/ui/history", handle(s, auth.Admin, decodeHistory, s.uiHistory))
}

// historyQuery asks for the last hour of a policy; of all if it is empty.
type historyQuery struct {
	caller *auth.Caller
	policy string
}

func decodeHistory(r *http.Request, m *scratch) (historyQuery, error) {
	q := historyQuery{m.caller, r.URL.Query().Get("policy")}
	if q.policy == "" {
		return q, nil
	}
	return q, mayUse(m.caller, q.policy)
}

// uiState tells how this instance is.
func (s *Server) uiState(_ context.Context, caller *auth.Caller) (answer, error) {
	return encode.Document{Content: s.opts.UI.State(caller.MayUse)}, nil
}

// uiHistory tells what this instance decided within the last hour.
func (s *Server) uiHistory(_ context.Context, q historyQuery) (answer, error) {
	return encode.Document{Content: s.opts.UI.History(q.policy, q.caller.MayUse)}, nil
}
