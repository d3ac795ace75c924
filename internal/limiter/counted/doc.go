// Package counted decides over a store that instances share. Without owners it writes and then counts. For keys that this
// instance owns it decides by memory, and writes through or, under the guarantee local, behind. It has each step that the
// proof in docs/design/write-then-count.md needs.
package counted
