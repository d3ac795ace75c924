// Package settle settles reservations, each once: as many of the held units as the actual cost become permanent, and the
// others are given back.
package settle
