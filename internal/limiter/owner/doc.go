// Package owner says what an instance knows of others when it decides: which of them owns a key, by what right it
// counts itself, and what a demand looks like that is handed on. Instances implement it by internal/cluster and
// internal/peer.
package owner
