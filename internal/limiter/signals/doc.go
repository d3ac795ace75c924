// Package signals distributes the changes that instances make to keys among all instances, and keeps the blocks of
// keys.
package signals
