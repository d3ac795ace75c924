package command_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// A file of authorities is read whole, or not at all: clients of one that got lost would all be
// turned away.
func TestAuthoritiesAreReadWhole(t *testing.T) {
	one, two := clitest.NewAuthority(t, "one").PEM(), clitest.NewAuthority(t, "two").PEM()
	_, key := clitest.NewAuthority(t, "three").Issue("server")
	for name, c := range map[string]struct{ file, want string }{
		"two":               {one + "# a comment\n" + two, ""},
		"beside a key":      {one + key, ""},
		"nothing":           {"", "there is no certificate"},
		"a key":             {key, "there is no certificate"},
		"text":              {"authority", "there is no certificate"},
		"cut off":           {one + two[:len(two)/2], "of its 2 blocks 1 can be read"},
		"damaged":           {one + strings.Replace(two, "MII", "M?I", 1) + one, "of its 3 blocks 2 can be read"},
		"not a certificate": {one + "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n", "its block 2: "},
		"too long":          {one + strings.Repeat("#", 1<<20), "longer than 1048576 bytes"},
	} {
		_, _, err := command.Authorities([]byte(c.file))
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Of several authorities the first that expires is told, wherever it stands.
func TestTheFirstAuthorityThatExpires(t *testing.T) {
	one, two := clitest.NewAuthority(t, "one"), clitest.NewAuthorityUntil(t, "two", time.Now().Add(24*time.Hour))
	for _, file := range []string{one.PEM() + two.PEM(), two.PEM() + one.PEM()} {
		if _, expires, err := command.Authorities([]byte(file)); err != nil || !expires.Equal(one.Cert.NotAfter) {
			t.Errorf("%v, %v; want %v", expires, err, one.Cert.NotAfter)
		}
	}
	if _, expires, err := command.Authorities([]byte(two.PEM())); err != nil || !expires.Equal(two.Cert.NotAfter) {
		t.Errorf("%v, %v; want %v", expires, err, two.Cert.NotAfter)
	}
}
