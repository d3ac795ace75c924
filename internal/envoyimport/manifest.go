package envoyimport

import (
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// isManifest reports whether n is a Kubernetes object.
func isManifest(n *yamlfile.Node) bool {
	return member(n, "kind") != nil && member(n, "apiVersion") != nil
}

// manifests adds the entries of the ConfigMaps among objects, each of which is a file.
func (s *source) manifests(objects []*yamlfile.Node) error {
	found := false
	for _, object := range objects {
		if list := member(object, "items"); list != nil && strings.HasSuffix(s.text(object, "kind"), "List") {
			if err := s.manifests(list.Items); err != nil {
				return err
			}
			found = true
			continue
		}
		data := member(object, "data")
		if s.text(object, "kind") != "ConfigMap" || data == nil {
			s.warn(object, "left out: it is not a ConfigMap with data")
			continue
		}
		for _, entry := range data.Members {
			found = true
			if err := s.entry(entry); err != nil {
				return err
			}
		}
	}
	if !found && s.f.Err() == nil {
		s.f.Add(objects[0], "there is no ConfigMap with data in it: it needs a domain and descriptors")
	}
	return s.f.Err()
}

// entry adds an entry of a ConfigMap, which is a file. Its line numbers are those of the manifest if it is written as a
// block.
func (s *source) entry(entry yamlfile.Member) error {
	if !s.f.Expect(entry.Value, yamlfile.Text, "an entry of a ConfigMap is a text") {
		return s.f.Err()
	}
	before := strings.Repeat("\n", entry.Value.Line)
	return s.add(Source{Name: s.f.Name, Data: []byte(before + entry.Value.Text)})
}
