// Package route sends charges to the owners of their keys: to this instance, if it has the term, or to the peer that has
// it. The owners prepare the demands of a call of several, and then commit or abort them.
package route
