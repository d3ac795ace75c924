// Package judge decides charges: by the rules that come before limits, by the counts, and by on_store_error if the
// store fails. It counts nothing itself.
package judge
