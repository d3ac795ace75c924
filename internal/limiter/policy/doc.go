// Package policy defines policies: their limits, windows and calendars, the forms of identifiers, the consistency
// levels of a store, and the checks of all these.
//
// It has only plain values and pure functions. Package count has the arithmetic of limits.
package policy
