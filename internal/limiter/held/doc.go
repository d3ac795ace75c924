// Package held decides while a key is held still: read, judge and write with nobody in between, over a store in this
// process's memory. Nothing is ever taken back.
package held
