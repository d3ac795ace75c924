// Package members keeps members, the views on which they agree, their heartbeats, and their settings in Cassandra.
package members
