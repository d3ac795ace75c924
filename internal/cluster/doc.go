// Package cluster makes instances agree on the owner of each key. Keys fall into Slots; the instances that decide are
// members of a numbered view; each slot has one owner in a view, and no slot has two owners that can admit at the
// same time, even if members crash, stand still or are cut off, and independently of their clocks. The view, and a row
// for each member, are in a store with compare-and-set.
//
// It does not know limits, calls between instances, or Cassandra.
package cluster
