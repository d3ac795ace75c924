// Package exclusive decides while a key is locked, over a store in this process's memory: nothing reads or writes the key
// between its read and its write. No unit is ever taken back.
package exclusive
