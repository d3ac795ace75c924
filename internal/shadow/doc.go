// Package shadow counts calls that shadows would deny: limits with shadow: true, and those of policies in mode shadow. It
// knows how many calls were decided since they came into force, how many of these each would have denied, over the last
// hour and the last week, and of about how many callers; and it adds up what several instances counted.
//
// It knows a caller by store.Key only, never by its identifier, and nothing of how limits are decided or of callers of
// the API.
package shadow
