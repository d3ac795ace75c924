package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

// TokenPrefix is the prefix of tokens from NewToken, by which people and secret scanners recognize them.
const TokenPrefix = "rld_"

// tokenBytes is the number of random bytes in a token, too many to guess, so that a plain digest is safe.
const tokenBytes = 32

// NewToken returns a random token.
func NewToken() string {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // it never fails
	return TokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
}

// Digest returns the SHA-256 of token in hex, as in the file.
func Digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
