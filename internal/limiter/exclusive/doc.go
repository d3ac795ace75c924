// Package exclusive decides while keys are locked, over a store in this process's memory. Nobody else reads or writes a key
// between its read and its write, so no unit is ever taken back.
package exclusive
