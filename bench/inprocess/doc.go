// Package inprocess measures a take in one process: ratelimitd's engine over its memory beside go-limiter's memory store.
// It has benchmarks only, and does not know HTTP.
package inprocess
