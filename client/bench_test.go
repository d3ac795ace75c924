package client

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/internal/jsonscan"
)

// BenchmarkReadAnswer measures the decoder on one answer of a batch.
func BenchmarkReadAnswer(b *testing.B) {
	body, names := []byte(oneAnswer), make(jsonscan.Names)
	b.SetBytes(int64(len(oneAnswer)))
	b.ReportAllocs()
	for b.Loop() {
		var a answer
		s := decoder{jsonscan.New(body, names)}
		if err := s.readAnswer(http.StatusOK, &a); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTake measures this end alone: callers at the same time, and a service that takes no
// time.
func BenchmarkTake(b *testing.B) {
	result := `{"status":200,` + oneAnswer[1:]
	c, err := New("http://ratelimitd", &Options{Transport: instant(func(r *http.Request) (string, error) {
		body, err := io.ReadAll(r.Body)
		n := strings.Count(string(body), `{"op"`)
		if n == 0 {
			return oneAnswer, err
		}
		return `{"results":[` + strings.TrimSuffix(strings.Repeat(result+",", n), ",") + `]}`, err
	})})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if d, err := c.Take(b.Context(), Demand{Policy: "sms-send", Identifier: fmt.Sprint(i)}); err != nil || !d.Allowed {
				b.Errorf("%+v, %v", d, err)
				return
			}
		}
	})
}

// instant answers requests at once.
type instant func(*http.Request) (string, error)

func (answer instant) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := answer(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}
