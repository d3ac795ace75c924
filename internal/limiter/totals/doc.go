// Package totals keeps running totals in place of counters. It later takes back units that were counted and not
// admitted.
package totals
