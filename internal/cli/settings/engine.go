package settings

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// EngineOptions returns the options of an engine, with the keys in the hash key file. How identifiers are hashed
// depends on these options, on Datacenter, and on whether Local is nil.
func (s *Settings) EngineOptions(log *slog.Logger) (*limiter.Options, error) {
	hashKeys, err := readHashKeys(s.HashKeyFile, log)
	if err != nil {
		return nil, err
	}
	keyer, alsoRead := keys.KeyersOf(s.Namespace, hashKeys)
	return &limiter.Options{
		Keyer:          keyer,
		AlsoRead:       alsoRead,
		Consistency:    s.Levels(),
		Serial:         s.SerialConsistency,
		ClockTolerance: s.ClockTolerance,
		StoreTimeout:   s.StoreTimeout,
		SyncInterval:   s.SyncInterval,
		MaxKeys:        s.MaxKeys,
		Identifiers:    identifier.Reader,
	}, nil
}

// readHashKeys returns the keys in the file at path, none if path is empty, and warns if identifiers are easy to guess.
// New counts use the first key; counts under all keys are read.
func readHashKeys(path string, log *slog.Logger) ([]keys.HashKey, error) {
	if path == "" {
		log.Warn("identifiers are hashed by plain SHA-256: anybody who reads the store can find out phone numbers and " +
			"addresses by hashing all there are; write `hash-key-file: /etc/ratelimitd/hash.key` to the --config file " +
			"(RATELIMITD_HASH_KEY_FILE), and make the file by `echo \"1:$(openssl rand -base64 32)\" >hash.key`")
		return nil, nil
	}
	command.WarnOfReaders("--hash-key-file", path, log)
	data, err := yamlfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("reading the hash key: %w", err)
	}
	keys, err := parseHashKeys(data)
	if err != nil {
		return nil, fmt.Errorf("hash key file %s: %w", path, err)
	}
	if len(keys) > 1 {
		log.Info("the hash key is changing: logs and counters are read under all keys and written under the first; "+
			"buckets and conversions count under the first only, and start anew when another becomes the first",
			"writes", keys[0].ID, "reads", ids(keys))
	}
	return keys, nil
}

func ids(keys []keys.HashKey) []string {
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = keys[i].ID
	}
	return names
}

// maxHashKeys is the maximum of keys: every decision reads the counts under each.
const maxHashKeys = 3

var (
	hashKeyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)
	hexText   = regexp.MustCompile(`^([0-9a-fA-F]{2})+$`)
)

// parseHashKeys reads the id:key lines in data, and skips empty lines and those that begin with #. Its errors contain
// no part of a key.
func parseHashKeys(data []byte) ([]keys.HashKey, error) {
	var all []keys.HashKey
	for i, line := range bytes.Split(data, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		key, err := parseHashKeyLine(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if slices.ContainsFunc(all, func(k keys.HashKey) bool { return k.ID == key.ID }) {
			return nil, fmt.Errorf("line %d: a second key called %s: give each an id of its own", i+1, key.ID)
		}
		if len(all) == maxHashKeys {
			return nil, fmt.Errorf("line %d: more than %d keys, and every decision reads under each: drop those whose longest window is over",
				i+1, maxHashKeys)
		}
		all = append(all, *key)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no key in it: write one line id:key, such as 2026-01: and the output of `openssl rand -base64 32`")
	}
	return all, nil
}

func parseHashKeyLine(text string) (*keys.HashKey, error) {
	id, encoded, found := strings.Cut(text, ":")
	id, encoded = strings.TrimSpace(id), strings.TrimSpace(encoded)
	if !found {
		return nil, errors.New("no colon: write id:key, with an id of your choice")
	}
	if !hashKeyID.MatchString(id) {
		return nil, errors.New("the id before the colon is not valid: use 1 to 63 letters, digits, '.', '_' and '-'")
	}
	secret, err := decodeSecret(encoded)
	if err != nil {
		return nil, err
	}
	if len(secret) < keys.MinSecretLen {
		return nil, fmt.Errorf("key %s has %d bytes: at least %d are needed, 32 are good", id, len(secret), keys.MinSecretLen)
	}
	return &keys.HashKey{ID: id, Secret: secret}, nil
}

// decodeSecret reads text as hex if it looks like that, else as standard base64 with or without padding. The chance
// that a random key in base64 looks like hex is one in trillions.
func decodeSecret(text string) ([]byte, error) {
	if hexText.MatchString(text) {
		return hex.DecodeString(text)
	}
	secret, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil, errors.New("the key after the colon is neither hex nor standard base64")
	}
	return secret, nil
}
