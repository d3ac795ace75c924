// Package clock tells the time, and how far that may be from what other instances and the store tell.
package clock
