package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

// TokenPrefix begins the tokens that NewToken makes, so that scanners for secrets
// and people know one when they see it.
const TokenPrefix = "rld_"

// tokenBytes of randomness are out of reach of guessing, which is why a plain digest of
// them is enough.
const tokenBytes = 32

// NewToken returns a random token.
func NewToken() string {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // it never fails
	return TokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
}

// Digest returns the SHA-256 of token in hex, as the file has it.
func Digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
