#!/usr/bin/env bash
# Starts ratelimitd on Cassandra and plays 2,000 sign-ups against it. Needs Go, and a
# Cassandra at RATELIMITD_CASSANDRA_HOSTS (127.0.0.1 if unset), where it leaves the
# keyspace sms_signup behind. Arguments go to "sms-signup play".
set -euo pipefail
cd "$(dirname "$0")"

export RATELIMITD_CASSANDRA_KEYSPACE=${RATELIMITD_CASSANDRA_KEYSPACE:-sms_signup}
scratch=$(mktemp -d)
ratelimitd=""

finish() {
  if [ -n "$ratelimitd" ]; then
    kill "$ratelimitd" 2>/dev/null || true
    wait "$ratelimitd" 2>/dev/null || true
  fi
  rm -rf "$scratch"
}
trap finish EXIT

go build -o "$scratch/ratelimitd" ../../cmd/ratelimitd
go build -o "$scratch/sms-signup" .
(umask 077 && echo "play:$(head -c 32 /dev/urandom | base64)" >"$scratch/hash-key")

"$scratch/ratelimitd" migrate
# With a new hash key, each play starts with no counts from the one before.
mkfifo "$scratch/stdout"
"$scratch/ratelimitd" serve --listen 127.0.0.1:0 --store cassandra --policies policies.yaml \
  --hash-key-file "$scratch/hash-key" >"$scratch/stdout" 2>"$scratch/log" &
ratelimitd=$!
if ! read -r line <"$scratch/stdout"; then
  cat "$scratch/log" >&2
  exit 1
fi

"$scratch/sms-signup" play -ratelimitd "${line#listening on }" "$@"
