// Package judge decides charges: what stands above their limits, what is counted, and what is answered where nobody
// can tell. It counts nothing itself.
package judge
