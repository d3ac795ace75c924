// Package owner defines what an instance knows of others when it decides: the owner of a key, its own right to count,
// and the form of a demand that is handed on. Packages internal/cluster and internal/peer implement it.
package owner
