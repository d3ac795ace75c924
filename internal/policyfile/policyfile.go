// Package policyfile reads policies from YAML, writes them back, and watches a file for changes. It reports all
// mistakes of a file at once, each with its line and a hint.
//
// It knows neither how a policy is served nor which policies are in force. Package policy checks whether a policy is
// valid.
package policyfile

import (
	_ "embed"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// MaxPolicies is the maximum of policies in a file. Each has its own series in the metrics.
const MaxPolicies = 10_000

//go:embed default.yaml
var defaultFile []byte

// File is the contents of a file of policies.
type File struct {
	Policies []policy.Policy // in their order, without defaults
	Envoy    *Envoy          // whose policies are among them; nil: there is no such section
}

// Default returns the example policies of a server without a file.
func Default() ([]policy.Policy, error) { return Parse("default.yaml", defaultFile) }

// Load reads the policies of the file at path. Its error is that of LoadFile.
func Load(path string) ([]policy.Policy, error) {
	file, err := LoadFile(path)
	return file.Policies, err
}

// LoadFile reads the file at path. Its error is that of the operating system, or of
// ParseFile.
func LoadFile(path string) (File, error) {
	data, err := yamlfile.Read(path)
	if err != nil {
		return File{}, fmt.Errorf("reading policies: %w", err)
	}
	return ParseFile(path, data)
}

// LoadOrExamples is LoadFile, or Default if path is empty.
func LoadOrExamples(path string) (File, error) {
	if path == "" {
		policies, err := Default()
		return File{Policies: policies}, err
	}
	return LoadFile(path)
}

// Parse reads the policies in data as ParseFile does.
func Parse(name string, data []byte) ([]policy.Policy, error) {
	file, err := ParseFile(name, data)
	return file.Policies, err
}

// ParseFile reads data, the contents of the file name. Its policies have no Problems and different names; otherwise the
// error is yamlfile.Errors, one for each mistake, and the File is empty.
func ParseFile(name string, data []byte) (File, error) {
	f := yamlfile.Parse(name, data)
	file := readFile(f)
	if err := f.Err(); err != nil {
		return File{}, err
	}
	return file, nil
}

func readFile(f *yamlfile.File) File {
	if f.Root == nil {
		if f.Err() == nil {
			f.AddAt(yamlfile.Position{Line: 1}, "", "there is nothing in this file: %s", wholeFile)
		}
		return File{}
	}
	var file contents
	readMap(f, f.Root, fileMembers, wholeFile, &file)
	checkEnvoy(f, &file)
	return file.File
}

// readPolicies reads the list of policies into file.
func readPolicies(f *yamlfile.File, n *yamlfile.Node, file *contents) {
	switch {
	case !f.Expect(n, yamlfile.List, "start each policy with - name:"):
		return
	case len(n.Items) == 0:
		f.Add(n, "there are no policies: give at least one")
	case len(n.Items) > MaxPolicies:
		f.Add(n, "%d policies: a file may hold at most %d", len(n.Items), MaxPolicies)
		return
	}
	lines := make(map[string]int, len(n.Items))
	var items []*yamlfile.Node // of file.policies
	for _, item := range n.Items {
		policy, ok := readPolicy(f, item)
		if !ok {
			continue
		}
		items = append(items, item)
		name := item.Find("name")
		if first, twice := lines[policy.Name]; twice && !f.Wrong(name.Path) {
			f.Add(name, "%q names the policy on line %d too: give each policy a name of its own", policy.Name, first)
		} else if policy.Name != "" && !twice {
			lines[policy.Name] = name.Line
		}
		file.Policies = append(file.Policies, policy)
	}
	if len(items) == len(n.Items) { // otherwise a name may be that of an unreadable policy
		addDeriveProblems(f, items, file.Policies)
	}
}

// readPolicy reads one policy and adds its mistakes. It returns false if n is not a policy at all.
func readPolicy(f *yamlfile.File, n *yamlfile.Node) (policy policy.Policy, ok bool) {
	if leases := n.Member("leases"); leases != nil {
		f.Add(leases, "leases are gone since every key has an owner: delete the line")
	}
	if !readMap(f, n, policyMembers, "write name: and limits:", &policy) {
		return policy, false
	}
	addProblems(f, n, policy.Problems())
	addUnreadable(f, n, &policy)
	return policy, true
}
