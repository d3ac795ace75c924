// Package totals keeps running totals in the place of counters, and takes back later what was
// counted and not admitted.
package totals
