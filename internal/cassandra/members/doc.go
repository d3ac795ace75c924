// Package members keeps in Cassandra the members, the views that they agree on, their signs of life, and their settings.
package members
