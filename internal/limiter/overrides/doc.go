// Package overrides keeps, in the memory of every instance, which keys are decided otherwise than their policy says.
package overrides
