// Package policy says what is limited: policies of limits, their windows and calendars, how
// identifiers are read, the levels that a store is asked at, and what is wrong with any of it.
//
// All of it is plain values and pure functions. How a limit is counted is in package count.
package policy
