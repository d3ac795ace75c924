// Package peer carries calls between instances: an instance hands a call for a key that it does not own on to the key's
// owner. Calls for one owner share one stream, with many calls in a message, each with a deadline of its own. They have keys,
// never identifiers.
//
// It does not know how calls are decided, or how members agree on owners.
package peer
