package proxy

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// Key is the key of the routes in a configuration file.
const Key = "routes"

// maxRoutes bounds the number of metrics, and the time to find the route of a request.
const maxRoutes = 1000

// Parse reads the routes in data, the contents of the file name, and ignores other keys. policies are the policies in
// force, nil if they are not known yet. The error is yamlfile.Errors, one for each mistake.
func Parse(name string, data []byte, policies []*policy.Policy) ([]Route, error) {
	p := parser{File: yamlfile.Parse(name, data), policies: policies}
	if p.Root == nil {
		return nil, p.Err()
	}
	list := p.Root.Member(Key)
	if list == nil {
		return nil, p.Err()
	}
	var routes []Route
	if p.Expect(list, yamlfile.List, "start each route with - path:") {
		if len(list.Items) > maxRoutes {
			p.Add(list, "%d routes: there may be at most %d", len(list.Items), maxRoutes)
		}
		for _, item := range list.Items {
			routes = append(routes, p.route(item))
		}
	}
	return routes, p.Err()
}

// parser reads a file, and collects its mistakes.
type parser struct {
	*yamlfile.File
	policies []*policy.Policy
}

// members calls the functions in read with the values of a map, by their keys.
func (p *parser) members(n *yamlfile.Node, cure string, read map[string]func(*yamlfile.Node)) {
	if !p.Expect(n, yamlfile.Map, cure) {
		return
	}
	p.ExpectKeys(n, slices.Sorted(maps.Keys(read)))
	for _, m := range n.Members {
		if read, ok := read[m.Key]; ok {
			read(m.Value)
		}
	}
}

func (p *parser) route(n *yamlfile.Node) (route Route) {
	p.members(n, "write path: and limits:", map[string]func(*yamlfile.Node){
		"name":    func(n *yamlfile.Node) { route.Name = p.text(n) },
		"host":    func(n *yamlfile.Node) { route.Host = p.host(n) },
		"path":    func(n *yamlfile.Node) { route.Path = p.path(n) },
		"methods": func(n *yamlfile.Node) { route.Methods = p.methods(n) },
		"headers": func(n *yamlfile.Node) { route.Headers = p.headers(n) },
		"limits":  func(n *yamlfile.Node) { route.Limits = p.limits(n) },
	})
	if route.Name == "" {
		route.Name = strings.TrimSpace(strings.Join(route.Methods, ",") + " " + route.Host + route.Path)
	}
	if n.Kind == yamlfile.Map && n.Member("limits") == nil && !n.Partial && !p.Wrong(yamlfile.Join(n.Path, "limits")) {
		p.Add(n, "no limits: list them, or write limits: [] to let these requests pass")
	}
	return route
}

// text reads a scalar, and returns an empty text for other values.
func (p *parser) text(n *yamlfile.Node) string {
	if n.Kind == yamlfile.Number || n.Kind == yamlfile.Bool || p.Expect(n, yamlfile.Text, "write one value") {
		return n.Text
	}
	return ""
}

func (p *parser) host(n *yamlfile.Node) string {
	text := p.text(n)
	domain, below := strings.CutPrefix(text, "*.")
	name, ok := hostname(domain)
	if !ok && text != "" {
		p.Add(n, "%q is not a host: write it such as api.example.com or *.example.com", n.Text)
	}
	if below {
		return "*." + name
	}
	return name
}

func (p *parser) path(n *yamlfile.Node) string {
	path := p.text(n)
	if n.Kind != yamlfile.Text {
		return path
	}
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	wrong := !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "*?# ") || hasControls(path) || leadsAway(segmentsOf(path))
	for i, s := range segments {
		before, name, opened := strings.Cut(strings.TrimSuffix(s, "}"), "{")
		wrong = wrong || opened != strings.HasSuffix(s, "}") || opened && name == "" || strings.ContainsAny(before+name, "{}") ||
			strings.HasSuffix(name, "...") && (before != "" || i < len(segments)-1)
	}
	if wrong {
		p.Add(n, "%q is not a pattern of paths: write it such as /items/{id}, /login.{format}, /files/ with all below it, or /files/{rest...}",
			n.Text)
	}
	return path
}

func (p *parser) methods(n *yamlfile.Node) []string {
	methods := p.list(n)
	for _, method := range methods {
		if method == "" || method != strings.ToUpper(method) || strings.ContainsAny(method, " ,") {
			p.Add(n, "%q is not a method: write them in capitals, such as [GET, POST]", method)
		}
	}
	return methods
}

// list returns the values of a list, or a single value in its place.
func (p *parser) list(n *yamlfile.Node) (texts []string) {
	items := n.Items
	if n.Kind != yamlfile.List {
		items = []*yamlfile.Node{n}
	}
	for _, item := range items {
		texts = append(texts, p.text(item))
	}
	return texts
}

func (p *parser) headers(n *yamlfile.Node) map[string]string {
	if !p.Expect(n, yamlfile.Map, "write headers such as {X-Plan: free}, or {X-Plan: \"*\"} for any value") {
		return nil
	}
	headers := make(map[string]string, len(n.Members))
	for _, m := range n.Members {
		if strings.EqualFold(m.Key, "Host") { // which net/http keeps apart from the headers
			p.Add(m.Value, "the host is in no header here: write host: beside headers:")
		}
		headers[http.CanonicalHeaderKey(m.Key)] = p.text(m.Value)
	}
	return headers
}

