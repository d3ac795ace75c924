// Package store defines the memory in which a limiter counts: the contract of a [Store], the values that are written to it
// and read back, and their times, ids and keys.
//
// Other packages implement stores; package storetest tests that they keep the contract.
package store
