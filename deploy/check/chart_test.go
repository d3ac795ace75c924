package check_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	yamlv4 "go.yaml.in/yaml/v4"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podsecurity "k8s.io/pod-security-admission/api"
	security "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

const chart = root + "/deploy/helm/ratelimitd"

// least are the values that a user must set, and all enables everything.
const (
	least = `
secretName: limits
cassandra: {hosts: [10.0.0.1, 10.0.0.2]}
`
	all = `
secretName: limits
image: {repository: registry.example.com/ratelimitd, tag: v1.2.3}
imagePullSecrets: [{name: registry}]
cassandra:
  hosts: [10.0.0.1]
  datacenter: berlin
  replication: "{'class': 'NetworkTopologyStrategy', 'berlin': 3}"
  username: limits
  tls: true
  caKey: cassandra-ca.crt
  certKey: cassandra.crt
  privateKeyKey: cassandra.key
policies: {policies: [{name: api, limits: [{algorithm: sliding-tail, limit: 5000000, window: 1m}]}]}
settings: {log-level: debug, max-keys: 2097152, trusted-proxies: "10.0.0.0/8", cassandra-tls-server-name: cassandra.example.com}
env: {OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318", OTEL_TRACES_SAMPLER_ARG: "0.01"}
ipFamily: IPv6
service: {type: LoadBalancer, port: 443, envoyPort: 8081, annotations: {example.com/zone: internal}}
tlsSecretName: limits-tls
autoscaling: {enabled: true}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
networkPolicy: {enabled: true, from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}]}
migrate: {podAnnotations: {sidecar.istio.io/inject: "false"}}
envFrom: [{secretRef: {name: traces}}, {configMapRef: {name: proxies, optional: true}}]
extraArgs: [--log-format=json]
extraVolumes: [{name: authorities, configMap: {name: authorities}}]
extraVolumeMounts: [{name: authorities, mountPath: /etc/authorities, readOnly: true}]
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboard: {enabled: true, annotations: {grafana_folder: Limits}}
serviceAccount: {create: true, annotations: {example.com/role: limits}}
podLabels: {example.com/cost: limits}
topologySpreadConstraints: [{maxSkew: 2, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule,
  labelSelector: {
    matchLabels: {app.kubernetes.io/name: ratelimitd, app.kubernetes.io/instance: shop, app.kubernetes.io/component: server}}}]
podAnnotations: {example.com/team: limits}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: dedicated, operator: Exists, effect: NoSchedule}]
affinity: {nodeAffinity: {}}
priorityClassName: critical
`
)

// manifests are the chart's manifests for some values.
type manifests struct {
	deployment *apps.Deployment
	services   map[string]*core.Service // by name
	policies   *core.ConfigMap
	board      *core.ConfigMap
	rule       *monitoring.PrometheusRule
	account    *core.ServiceAccount
	migration  *batch.Job
	budget     *disruption.PodDisruptionBudget
	scaler     *autoscaling.HorizontalPodAutoscaler
	monitor    *monitoring.ServiceMonitor
	walls      *networking.NetworkPolicy
}

// render lints and renders the chart with Helm, and reads each manifest as Kubernetes' own type: an unknown member,
// or one with another type, is an error.
func render(t *testing.T, values string) *manifests {
	t.Helper()
	lintChart(t, values)
	texts, err := renderChart(values)
	if err != nil {
		t.Fatal(err)
	}
	m := &manifests{services: map[string]*core.Service{}}
	for _, manifest := range texts {
		m.add(t, manifest)
	}
	return m
}

