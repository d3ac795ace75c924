package cassandra

import "github.com/ratelimitd/ratelimitd/internal/cassandra/members"

// Members returns the store of the members of namespace that decide within the store's data centre.
func (s *Store) Members(namespace string) *members.Members {
	return members.New(namespace, func() (*members.Cluster, error) { return s.reached(), nil })
}

// Members is Store.Members. Every request fails until the cluster is reached.
func (l *Later) Members(namespace string) *members.Members { return members.New(namespace, l.reached) }

// Settings returns the store in which the instances of namespace publish their settings.
func (s *Store) Settings(namespace string) *members.Settings {
	return members.NewSettings(namespace, func() (*members.Cluster, error) { return s.reached(), nil })
}

// Settings is Store.Settings. Every request fails until the cluster is reached.
func (l *Later) Settings(namespace string) *members.Settings {
	return members.NewSettings(namespace, l.reached)
}

func (s *Store) reached() *members.Cluster {
	return &members.Cluster{Session: s.session, Config: &s.config, Datacenter: s.datacenter}
}

func (l *Later) reached() (*members.Cluster, error) {
	s, err := l.now()
	if err != nil {
		return nil, err
	}
	return s.reached(), nil
}

func (l *Later) now() (*Store, error) {
	if s := l.store.Load(); s != nil {
		return s, nil
	}
	return nil, errStoredLater
}
