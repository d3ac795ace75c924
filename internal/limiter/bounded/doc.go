// Package bounded has what is bounded: memory that forgets what it has not been asked for the longest,
// and work that is shared out among so many at a time.
package bounded
