// Package count has the algorithms: pure functions that compute a limit's verdict from a state and an instant. Each
// algorithm is one file and one row of a table.
package count
