// Package cluster agrees on which instance owns which keys. Keys fall into Slices; the
// instances that decide are members of a numbered view; each slice has one owner in a view,
// and no slice has two owners that can admit at the same time, whatever members crash, stand
// still or are cut off, and whatever their clocks say. The view, and a row for each member,
// are kept in a store that compares and sets.
//
// It does not know limits, keys, calls between instances, or Cassandra.
package cluster