func (m *manifests) add(t *testing.T, manifest string) {
	t.Helper()
	var kind meta.TypeMeta
	if err := yaml.Unmarshal([]byte(manifest), &kind); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	var object meta.Object
	switch kind.APIVersion + "/" + kind.Kind {
	case "apps/v1/Deployment":
		m.deployment = decode[apps.Deployment](t, manifest)
		object = m.deployment
	case "v1/Service":
		s := decode[core.Service](t, manifest)
		m.services[s.Name] = s
		object = s
	case "v1/ConfigMap":
		c := decode[core.ConfigMap](t, manifest)
		if strings.HasSuffix(c.Name, "-policies") {
			m.policies = c
		} else {
			m.board = c
		}
		object = c
	case "v1/ServiceAccount":
		m.account = decode[core.ServiceAccount](t, manifest)
		object = m.account
	case "monitoring.coreos.com/v1/PrometheusRule":
		m.rule = decode[monitoring.PrometheusRule](t, manifest)
		object = m.rule
	case "batch/v1/Job":
		m.migration = decode[batch.Job](t, manifest)
		object = m.migration
	case "policy/v1/PodDisruptionBudget":
		m.budget = decode[disruption.PodDisruptionBudget](t, manifest)
		object = m.budget
	case "autoscaling/v2/HorizontalPodAutoscaler":
		m.scaler = decode[autoscaling.HorizontalPodAutoscaler](t, manifest)
		object = m.scaler
	case "monitoring.coreos.com/v1/ServiceMonitor":
		m.monitor = decode[monitoring.ServiceMonitor](t, manifest)
		object = m.monitor
	case "networking.k8s.io/v1/NetworkPolicy":
		m.walls = decode[networking.NetworkPolicy](t, manifest)
		object = m.walls
	default:
		t.Fatalf("a manifest of an unexpected kind: %+v", kind)
	}
	wrong := metavalidation.ValidateLabels(object.GetLabels(), field.NewPath("labels"))
	for _, why := range validation.IsDNS1035Label(object.GetName()) { // of a Service, the strictest
		wrong = append(wrong, field.Invalid(field.NewPath("name"), object.GetName(), why))
	}
	if len(wrong) > 0 || object.GetNamespace() != "limits" {
		t.Errorf("%s %s in namespace %q: %v", kind.Kind, object.GetName(), object.GetNamespace(), wrong)
	}
}

func decode[T any](t *testing.T, manifest string) *T {
	t.Helper()
	into := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), into); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	return into
}

// TestChart renders the chart with the least and with all values.
func TestChart(t *testing.T) {
	for name, values := range map[string]string{"least": least, "all": all, "no auth": least + "auth: false\n"} {
		t.Run(name, func(t *testing.T) {
			m := render(t, values)
			checkSelectors(t, m)
			checkPorts(t, m)
			for _, pod := range []core.PodTemplateSpec{m.deployment.Spec.Template, m.migration.Spec.Template} {
				checkRestricted(t, pod)
				checkFiles(t, pod.Spec)
				mustKnow(t, environment(pod.Spec.Containers[0], ""))
			}
			checkSecrets(t, m.deployment.Spec.Template.Spec.Containers[0], values == least || values == all)
			checkNumbers(t, m, values == all)
			checkMigration(t, m)
			checkExtras(t, m, values == all)
			if m.migration.Annotations["helm.sh/hook"] != "pre-install,pre-upgrade" {
				t.Errorf("the migration is not a hook: %v", m.migration.Annotations)
			}
			if everything := values == all; (m.scaler != nil) != everything || (m.monitor != nil) != everything ||
				(m.walls != nil) != everything || (m.deployment.Spec.Replicas == nil) != everything {
				t.Errorf("scaler %v, monitor %v, walls %v, replicas %v", m.scaler, m.monitor, m.walls, m.deployment.Spec.Replicas)
			}
		})
	}
}

