package api

import (
	"context"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/auth"
)

// UI is the live page, and its figures as JSON documents, of one instance, or of all if instance is empty. may reports
// whether the caller may use a policy, or all policies for the name "". Errors are those of UnknownInstance.
type UI struct {
	Page    http.Handler // of /ui and the files below
	State   func(ctx context.Context, instance string, may func(policy string) bool) (any, error)
	History func(ctx context.Context, instance, policy string, may func(policy string) bool) (any, error) // of all policies if it is empty
}

// routeUI adds the routes of the live page. The page itself needs no token, because a browser that follows a link sends
// none. It has no figures, and requests them like any client.
func (s *Server) routeUI() {
	s.mux.Method(http.MethodGet, "/ui", s.opts.UI.Page)
	s.mux.Method(http.MethodGet, "/ui/", http.RedirectHandler("../ui", http.StatusPermanentRedirect))
	s.mux.Method(http.MethodGet, "/ui/*", s.opts.UI.Page)
	s.mux.Get("/ui/state", handle(s, auth.Admin, decodeUI, s.uiState))
	s.mux.Get("/ui/history", handle(s, auth.Admin, decodeUI, s.uiHistory))
}

// uiQuery is a request for the state of an instance, of all if instance is empty, or for the last hour under a policy, under
// all if policy is empty.
type uiQuery struct {
	caller           *auth.Caller
	instance, policy string
}

func decodeUI(r *http.Request, m *scratch) (q uiQuery, err error) {
	q.caller, q.policy = m.caller, r.URL.Query().Get("policy")
	if q.instance, err = decodeInstance(r); err == nil && q.policy != "" {
		err = mayUse(m.caller, q.policy)
	}
	return q, err
}

// uiState answers with the state of instances.
func (s *Server) uiState(ctx context.Context, q uiQuery) (answer, error) {
	state, err := s.opts.UI.State(ctx, q.instance, q.caller.MayUse)
	return encode.Document{Content: state}, err
}

// uiHistory returns the decisions of instances within the last hour.
func (s *Server) uiHistory(ctx context.Context, q uiQuery) (answer, error) {
	history, err := s.opts.UI.History(ctx, q.instance, q.policy, q.caller.MayUse)
	return encode.Document{Content: history}, err
}
