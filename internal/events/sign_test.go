package events

import (
	"strings"
	"testing"
	"time"
)

// TestSign holds that signatures equal those of Standard Webhooks' specification and of its Go library.
func TestSign(t *testing.T) {
	secrets, err := ParseSecrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	const id, body, want = "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	at := time.Unix(1614265330, 0)
	if got := sign(secrets, id, at, []byte(body)); got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
	if got := sign(append(secrets, secrets...), id, at, []byte(body)); got != strings.Join([]string{want, want}, " ") {
		t.Errorf("two secrets sign as %s", got)
	}
}
