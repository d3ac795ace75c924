// Package denied remembers denials, so that retries cost the store and the owner nothing: the states of full keys, and
// denials reported by owners. Both may only include too many units; nothing is admitted by them.
package denied
