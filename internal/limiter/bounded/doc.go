// Package bounded has a memory of bounded size, which drops the entries that were put the longest ago, and work by a
// bounded number of goroutines.
package bounded
