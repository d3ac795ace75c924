// Package count has the algorithms: what a limit of a policy says of a state at an instant, as
// pure functions. Each algorithm is one file and one row of a table.
package count
