// Command bare decides nothing: it reads the body and answers as many bytes as ratelimitd, with only net/http. Its cost
// is that of HTTP.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/ratelimitd/ratelimitd/bench/peers/wire"
)

// body is an answer of ratelimitd's.
const body = `{"allowed":true,"policy":"sms-send","limit":10,"remaining":9,"used":1,"reset_after_ms":3600000,` +
	`"retry_after_ms":0,"limits":[{"name":"sliding-log-1h","algorithm":"sliding-log","limit":10,"window_ms":3600000,` +
	`"allowed":true,"used":1,"remaining":9,"reset_after_ms":3600000,"retry_after_ms":0}],"mode":"enforce","degraded":false,` +
	`"receipt":"9RoQG7jpri96HnLYECVSX7fQ6qbaV_5LayCFaOTVPAZe188K0JWhNj_gOnBP1MYFzx9AR7EHa5K_KaV5FKwSnIABfwPiGROfvtlwUMuZ6t` +
	`Od1oI3PfQRg7OIsockRD3CvJ1wZzD5ud7CCnyD7exmTQ0IBEIUqw"}` + "\n"

func main() {
	http.HandleFunc("POST /v1/take", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("RateLimit", `"sliding-log-1h";r=9;t=3600`)
		header.Set("RateLimit-Policy", `"sliding-log-1h";q=10;w=3600`)
		header.Set("X-RateLimit-Limit", "10")
		header.Set("X-RateLimit-Remaining", "9")
		header.Set("X-RateLimit-Reset", "3600")
		header.Set("X-Request-Id", "W7RDXHCK4YD5B4VGSPRHMMWVYR")
		_, _ = io.WriteString(w, body)
	})
	if err := wire.Serve(http.DefaultServeMux); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}
