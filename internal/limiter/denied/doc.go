// Package denied remembers denials, so that retries cost the store and the owner nothing. It has the states of full keys,
// and denials reported by owners. Nothing is admitted by them.
package denied