// checkMigration checks that the Job connects to Cassandra like instances, and may run on the same nodes.
func checkMigration(t *testing.T, m *manifests) {
	t.Helper()
	instance, job := m.deployment.Spec.Template.Spec, m.migration.Spec.Template.Spec
	of := func(pod core.PodSpec) []string {
		other := func(v string) bool { return !strings.HasPrefix(v, "RATELIMITD_CASSANDRA_") }
		return slices.DeleteFunc(environment(pod.Containers[0], ""), other)
	}
	if !slices.Equal(of(instance), of(job)) {
		t.Errorf("instances connect to Cassandra with %v, the migration with %v", of(instance), of(job))
	}
	for what, pair := range map[string][2]any{
		"pull secrets": {instance.ImagePullSecrets, job.ImagePullSecrets}, "tolerations": {instance.Tolerations, job.Tolerations},
		"node selector": {instance.NodeSelector, job.NodeSelector}, "affinity": {instance.Affinity, job.Affinity},
		"priority": {instance.PriorityClassName, job.PriorityClassName},
		"envFrom":  {instance.Containers[0].EnvFrom, job.Containers[0].EnvFrom},
		"image":    {instance.Containers[0].Image, job.Containers[0].Image},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s of instances are %v, of the migration %v", what, pair[0], pair[1])
		}
	}
	if m.account != nil && job.ServiceAccountName == m.account.Name {
		t.Errorf("the migration needs the ServiceAccount %s before it exists", m.account.Name)
	}
}

// checkExtras looks for users' additions to pods, and for the objects for Prometheus and Grafana.
func checkExtras(t *testing.T, m *manifests, given bool) {
	t.Helper()
	if (m.rule != nil) != given || (m.board != nil) != given || (m.account != nil) != given {
		t.Fatalf("rule %v, dashboard %v, account %v", m.rule != nil, m.board != nil, m.account != nil)
	}
	pod, job := m.deployment.Spec.Template, m.migration.Spec.Template
	if !given {
		if pod.Spec.ServiceAccountName != "default" || !slices.Equal(pod.Spec.Containers[0].Args, []string{"serve"}) {
			t.Errorf("account %q, arguments %q", pod.Spec.ServiceAccountName, pod.Spec.Containers[0].Args)
		}
		return
	}
	for _, template := range []core.PodTemplateSpec{pod, job} {
		c := template.Spec.Containers[0]
		for _, want := range []string{
			"RATELIMITD_CASSANDRA_TLS_CERT=/etc/ratelimitd/secret/cassandra.crt",
			"RATELIMITD_CASSANDRA_TLS_KEY=/etc/ratelimitd/secret/cassandra.key",
			"RATELIMITD_CASSANDRA_TLS_SERVER_NAME=cassandra.example.com",
		} {
			if env := environment(c, ""); !slices.Contains(env, want) {
				t.Errorf("%s does not have %s: %v", c.Name, want, env)
			}
		}
		mounted := slices.ContainsFunc(c.VolumeMounts, func(v core.VolumeMount) bool { return v.MountPath == "/etc/authorities" })
		if template.Labels["example.com/cost"] != "limits" || template.Annotations["example.com/team"] != "limits" ||
			!mounted || len(c.EnvFrom) != 2 {
			t.Errorf("labels %v, annotations %v, mounts %v, envFrom %v", template.Labels, template.Annotations, c.VolumeMounts, c.EnvFrom)
		}
	}
	if job.Annotations["sidecar.istio.io/inject"] != "false" || pod.Annotations["sidecar.istio.io/inject"] != "" {
		t.Errorf("annotations of the migration %v, of instances %v", job.Annotations, pod.Annotations)
	}
	spread := pod.Spec.TopologySpreadConstraints
	if pod.Spec.ServiceAccountName != m.account.Name || m.account.Annotations["example.com/role"] == "" ||
		len(spread) != 1 || spread[0].MaxSkew != 2 ||
		!slices.Equal(pod.Spec.Containers[0].Args, []string{"serve", "--log-format=json"}) {
		t.Errorf("account %q, constraints %v, arguments %v", pod.Spec.ServiceAccountName, spread, pod.Spec.Containers[0].Args)
	}
	var alerts monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict([]byte(read(t, root+"/deploy/monitoring/alerts.yaml")), &alerts); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m.rule.Spec, alerts) || len(alerts.Groups) == 0 || m.rule.Labels["release"] != "prometheus" {
		t.Errorf("the chart's alerts differ from those of deploy/monitoring")
	}
	board, want := m.board.Data["ratelimitd.json"], read(t, root+"/deploy/monitoring/dashboard.json")
	if strings.TrimSpace(board) != strings.TrimSpace(want) || m.board.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the chart's dashboard differs from that of deploy/monitoring")
	}
}

