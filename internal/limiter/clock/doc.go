// Package clock has an instance's clock, and the bounds on its difference from the clocks of other instances and the
// store.
package clock
