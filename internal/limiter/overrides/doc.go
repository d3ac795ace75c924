// Package overrides keeps the overrides of all keys in the memory of every instance.
package overrides
