// Package store says what a limiter asks of the memory that it counts in: the contract of a
// [Store], what is written to it and read back, and the times, ids and keys that these are made of.
//
// The stores themselves are elsewhere; package storetest holds them to the contract.
package store
