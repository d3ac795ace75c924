package events

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed event, by Standard Webhooks (https://www.standardwebhooks.com), in canonical form.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// Bounds of a secret in bytes, by Standard Webhooks.
const (
	minSecret = 24
	maxSecret = 64
)

const secretPrefix = "whsec_"

// ParseSecrets returns the secrets in text, each whsec_ and base64, separated by white space. All of them sign, so that
// a receiver can change its secret while both are in use. The error contains no part of them.
func ParseSecrets(text string) (secrets [][]byte, err error) {
	for i, field := range strings.Fields(text) {
		encoded, found := strings.CutPrefix(field, secretPrefix)
		secret, err := base64.StdEncoding.DecodeString(encoded)
		switch {
		case !found || err != nil:
			return nil, fmt.Errorf("secret %d is not valid: write %s and base64, as `echo \"%s$(openssl rand -base64 32)\"` does",
				i+1, secretPrefix, secretPrefix)
		case len(secret) < minSecret || len(secret) > maxSecret:
			return nil, fmt.Errorf("secret %d has %d bytes: use %d to %d", i+1, len(secret), minSecret, maxSecret)
		}
		secrets = append(secrets, secret)
	}
	if len(secrets) == 0 {
		return nil, errors.New("there is no secret in it")
	}
	return secrets, nil
}

// sign returns the signatures of a body that is sent under this id at this time.
func sign(secrets [][]byte, id string, at time.Time, body []byte) string {
	var b strings.Builder
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return b.String()
}
