// Package bounded has a map of bounded size that drops its oldest entries, and runs work in a bounded number of goroutines.
package bounded
