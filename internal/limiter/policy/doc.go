// Package policy defines policies: their limits, windows and calendars, the forms of identifiers, the consistency
// levels of a store, and the checks of all these.
//
// It has plain values and pure functions alone. Package count has the arithmetic of limits.
package policy