// TestNotes checks that the notes have the next commands for the values.
func TestNotes(t *testing.T) {
	for _, test := range []struct {
		values string
		want   []string
	}{
		{least, []string{
			"kubectl -n limits rollout status deployment/shop-ratelimitd\n", "port-forward service/shop-ratelimitd 8080:8080\n",
			"curl http://127.0.0.1:8080/v1/take", "Bearer $(cat shop.token)", `{"policy": "sms-send", `, "Alerts are off",
		}},
		{all, []string{"8080:443\n", "curl --insecure https://", `{"policy": "api", `, "Envoy shop-ratelimitd.limits.svc:8081"}},
		{least + "auth: false\n", []string{"auth is false", "json' \\\n     -d '"}},
	} {
		files, err := renderFiles(test.values)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if text := files["ratelimitd/templates/"+notes]; !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
	}
}

// checkSelectors compares selectors with the labels of pods and Services. No selector may select the pods of the
// migration.
func checkSelectors(t *testing.T, m *manifests) {
	t.Helper()
	selects := labels.SelectorFromSet(m.deployment.Spec.Selector.MatchLabels)
	if !selects.Matches(labels.Set(m.deployment.Spec.Template.Labels)) || selects.Matches(labels.Set(m.migration.Spec.Template.Labels)) {
		t.Errorf("%v does not select the instances, or also selects the migration", selects)
	}
	selectors := map[string]map[string]string{
		"PodDisruptionBudget": m.budget.Spec.Selector.MatchLabels,
		"Service":             m.services["shop-ratelimitd"].Spec.Selector, "Service of peers": m.services["shop-ratelimitd-peers"].Spec.Selector,
	}
	for _, c := range m.deployment.Spec.Template.Spec.TopologySpreadConstraints {
		selectors["constraint of "+c.TopologyKey] = c.LabelSelector.MatchLabels
	}
	if m.walls != nil {
		selectors["NetworkPolicy"] = m.walls.Spec.PodSelector.MatchLabels
	}
	for name, selector := range selectors {
		if !maps.Equal(selector, m.deployment.Spec.Selector.MatchLabels) { // another label could change with an upgrade
			t.Errorf("%s selects %v, but the Deployment %v", name, selector, m.deployment.Spec.Selector.MatchLabels)
		}
	}
	if m.monitor == nil {
		return
	}
	selects = labels.SelectorFromSet(m.monitor.Spec.Selector.MatchLabels)
	for name, service := range m.services {
		if wanted := name == "shop-ratelimitd"; selects.Matches(labels.Set(service.Labels)) != wanted {
			t.Errorf("the ServiceMonitor selects Service %s: %v", name, !wanted)
		}
		if job := service.Labels[m.monitor.Spec.JobLabel]; job != "ratelimitd" { // as alerts and dashboard expect
			t.Errorf("the job would be %q", job)
		}
	}
	if target := m.scaler.Spec.ScaleTargetRef; target.Name != m.deployment.Name || target.Kind != "Deployment" {
		t.Errorf("the scaler's target is %+v", target)
	}
}

// checkPorts looks for each named port among the container's.
func checkPorts(t *testing.T, m *manifests) {
	t.Helper()
	instance := m.deployment.Spec.Template.Spec.Containers[0]
	var there, named []string
	for _, p := range instance.Ports {
		there = append(there, p.Name)
	}
	for _, s := range m.services {
		for _, p := range s.Spec.Ports {
			named = append(named, p.TargetPort.StrVal)
		}
	}
	for _, probe := range []*core.Probe{instance.StartupProbe, instance.LivenessProbe, instance.ReadinessProbe} {
		named = append(named, probe.HTTPGet.Port.StrVal)
	}
	if m.walls != nil {
		for _, rule := range m.walls.Spec.Ingress {
			for _, p := range rule.Ports {
				named = append(named, p.Port.StrVal)
			}
		}
	}
	for _, name := range named {
		if !slices.Contains(there, name) {
			t.Errorf("there is no port %q, but %v", name, there)
		}
	}
}

