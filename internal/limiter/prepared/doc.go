// Package prepared keeps the units that are counted for a call of several demands, until the call commits or aborts
// them.
package prepared
