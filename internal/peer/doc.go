// Package peer carries calls between instances: an instance hands a call for another one's key on to that key's owner.
// Calls for one owner share one stream, with many calls in a message, each with a deadline of its own. They have keys,
// never identifiers.
//
// It does not know how calls are decided, nor how owners are agreed on.
package peer
