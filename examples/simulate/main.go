// Command simulate makes access logs for trying ratelimitd simulate: days and nights of a web shop
// with people, an office behind one address, bots, and an attacker. README.md says how.
//
// The same flags give the same log.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"time"
)

func main() {
	w := world{start: time.Date(2026, 10, 5, 0, 0, 0, 0, time.UTC)} // a Monday
	flag.IntVar(&w.days, "days", 1, "how many days")
	flag.IntVar(&w.perDay, "lines", 100_000, "how many lines a day, about")
	flag.Uint64Var(&w.seed, "seed", 1, "another one makes another log")
	format := flag.String("format", "combined", "combined, caddy or csv")
	flag.Parse()
	write, known := formats[*format]
	if !known || flag.NArg() > 0 || w.days < 1 || w.perDay < 1 {
		fmt.Fprintln(os.Stderr, "simulate: give -format combined, caddy or csv, and at least one day and line")
		os.Exit(2)
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	if *format == "csv" {
		fmt.Fprintln(out, "time,ip,method,path,status")
	}
	w.play(func(r *request) { write(out, r) })
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// request is a line of the log.
type request struct {
	at           time.Time
	ip           string
	method, path string
	status       int
	agent        string
}

// formats write a request in the formats of programs.
var formats = map[string]func(io.Writer, *request){
	"combined": func(w io.Writer, r *request) {
		fmt.Fprintf(w, "%s - - [%s] \"%s %s HTTP/1.1\" %d 512 \"-\" \"%s\"\n",
			r.ip, r.at.Format("02/Jan/2006:15:04:05 -0700"), r.method, r.path, r.status, r.agent)
	},
	"caddy": func(w io.Writer, r *request) {
		fmt.Fprintf(w, `{"level":"info","ts":%d.0,"logger":"http.log.access","msg":"handled request","request":`+
			`{"remote_ip":"%s","client_ip":"%s","method":"%s","uri":"%s","headers":{"User-Agent":["%s"]}},"status":%d}`+"\n",
			r.at.Unix(), r.ip, r.ip, r.method, r.path, r.agent, r.status)
	},
	"csv": func(w io.Writer, r *request) {
		fmt.Fprintf(w, "%s,%s,%s,%s,%d\n", r.at.Format(time.RFC3339), r.ip, r.method, r.path, r.status)
	},
}

const (
	people   = 50_000 // at home, each with an address of their own
	browser  = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	office   = "198.51.100.7" // an address that 200 people share
	attacker = "203.0.113.66"
)

// world is the source of the log.
type world struct {
	start        time.Time
	days, perDay int
	seed         uint64
	random       *rand.Rand
	later        map[int64][]request // later requests of visits, by second
}

// play makes the log, second by second.
func (w *world) play(write func(*request)) {
	w.random, w.later = rand.New(rand.NewPCG(w.seed, 0)), make(map[int64][]request)
	for second := range int64(w.days) * 24 * 3600 {
		now := w.start.Add(time.Duration(second) * time.Second)
		w.visits(now)
		w.bots(now)
		w.attack(now)
		for i := range w.later[second] {
			write(&w.later[second][i])
		}
		delete(w.later, second)
	}
}

// ask schedules a request some seconds from now.
func (w *world) ask(r request, seconds int) {
	r.at = r.at.Add(time.Duration(seconds) * time.Second)
	second := int64(r.at.Sub(w.start) / time.Second)
	w.later[second] = append(w.later[second], r)
}

// pagesAVisit is how many requests a visit has on average.
const pagesAVisit = 9

// Visits are more frequent by day than by night: at four in the morning a tenth of the peak.
func (w *world) visits(now time.Time) {
	hour := float64(now.Hour()) + float64(now.Minute())/60
	daylight := .55 - .45*math.Cos((hour-4)/24*2*math.Pi)
	mean := float64(w.perDay) / (24 * 3600) / pagesAVisit / .7 * daylight
	for range w.poisson(mean) {
		ip := w.somebody()
		if weekday := now.Weekday(); w.random.IntN(6) == 0 && hour >= 8 && hour < 18 && weekday >= time.Monday && weekday <= time.Friday {
			ip = office
		}
		w.visit(now, ip)
	}
}

// somebody returns a person's address. Some persons come far more often than others.
func (w *world) somebody() string {
	n := int(people * math.Pow(w.random.Float64(), 3))
	return fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255)
}

// visit is a burst: a page with its resources, a few more pages, and now and then a login, which
// some people need several times.
func (w *world) visit(now time.Time, ip string) {
	after := 0
	page := func(method, path string, status int) {
		w.ask(request{at: now, ip: ip, method: method, path: path, status: status, agent: browser}, after)
	}
	for range 1 + w.random.IntN(5) {
		page("GET", fmt.Sprintf("/products/%d?ref=start", w.random.IntN(500)), 200)
		page("GET", "/static/shop.css", 200)
		page("GET", "/api/cart", 200)
		after += 2 + w.random.IntN(20)
	}
	if w.random.IntN(4) > 0 {
		return
	}
	for w.random.IntN(3) == 0 {
		page("POST", "/login", 401)
		after += 3 + w.random.IntN(10)
	}
	page("POST", "/login", 200)
}

// bots visit all pages at their own pace, day and night.
func (w *world) bots(now time.Time) {
	for i, every := range []int64{3, 5, 10} {
		if now.Unix()%every != 0 || w.random.IntN(100_000) > w.perDay {
			continue
		}
		w.ask(request{
			at: now, ip: fmt.Sprintf("192.0.2.%d", 10+i), method: "GET", path: fmt.Sprintf("/products/%d", now.Unix()/every%500), status: 200,
			agent: fmt.Sprintf("bot-%c/1.0", 'a'+rune(i)),
		}, 0)
	}
}

// attack tries passwords for twenty minutes from 3:00 in each night.
func (w *world) attack(now time.Time) {
	if now.Hour() != 3 || now.Minute() >= 20 {
		return
	}
	for range w.poisson(math.Min(20, float64(w.perDay)/20_000)) {
		w.ask(request{at: now, ip: attacker, method: "POST", path: "/login", status: 401, agent: "python-requests/2.32"}, 0)
	}
}

// poisson draws from a Poisson distribution with this mean (Knuth, The Art of
// Computer Programming, volume 2, section 3.4.1).
func (w *world) poisson(mean float64) (n int) {
	for p := w.random.Float64(); p > math.Exp(-mean); p *= w.random.Float64() {
		n++
	}
	return n
}
