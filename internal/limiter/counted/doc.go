// Package counted decides over a store that instances share. Without owners it writes first and counts then; for keys that
// this instance owns it goes by memory, and writes through or, under the guarantee local, behind. Each step that the proof
// of docs/design/write-then-count.md needs is here.
package counted
