// Package counted decides over a store that instances share. Without owners, it writes units and then counts them. For a
// key that this instance owns, it decides from memory, and writes the units before it admits them or, under
// policy.GuaranteeLocal, afterwards. docs/design/write-then-count.md has the proof, which needs each of its steps.
package counted
