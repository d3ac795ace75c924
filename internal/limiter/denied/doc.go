// Package denied remembers denials, so that retries cost the store nothing: the states of full keys, and denials
// reported by owners. A remembered state may only include too many units; nothing is admitted by it.
package denied
