// Package settle settles reservations: units that were held become permanent at their actual cost, once, and the others
// are given back.
package settle
