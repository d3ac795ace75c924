package check_test

import (
	_ "embed"
	"errors"
	"maps"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	helm "helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
)

// Helm is used as a library, because the whole program takes twice as long to compile as everything else that
// is tested here.

//go:embed go.mod
var module string

var typesOfKubernetes = regexp.MustCompile(`k8s\.io/api v0\.(\d+)`)

// kubernetes is the module whose types are read here. Helm takes its version for that of the cluster. Helm's commands get it from
// their own build, but tests have none.
func kubernetes() *common.KubeVersion {
	minor := typesOfKubernetes.FindStringSubmatch(module)[1]
	return &common.KubeVersion{Version: "v1." + minor + ".0", Major: "1", Minor: minor}
}

// lintChart is helm lint --strict: a warning fails the test.
func lintChart(t *testing.T, values string) {
	t.Helper()
	given, err := loader.LoadValues(strings.NewReader(values))
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range lint.RunAll(chart, given, "limits", lint.WithKubeVersion(kubernetes())).Messages {
		if message.Severity >= support.WarningSev {
			t.Error(message)
		}
	}
}

// renderChart is helm template shop --namespace limits: the manifests in the order in which Helm applies them, and then
// the hooks.
func renderChart(values string) ([]string, error) {
	files, err := renderFiles(values)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasSuffix(name, notes) }) // is printed, not applied
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, manifest := range manifests {
		texts = append(texts, manifest.Content)
	}
	for _, hook := range hooks {
		texts = append(texts, hook.Manifest)
	}
	return texts, nil
}

// notes is the file that Helm prints after an installation.
const notes = "NOTES.txt"

// renderFiles renders each template, by its name.
func renderFiles(values string) (map[string]string, error) {
	given, err := loader.LoadValues(strings.NewReader(values))
	if err != nil {
		return nil, err
	}
	of, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	cluster := common.DefaultCapabilities.Copy()
	cluster.KubeVersion = *kubernetes()
	if !chartutil.IsCompatibleRange(of.Metadata.KubeVersion, cluster.KubeVersion.Version) {
		return nil, errors.New("the chart is not for Kubernetes " + cluster.KubeVersion.Version)
	}
	if err := chartutil.ProcessDependencies(of, given); err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: "shop", Namespace: "limits", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(of, given, release, cluster)
	if err != nil {
		return nil, err
	}
	return helm.Render(of, all)
}
