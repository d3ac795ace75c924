// Package members keeps in Cassandra what instances say of themselves: who is a member, the views that they agree on, signs
// of life, and their settings.
package members
