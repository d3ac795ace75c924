package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// errTakesNone says that a route's policy takes no limit from requests.
var errTakesNone = errors.New("the policy takes no limit from requests: remove limit: from the route, " +
	"or write limit: {from: request, max: 1000, default: 100} or the like in the policy")

// limitHeaders returns the headers with limits. It returns an error for the first route with one if there are no
// trusted proxies to send it.
func limitHeaders(routes []Route, trusted origin.Proxies) (headerNames, error) {
	names := headerNames{}
	for i := range routes {
		for j := range routes[i].Limits {
			name := routes[i].Limits[j].Limit
			if name == "" {
				continue
			}
			if len(trusted) == 0 {
				return nil, fmt.Errorf("routes[%d].limits[%d].limit: %s counts only from trusted proxies, and there are none: "+
					"list yours in --trusted-proxies", i, j, name)
			}
			names.add(name)
		}
	}
	return names, nil
}

// limitOf returns the limit in r for l, 0 if there is none. The header comes from a trusted proxy, because ServeHTTP
// has removed those of others.
func (p *Proxy) limitOf(l *Limit, r *http.Request) (int64, error) {
	text := strings.Join(r.Header[l.Limit], ",") // several values are not a number
	if l.Limit == "" || text == "" {
		return 0, nil
	}
	counted, ok := p.engine.Policy(l.Policy)
	if !ok { // the decision will fail
		return 0, nil
	}
	at := counted.FromRequest()
	if at < 0 {
		return 0, errTakesNone
	}
	units, err := strconv.ParseInt(text, 10, 64)
	if limit := counted.Limits[at].Max; err != nil || units < 1 || units > limit {
		return 0, &limiter.FieldError{Field: l.Limit, Detail: fmt.Sprintf("It must be one whole number from 1 to %d, the policy's max.", limit)}
	}
	return units, nil
}
