// Package shadow counts the calls that shadows would deny. Shadows are limits with shadow: true, and the limits of
// policies in mode shadow. Since a shadow came into force, the package counts the decided calls, those that the shadow
// would have denied, by minute and by hour of the last week, and estimates the number of their callers. It sums the counts
// of several instances.
//
// It knows a caller by its store.Key only, never by its identifier, and does not know how limits are decided.
package shadow
