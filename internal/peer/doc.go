// Package peer carries calls between instances: whoever is asked for a key that another
// instance owns hands the call on to it. Calls for one owner travel together, many a message,
// on one stream, each with a deadline of its own. They hold keys, never identifiers.
//
// It does not know how calls are decided, nor how owners are agreed on.
package peer
