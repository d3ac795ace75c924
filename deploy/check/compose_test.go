package check_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

const composed = root + "/deploy/compose"

// load reads docker-compose.yml like docker compose, with these profiles.
func load(t *testing.T, profiles ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{root + "/docker-compose.yml"}, cli.WithProfiles(profiles), cli.WithName("ratelimitd"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// TestCompose reads the file with one node and with three.
func TestCompose(t *testing.T) {
	always := []string{"cassandra", "grafana", "keys", "migrate", "nginx", "prometheus", "ratelimitd-1", "ratelimitd-2", "ratelimitd-3"}
	for _, test := range []struct {
		profile string
		nodes   []string // beside the first
	}{
		{"", nil},
		{"three", []string{"cassandra-2", "cassandra-3"}},
	} {
		t.Run("profile "+test.profile, func(t *testing.T) {
			project := load(t, test.profile)
			want := slices.Sorted(slices.Values(append(test.nodes, always...)))
			if got := slices.Sorted(maps.Keys(project.Services)); !slices.Equal(got, want) {
				t.Errorf("services %v, want %v", got, want)
			}
			for name, service := range project.Services {
				checkService(t, project, name, service)
			}
			for name, how := range project.Services["nginx"].DependsOn { // nginx looks up their addresses once
				if !how.Restart {
					t.Errorf("nginx keeps using the old address of %s after it is recreated", name)
				}
			}
			if last, waits := project.Services["migrate"].DependsOn["cassandra-3"]; !waits || last.Required {
				t.Errorf("the migration does not wait for the third node, or requires it: %+v", last)
			}
		})
	}
}

// checkService looks for a service's mounts and dependencies, for unknown settings, and for ports that other
// machines can reach.
func checkService(t *testing.T, project *types.Project, name string, service types.ServiceConfig) {
	t.Helper()
	for _, v := range service.Volumes {
		if v.Type == types.VolumeTypeBind {
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if _, exists := project.Volumes[v.Source]; !exists {
			t.Errorf("%s: there is no volume %s", name, v.Source)
		}
	}
	for on, how := range service.DependsOn {
		other, exists := project.Services[on]
		if exists && how.Condition == types.ServiceConditionHealthy && other.HealthCheck == nil {
			t.Errorf("%s waits until %s is healthy, but that has no health check", name, on)
		}
		if exists && how.Condition == types.ServiceConditionCompletedSuccessfully && other.Restart != types.RestartPolicyNo {
			t.Errorf("%s waits until %s has ended, but that is restarted", name, on)
		}
	}
	for _, p := range service.Ports {
		if p.HostIP != "127.0.0.1" {
			t.Errorf("%s: port %s is published on %q", name, p.Published, p.HostIP)
		}
	}
	mustKnow(t, settingsOf(service))
}

func settingsOf(service types.ServiceConfig) (env []string) {
	for name, value := range service.Environment {
		if strings.HasPrefix(name, "RATELIMITD_") && value != nil {
			env = append(env, name+"="+*value)
		}
	}
	return env
}

// TestComposedInstancesStandBehindNginx starts three instances behind Debian's nginx, with the committed
// configuration. Each gets requests, and requests succeed after one has ended.
func TestComposedInstancesStandBehindNginx(t *testing.T) {
	nginx, project := tool(t, "nginx", "apt-get install nginx-light"), load(t)
	folder, front := t.TempDir(), freeAddress(t)
	words := []string{"listen 8080;", "listen " + front + ";", "http {", "http { " + temporary}
	instances := map[string]*serving{}
	for i := range 3 {
		name, address := fmt.Sprintf("ratelimitd-%d", i+1), freeAddress(t)
		instances[address] = start(t, []string{
			"RATELIMITD_LISTEN=" + address, "RATELIMITD_POLICIES=" + composed + "/ratelimitd/policies.yaml",
			"RATELIMITD_ALLOWED_HOSTS=" + *project.Services[name].Environment["RATELIMITD_ALLOWED_HOSTS"],
		}, program(t), "serve") // each counts in memory; other tests run several on one Cassandra
		instances[address].wait(t, "http://"+address+"/readyz")
		words = append(words, name+":8080", address)
	}
	config := filepath.Join(folder, "nginx.conf")
	write(t, config, replace(t, read(t, composed+"/nginx.conf"), words...))
	globals := []string{"-p", folder, "-c", config, "-e", "stderr", "-g", "daemon off; pid nginx.pid;"}
	run(t, nginx, append(globals, "-t")...)
	g := start(t, os.Environ(), nginx, globals...)
	g.wait(t, "http://"+front+"/readyz")

	mustTake := func(calls int) {
		t.Helper()
		for range calls {
			if status, body := take("http://"+front, "api", "a", ""); status != 200 {
				t.Fatalf("%d: %s\n%s", status, body, g.log)
			}
		}
	}
	mustTake(30)
	for address := range instances {
		if _, metrics := ask("http://"+address+"/metrics", ""); !strings.Contains(metrics, `policy="api"`) {
			t.Errorf("%s got no request", address)
		}
	}
	for _, gone := range instances {
		_ = gone.cmd.Process.Signal(syscall.SIGKILL)
		<-gone.ended
		break
	}
	mustTake(30)
}

// temporary returns directives that keep nginx's files in a folder.
const temporary = "client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;"

// TestComposedPrometheus lets promtool read the configuration beside the alerts, and compares its targets with the
// services.
func TestComposedPrometheus(t *testing.T) {
	promtool, folder := tool(t, "promtool", "apt-get install prometheus"), t.TempDir()
	prometheus := load(t).Services["prometheus"]
	for _, v := range prometheus.Volumes {
		write(t, filepath.Join(folder, filepath.Base(v.Target)), read(t, v.Source))
	}
	if out := run(t, promtool, "check", "config", filepath.Join(folder, "prometheus.yml")); !strings.Contains(out, "rules found") {
		t.Errorf("the alerts are not read:\n%s", out)
	}
	var config struct {
		ScrapeConfigs []struct {
			JobName       string                       `json:"job_name"`
			StaticConfigs []struct{ Targets []string } `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	decodeFile(t, composed+"/prometheus.yaml", &config)
	job, services := config.ScrapeConfigs[0], load(t).Services
	if job.JobName != "ratelimitd" { // as alerts and dashboard expect
		t.Errorf("the job is %q", job.JobName)
	}
	for _, target := range job.StaticConfigs[0].Targets {
		name, port, _ := strings.Cut(target, ":")
		service, exists := services[name]
		if !exists || port != "8080" || !strings.Contains(*service.Environment["RATELIMITD_ALLOWED_HOSTS"], name) {
			t.Errorf("%s is not a service, or refuses requests to that name", target)
		}
	}
}

func decodeFile(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, path)), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestComposedGrafana checks that the dashboard is mounted where Grafana looks for it, and that its source is
// Prometheus.
func TestComposedGrafana(t *testing.T) {
	project := load(t)
	mounted := map[string]string{} // by target
	for _, v := range project.Services["grafana"].Volumes {
		mounted[v.Target] = v.Source
	}
	var dashboards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	decodeFile(t, mounted["/etc/grafana/provisioning/dashboards/ratelimitd.yaml"], &dashboards)
	home := *project.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if filepath.Dir(home) != dashboards.Providers[0].Options.Path || filepath.Base(mounted[home]) != "dashboard.json" {
		t.Errorf("the home dashboard is %s, from %q, but Grafana looks in %s", home, mounted[home], dashboards.Providers[0].Options.Path)
	}
	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	decodeFile(t, mounted["/etc/grafana/provisioning/datasources/ratelimitd.yaml"], &sources)
	if s := sources.Datasources[0]; s.Type != "prometheus" || s.URL != "http://prometheus:9090" {
		t.Errorf("the source is %+v", s)
	}
}

// TestComposedPolicies checks that the policies are those of the program, which the README uses, and of the page about SMS codes.
func TestComposedPolicies(t *testing.T) {
	_, page, _ := strings.Cut(read(t, root+"/docs/howto/sms-codes.md"), "```yaml title=\"policies.yaml\"\n")
	page, _, _ = strings.Cut(page, "```")
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, file, page)
	there := policies(t, composed+"/ratelimitd/policies.yaml")
	for name, want := range merged(policies(t), policies(t, file)) {
		if there[name] != want {
			t.Errorf("%s is\n%s\nwant\n%s", name, there[name], want)
		}
	}
}

func merged(all ...map[string]string) map[string]string {
	into := map[string]string{}
	for _, some := range all {
		maps.Copy(into, some)
	}
	return into
}

// policies returns the policies of a file, or of the program without a file, in the form of policies show.
func policies(t *testing.T, file ...string) map[string]string {
	t.Helper()
	var shown struct{ Policies []map[string]any }
	if err := yaml.Unmarshal([]byte(run(t, program(t), append([]string{"policies", "show"}, file...)...)), &shown); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range shown.Policies {
		text, err := yaml.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		found[p["name"].(string)] = string(text)
	}
	if len(found) < 3 {
		t.Fatalf("%d policies in %v", len(found), file)
	}
	return found
}