func (p *parser) limits(n *yamlfile.Node) (limits []Limit) {
	if !p.Expect(n, yamlfile.List, "start each limit with - policy:") {
		return nil
	}
	if len(n.Items) > policy.MaxDemands {
		p.Add(n, "%d limits: a route may have at most %d", len(n.Items), policy.MaxDemands)
	}
	for _, item := range n.Items {
		l := p.limit(item)
		if slices.ContainsFunc(limits, func(other Limit) bool { return other.Policy == l.Policy }) && l.Policy != "" {
			p.Add(item.Find("policy"), "%q limits this route twice: give each limit a policy of its own", l.Policy)
		}
		limits = append(limits, l)
	}
	return limits
}

func (p *parser) limit(n *yamlfile.Node) Limit {
	l := Limit{Cost: 1, Charge: ChargeRequests}
	count := ""
	p.members(n, "write policy:", map[string]func(*yamlfile.Node){
		"policy":   func(n *yamlfile.Node) { l.Policy = p.policy(n) },
		"identify": func(n *yamlfile.Node) { l.Identify = p.identify(n) },
		"limit":    func(n *yamlfile.Node) { l.Limit = p.header(n) },
		"cost":     func(n *yamlfile.Node) { l.Cost = p.cost(n) },
		"charge":   func(n *yamlfile.Node) { l.Charge = Charge(p.oneOf(n, texts(charges))) },
		"count":    func(n *yamlfile.Node) { count = p.oneOf(n, []string{"first", "served"}) },
		"statuses": func(n *yamlfile.Node) { l.Statuses = p.statuses(n) },
	})
	l.Served = count == "served"
	if n.Kind != yamlfile.Map {
		return l
	}
	if l.Policy == "" && !n.Partial && !p.Wrong(yamlfile.Join(n.Path, "policy")) {
		p.Add(n, "no policy: name one")
	}
	if l.Charge != ChargeRequests && l.Charge != "" && (count != "" || n.Member("cost") != nil) {
		p.Add(n, "count and cost are of charge: requests: %s tells by itself how much", l.Charge)
	}
	if of := p.named(l.Policy); l.Limit != "" && of != nil && of.FromRequest() < 0 {
		p.Add(n.Find("limit"), "%v", errTakesNone)
	}
	if l.Statuses != nil && !l.Served {
		p.Add(n.Find("statuses"), "statuses mean nothing without count: served")
	}
	return l
}

func texts(charges []Charge) (all []string) {
	for _, c := range charges {
		all = append(all, string(c))
	}
	return all
}

func (p *parser) policy(n *yamlfile.Node) string {
	name := p.text(n)
	if name != "" && p.policies != nil && p.named(name) == nil {
		names := make([]string, len(p.policies))
		for i := range p.policies {
			names[i] = p.policies[i].Name
		}
		p.Add(n, "there is no policy %.64q: %s", name, yamlfile.DidYouMean(name, names))
	}
	return name
}

// named returns the policy in force with a name, nil if there is none or it is not known.
func (p *parser) named(name string) *policy.Policy {
	for _, of := range p.policies {
		if of.Name == name {
			return of
		}
	}
	return nil
}

func (p *parser) identify(n *yamlfile.Node) origin.Source {
	text := p.text(n)
	source, err := origin.ParseSource(text)
	if err != nil && text != "" {
		p.Add(n, "%v", err)
	}
	return source
}

// header reads the name of a header with a limit.
func (p *parser) header(n *yamlfile.Node) string {
	text := p.text(n)
	source, err := origin.ParseSource(text)
	if text != "" && (err != nil || !strings.HasPrefix(text, "header:")) {
		p.Add(n, "%.64q is not a header: write header:NAME, such as header:X-Plan-Limit", text)
	}
	return strings.Join(source.Headers(), "")
}

func (p *parser) cost(n *yamlfile.Node) int64 {
	cost, err := strconv.ParseInt(n.Text, 10, 64)
	if n.Kind != yamlfile.Number || err != nil || cost < 1 || cost > policy.MaxCost {
		p.Add(n, "a cost is a whole number from 1 to %d", int64(policy.MaxCost))
	}
	return cost
}

// oneOf reads one of words. It returns an empty text for other values.
func (p *parser) oneOf(n *yamlfile.Node, words []string) string {
	text := p.text(n)
	if text != "" && !slices.Contains(words, text) {
		p.Add(n, "%.64q is not known: use one of %s", text, strings.Join(words, ", "))
		return ""
	}
	return text
}

// statuses reads codes and classes: 404, 2xx.
func (p *parser) statuses(n *yamlfile.Node) (statuses []int) {
	for _, text := range p.list(n) {
		class, isClass := strings.CutSuffix(strings.ToLower(text), "xx")
		status, err := strconv.Atoi(class)
		if err != nil || isClass && (status < 1 || status > 5) || !isClass && (status < 100 || status > 599) {
			p.Add(n, "%.16q is not a status: write them such as [2xx, 404]", text)
		}
		statuses = append(statuses, status)
	}
	return statuses
}