// checkRestricted checks with Kubernetes' own code that the pod conforms to the profile "restricted".
func checkRestricted(t *testing.T, pod core.PodTemplateSpec) {
	t.Helper()
	evaluator, err := security.NewEvaluator(security.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
		if !result.Allowed {
			t.Errorf("%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
	if root := pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem; root == nil || !*root || *pod.Spec.AutomountServiceAccountToken {
		t.Error("the root file system is writable, or the pod has a token for Kubernetes")
	}
}

// checkFiles looks for each file that a setting names in a mounted volume.
func checkFiles(t *testing.T, pod core.PodSpec) {
	t.Helper()
	var folders []string
	for _, mount := range pod.Containers[0].VolumeMounts {
		folders = append(folders, mount.MountPath)
		if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == mount.Name }) {
			t.Errorf("there is no volume %s", mount.Name)
		}
	}
	for _, v := range pod.Containers[0].Env {
		if strings.HasPrefix(v.Value, "/") && !slices.Contains(folders, filepath.Dir(v.Value)) {
			t.Errorf("%s is %s, but %v are mounted", v.Name, v.Value, folders)
		}
	}
}

// checkSecrets checks that identifiers are hashed under a key, and that peers and callers must authenticate.
func checkSecrets(t *testing.T, c core.Container, auth bool) {
	t.Helper()
	there := map[string]bool{}
	for _, v := range c.Env {
		there[v.Name] = true
	}
	for name, want := range map[string]bool{
		"RATELIMITD_HASH_KEY_FILE": true, "RATELIMITD_PEER_SECRET_FILE": true,
		"RATELIMITD_AUTH_FILE": auth, "RATELIMITD_INSECURE_NO_AUTH": !auth, "RATELIMITD_ALLOWED_HOSTS": !auth,
	} {
		if there[name] != want {
			t.Errorf("%s is set: %v, want %v", name, there[name], want)
		}
	}
}

// checkNumbers checks that Helm does not turn large numbers into 5e+06.
func checkNumbers(t *testing.T, m *manifests, given bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, file, m.policies.Data["policies.yaml"])
	run(t, program(t), "policies", "lint", file)
	env := environment(m.deployment.Spec.Template.Spec.Containers[0], "")
	if given && (!slices.Contains(env, "RATELIMITD_MAX_KEYS=2097152") || !slices.Contains(env, "OTEL_TRACES_SAMPLER_ARG=0.01") ||
		!strings.Contains(read(t, file), "limit: 5000000\n")) {
		t.Errorf("settings %v, policies\n%s", env, read(t, file))
	}
}

// environment returns the environment of a container in its manifest, in a pod with this address.
func environment(c core.Container, podIP string) (env []string) {
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil {
			value = podIP // the only reference to a field
		}
		env = append(env, v.Name+"="+strings.ReplaceAll(value, "$(POD_IP)", podIP))
	}
	return env
}

