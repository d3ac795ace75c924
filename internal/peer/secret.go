package peer

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"

	"google.golang.org/grpc/credentials"
)

// minSecret is the least length of a shared secret, in bytes.
const minSecret = 16

// SharedSecret returns credentials for peers that know secret. They use TLS 1.3, in which both sides present the key that is
// derived from the secret (RFC 5869), and accept no other key. An eavesdropper learns nothing about the secret.
func SharedSecret(secret []byte) (credentials.TransportCredentials, error) {
	key, err := peerKey(secret)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<34, 0)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	public, _ := key.Public().(ed25519.PublicKey)
	return credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, // names and authorities don't matter, as VerifyConnection compares the key itself
		VerifyConnection:   requireKey(public),
	}), nil
}

// peerKey returns the key that all peers that know secret present.
func peerKey(secret []byte) (ed25519.PrivateKey, error) {
	if len(secret) < minSecret {
		return nil, fmt.Errorf("%d bytes are too short for a secret: use %d or more", len(secret), minSecret)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "ratelimitd peers, version 1", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// requireKey returns a function that refuses peers that present a key other than public. TLS has verified that a peer has the
// private key for the key that it presents.
func requireKey(public ed25519.PublicKey) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errOtherSecret
		}
		if shown, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !bytes.Equal(shown, public) {
			return errOtherSecret
		}
		return nil
	}
}

var errOtherSecret = errors.New("the peer has another secret")
