// Package totals keeps the running totals of this process, which replace counters. It also takes back, with a delay, units
// that were counted and not admitted.
package totals