// TestChartIsRefused checks that a missing or invalid value is refused, with a sentence that names it.
func TestChartIsRefused(t *testing.T) {
	for _, test := range []struct{ name, values, want string }{
		{"no Secret", "cassandra: {hosts: [a]}", "secretName is needed"},
		{"no hosts", "secretName: a", "cassandra.hosts is needed"},
		{"an unknown value", least + "replica: 2", "'replica' not allowed"},
		{"a port", least + "service: {port: 0}", "/service/port"},
		{"a flag by its variable", least + "env: {RATELIMITD_STORE: embedded}", "invalid propertyName 'RATELIMITD_STORE'"},
		{"a certificate without its key", "secretName: a\ncassandra: {hosts: [a], tls: true, certKey: a}", "belong together"},
		{"authorities without TLS", "secretName: a\ncassandra: {hosts: [a], caKey: a}", "set cassandra.tls to true"},
		{"client certificates", least + "settings: {tls-client-ca-file: /etc/ca.crt}", "probes show no client certificate"},
		{"a label that selects", least + "podLabels: {app.kubernetes.io/component: db}", "invalid propertyName 'app.kubernetes.io/component'"},
		{"envFrom of nothing", least + "envFrom: [{name: a}]", "/envFrom/0"},
		{"a volume without a name", least + "extraVolumes: [{emptyDir: {}}]", "/extraVolumes/0"},
		{"an argument that is no flag", least + "extraArgs: [migrate]", "/extraArgs/0"},
		{"a setting in capitals", least + "settings: {LOG_LEVEL: debug}", "invalid propertyName 'LOG_LEVEL'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := renderChart(test.values); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestPodsServe runs the commands of the chart's containers on a real Cassandra: the migration, then two instances, with the
// settings and files from Kubernetes.
func TestPodsServe(t *testing.T) {
	hosts := os.Getenv("RATELIMITD_TEST_CASSANDRA_HOSTS")
	if hosts == "" {
		missing(t, "RATELIMITD_TEST_CASSANDRA_HOSTS names no Cassandra")
	}
	keyspace := fmt.Sprintf("chart_%d", os.Getpid())
	m := render(t, fmt.Sprintf("secretName: limits\ncassandra: {hosts: [%q], keyspace: %s}\n", hosts, keyspace))
	files := t.TempDir()
	token := writeFiles(t, files, m)
	pod := func(pod core.PodSpec, ip string) *serving {
		env := environment(pod.Containers[0], ip)
		for i := range env {
			env[i] = strings.NewReplacer("/etc/ratelimitd", files, "=:80", "="+ip+":80").Replace(env[i])
		}
		return start(t, env, program(t), pod.Containers[0].Args...)
	}
	migration := pod(m.migration.Spec.Template.Spec, "")
	<-migration.ended
	if !migration.cmd.ProcessState.Success() {
		t.Fatal(migration.log)
	}
	number := 0 // of the caller: a new one for each take of the first pod, because a take without an answer may count
	for i := range 2 {
		ip := fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()>>8&127, os.Getpid()&255, 1+i)
		ready := m.deployment.Spec.Template.Spec.Containers[0].StartupProbe.HTTPGet
		pod(m.deployment.Spec.Template.Spec, ip).wait(t, "http://"+ip+":8080"+ready.Path)
		within(t, func() (bool, string) { // until the pod is a member
			if i == 0 {
				number++
			}
			status, body := take("http://"+ip+":8080", "sms-send", fmt.Sprintf("+49151123%05d", number), token)
			counted := status == 200 && strings.Contains(body, `"used":1,`) == (i == 0)
			return counted, fmt.Sprintf("take %d is answered %d: %s", i+1, status, body)
		})
		if status, _ := take("http://"+ip+":8080", "sms-send", "+4915112345678", ""); status != 401 {
			t.Errorf("a caller without a token gets %d", status)
		}
	}
}

// TestPodsStayWithoutCassandra runs a pod whose Cassandra is down: it does not count as started, so it replaces no other,
// but a started one stays in the Service, so that on_store_error decides.
func TestPodsStayWithoutCassandra(t *testing.T) {
	m := render(t, "secretName: limits\ncassandra: {hosts: [\"127.0.0.1:1\"], datacenter: d}\n")
	files := t.TempDir()
	token := writeFiles(t, files, m)
	c := m.deployment.Spec.Template.Spec.Containers[0]
	ip := fmt.Sprintf("127.%d.%d.9", 1+os.Getpid()>>8&127, os.Getpid()&255)
	env := environment(c, ip)
	for i := range env {
		env[i] = strings.NewReplacer("/etc/ratelimitd", files, "=:80", "="+ip+":80").Replace(env[i])
	}
	server := "http://" + ip + ":8080"
	start(t, env, program(t), c.Args...).wait(t, server+c.ReadinessProbe.HTTPGet.Path)
	if status, body := ask(server+c.StartupProbe.HTTPGet.Path, ""); status != 503 {
		t.Errorf("the startup probe passes: %d %s", status, body)
	}
	if status, body := ask(server+c.LivenessProbe.HTTPGet.Path, ""); status != 200 {
		t.Errorf("the liveness probe fails: %d %s", status, body)
	}
	if status, body := take(server, "sms-send", "+4915112345678", token); status != 503 || !strings.Contains(body, `"recorded":`) {
		t.Errorf("on_store_error: deny answers %d %s", status, body)
	}
}

// writeFiles writes the files of the Secret and the ConfigMap, and returns a caller's token.
func writeFiles(t *testing.T, folder string, m *manifests) (token string) {
	t.Helper()
	write(t, folder+"/policies/policies.yaml", m.policies.Data["policies.yaml"])
	write(t, folder+"/secret/hash.key", "1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n")
	write(t, folder+"/secret/peers.secret", "a secret of sixteen bytes or more\n")
	return strings.TrimSpace(run(t, program(t), "token", "shop", "--auth-file", folder+"/secret/callers.yaml"))
}

// TestValuesAreDocumented compares the table of the chart's README with values.yaml and its comments, and the schema
// with both.
func TestValuesAreDocumented(t *testing.T) {
	var file yamlv4.Node
	if err := yamlv4.Unmarshal([]byte(read(t, chart+"/values.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var schema node
	if err := json.Unmarshal([]byte(read(t, chart+"/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	table := &strings.Builder{}
	table.WriteString("| value | default | meaning |\n|---|---|---|\n")
	writeValues(t, table, "", file.Content[0], schema)
	readme := read(t, chart+"/README.md")
	const begin, end = "<!-- Made from values.yaml: go test ./... -run Documented -update -->\n\n", "\n<!-- end -->"
	before, rest, found := strings.Cut(readme, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatal("the README has no place for the table")
	}
	want := before + begin + table.String() + end + after
	if *update {
		write(t, chart+"/README.md", want)
	} else if readme != want {
		t.Errorf("the README's table is out of date: run with -update; want\n%s", table)
	}
}

// node is the part of a schema that the test compares.
type node struct {
	Properties           map[string]node
	AdditionalProperties any
}

// writeValues writes a line for each value. Objects with fixed members in the schema have a line for each member.
func writeValues(t *testing.T, table *strings.Builder, path string, object *yamlv4.Node, schema node) {
	t.Helper()
	known := slices.Collect(maps.Keys(schema.Properties))
	for i := 0; i < len(object.Content); i += 2 {
		key, value := object.Content[i], object.Content[i+1]
		name := path + key.Value
		below, inSchema := schema.Properties[key.Value]
		if !inSchema {
			t.Errorf("the schema does not have %s", name)
		}
		known = slices.DeleteFunc(known, func(k string) bool { return k == key.Value })
		if below.Properties != nil && below.AdditionalProperties == false {
			writeValues(t, table, name+".", value, below)
			continue
		}
		meaning := strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", "")), " ")
		if meaning == "" {
			t.Errorf("%s has no comment that says what it means", name)
		}
		fmt.Fprintf(table, "| `%s` | %s | %s |\n", name, shown(t, value), strings.ReplaceAll(meaning, "|", `\|`))
	}
	if known = slices.DeleteFunc(known, func(k string) bool { return path+k == "global" }); len(known) > 0 {
		t.Errorf("the schema has %s%v, but values.yaml does not", path, known)
	}
}

// shown returns a default on one line, or "" if it needs several.
func shown(t *testing.T, value *yamlv4.Node) string {
	t.Helper()
	text, err := yamlv4.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	switch line := string(bytes.TrimSpace(text)); {
	case line == `""`:
		return ""
	case strings.Contains(line, "\n"):
		return "see values.yaml"
	default:
		return "`" + regexp.MustCompile(`\s+#.*`).ReplaceAllString(line, "") + "`"
	}
}
