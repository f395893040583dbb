// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	framework "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Every flag of the framework's own command, which the upstream project is, is accepted with the same default.
func TestFlagsOfTheFramework(t *testing.T) {
	framed := must.Get(options.NewCloudControllerManagerOptions()).Or(t)
	theirs := framework.NewCloudControllerManagerCommand(framed, nil, framework.DefaultInitFuncConstructors, names.CCMControllerAliases(),
		cliflag.NamedFlagSets{}, wait.NeverStop)
	root := must.Get(NewCommand()).Or(t)
	checked := 0
	theirs.Flags().VisitAll(func(f *pflag.Flag) {
		checked++
		ours := root.Flags().Lookup(f.Name)
		switch {
		case ours == nil:
			t.Errorf("--%s is missing", f.Name)
		case f.Name == "cloud-provider":
			if ours.DefValue != "digitalocean" {
				t.Errorf("--cloud-provider is preset to %q", ours.DefValue)
			}
		case f.Name == "authentication-skip-lookup":
			if ours.DefValue != "true" {
				t.Error("--authentication-skip-lookup is not preset, as it is by the predecessor")
			}
		case f.Name == "leader-elect-lease-duration" || f.Name == "leader-elect-renew-deadline" || f.Name == "leader-elect-retry-period":
			if want := map[string]string{"duration": "12s", "deadline": "8s", "period": "1s"}[f.Name[strings.LastIndex(f.Name, "-")+1:]]; ours.DefValue != want {
				t.Errorf("--%s is preset to %s, want %s", f.Name, ours.DefValue, want)
			}
		case ours.DefValue != f.DefValue || ours.Shorthand != f.Shorthand || ours.NoOptDefVal != f.NoOptDefVal:
			t.Errorf("--%s: default %q, shorthand %q, without a value %q; the framework has %q, %q, %q", f.Name, ours.DefValue, ours.Shorthand,
				ours.NoOptDefVal, f.DefValue, f.Shorthand, f.NoOptDefVal)
		}
	})
	if checked < 80 {
		t.Errorf("only %d flags were compared", checked)
	}
	for name, value := range map[string]string{
		"secure-port": "10258", "leader-elect": "true", "leader-elect-resource-name": "cloud-controller-manager",
		"leader-elect-resource-namespace": "kube-system", "leader-elect-resource-lock": "leases", "node-monitor-period": "5s",
		"node-status-update-frequency": "5m0s", "token-file": "",
	} {
		if f := root.Flags().Lookup(name); f == nil || f.DefValue != value {
			t.Errorf("--%s: %+v, want default %q", name, f, value)
		}
	}
}

// program runs the program with nothing of our environment but what is given, and returns its exit code and what it said.
func program(ctx context.Context, t *testing.T, env []string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append([]string{asProgram + "=1", "HOME=" + t.TempDir()}, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--version", "--version=raw", "--version=true"} {
		code, out := program(t.Context(), t, nil, flag)
		if code != 0 || !strings.HasPrefix(out, "digitalocean-cloud-controller-manager ") || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: exit code %d and %q", flag, code, out)
		}
	}
	if code, out := program(t.Context(), t, nil, "--help"); code != 0 || !strings.Contains(out, "--token-file") || !strings.Contains(out, "--leader-elect-lease-duration") {
		t.Errorf("--help: exit code %d and %q", code, out)
	}
}

// Bad input and a DigitalOcean that does not respond end the program with one sentence that says what is wrong and what to do. The token is never
// part of it.
func TestOneSentenceAtStart(t *testing.T) {
	t.Parallel()
	const narrow, revoked = "dop_v1_narrow", "dop_v1_revoked"
	cloud := sim.New(sim.Options{Seed: 1, Accounts: []sim.AccountOptions{{Name: "a", Tokens: []sim.Token{
		{Value: sim.DefaultToken}, {Value: narrow, Scopes: []string{"droplet:read"}},
	}}}})
	server := httptest.NewServer(cloud.Handler())
	t.Cleanup(server.Close)
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hang.Close)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	url, token, region := "DO_OVERRIDE_URL="+server.URL, "DO_ACCESS_TOKEN="+sim.DefaultToken, "REGION=nyc1"
	for name, tt := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"no token":                {[]string{url, region}, nil, "there is no DigitalOcean token: set DO_ACCESS_TOKEN, or name a file with --token-file or DO_ACCESS_TOKEN_FILE"},
		"two tokens":              {[]string{url, region, token}, []string{"--token-file=x"}, "there are two DigitalOcean tokens, DO_ACCESS_TOKEN and the file x"},
		"a token with quotes":     {[]string{url, region, `DO_ACCESS_TOKEN="a b"`}, nil, "the DigitalOcean token in DO_ACCESS_TOKEN: it has blanks or characters that no token has"},
		"a missing token file":    {[]string{url, region, "DO_ACCESS_TOKEN_FILE=" + dir + "/none"}, nil, "reading the DigitalOcean token: open " + dir + "/none"},
		"an empty token file":     {[]string{url, region}, []string{"--token-file=" + file("empty", "\n")}, "the DigitalOcean token in file " + dir + "/empty: it is empty"},
		"a wrong token":           {[]string{url, region, "DO_ACCESS_TOKEN=" + revoked}, nil, "DigitalOcean does not accept the token in DO_ACCESS_TOKEN, it is wrong, expired or revoked: GET v2/regions: 401"},
		"a wrong token in a file": {[]string{url, region}, []string{"--token-file=" + file("wrong", revoked)}, "does not accept the token in file " + dir + "/wrong"},
		"a token without scopes":  {[]string{url, "REGION=nyc1", "DO_ACCESS_TOKEN=" + narrow}, nil, "the token in DO_ACCESS_TOKEN lacks a scope"},
		"a wrong region":          {[]string{url, token, "REGION=nyc9"}, nil, `REGION is "nyc9", which DigitalOcean does not have: it must be one of ams3, blr1, fra1`},
		"an unreachable API":      {[]string{"DO_OVERRIDE_URL=http://127.0.0.1:1", token, region}, nil, "DigitalOcean's API at http://127.0.0.1:1 responds with an error, check the network and DO_OVERRIDE_URL: GET v2/regions: dial tcp 127.0.0.1:1"},
		"another server":          {[]string{"DO_OVERRIDE_URL=" + other.URL, token, region}, nil, "responds with an error, check the network and DO_OVERRIDE_URL: GET v2/regions: 404"},
		"no URL":                  {[]string{"DO_OVERRIDE_URL=digitalocean", token, region}, nil, `DO_OVERRIDE_URL: the API's URL is "digitalocean": it must be of the form https://HOST/`},
		"no metadata service":     {[]string{url, token, "DO_METADATA_URL=http://127.0.0.1:1"}, nil, "REGION is not set, and the metadata service at http://127.0.0.1:1 does not give the droplet's region: dial tcp"},
		"a silent metadata service": {[]string{url, token, "DO_METADATA_URL=" + hang.URL}, nil,
			"REGION is not set, and the metadata service at " + hang.URL + " does not give the droplet's region: context deadline exceeded; set REGION"},
		"half a firewall":         {[]string{url, token, region, "PUBLIC_ACCESS_FIREWALL_NAME=fw"}, nil, `PUBLIC_ACCESS_FIREWALL_NAME is "fw" and PUBLIC_ACCESS_FIREWALL_TAGS is "": set both`},
		"the other half":          {[]string{url, token, region, "PUBLIC_ACCESS_FIREWALL_TAGS=a,b"}, nil, `PUBLIC_ACCESS_FIREWALL_NAME is "" and PUBLIC_ACCESS_FIREWALL_TAGS is "a,b": set both`},
		"a rate that is none":     {[]string{url, token, region, "DO_API_RATE_LIMIT_QPS=many"}, nil, `DO_API_RATE_LIMIT_QPS is "many": it must be a positive number of calls per second`},
		"an address that is none": {[]string{url, token, region, "METRICS_ADDR=9100"}, nil, `METRICS_ADDR is "9100": it must be HOST:PORT`},
		"an address that is used": {[]string{url, token, region, "DEBUG_ADDR=" + strings.TrimPrefix(server.URL, "http://")}, nil, "DEBUG_ADDR is \"" + strings.TrimPrefix(server.URL, "http://") + "\", where nothing can listen"},
		"a label of Kubernetes'":  {[]string{url, token, region, "DO_NODE_LABELS_FROM_TAGS=env=kubernetes.io/env"}, nil, "DO_NODE_LABELS_FROM_TAGS: label kubernetes.io/env is Kubernetes' own"},
		"a default that is none":  {[]string{url, token, region, "DO_LOAD_BALANCER_DEFAULTS=service.beta.kubernetes.io/do-loadbalancer-name: x"}, nil, "DO_LOAD_BALANCER_DEFAULTS: annotation service.beta.kubernetes.io/do-loadbalancer-name cannot have a default: names are unique in an account"},
		"no file with defaults":   {[]string{url, token, region}, []string{"--load-balancer-defaults-file=/nowhere"}, "reading defaults for annotations: open /nowhere: no such file or directory"},
		"another provider":        {[]string{url, token, region}, []string{"--cloud-provider=aws"}, `--cloud-provider is "aws": this program serves digitalocean only`},
		"an unknown flag":         {[]string{url, token, region}, []string{"--cloud-provide=aws"}, "did you mean --cloud-provider?"},
		"no cluster":              {[]string{url, token, region}, []string{"--secure-port=0"}, "no API server is configured: pass --kubeconfig, or run in a Pod with a service account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := tt.args
			if name != "no cluster" {
				args = append(args, "--kubeconfig=none")
			}
			code, out := program(t.Context(), t, tt.env, args...)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			last := lines[len(lines)-1]
			if code != 1 || !strings.HasPrefix(last, "error: ") || !strings.Contains(last, tt.want) {
				t.Errorf("exit code %d and\n%s\nwant 1 and one last line with\n%s", code, out, tt.want)
			}
			for _, line := range lines[:len(lines)-1] {
				if !strings.HasPrefix(line, "{") {
					t.Errorf("a line alongside the log and the error: %q", line)
				}
			}
			for _, secret := range []string{sim.DefaultToken, narrow, revoked} {
				if strings.Contains(out, secret) {
					t.Errorf("the token is shown: %s", out)
				}
			}
		})
	}
}

// Every variable is read.
func TestReadEnvironment(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"DO_ACCESS_TOKEN": "t", "DO_OVERRIDE_URL": "http://x", "DO_API_RATE_LIMIT_QPS": "2.5", "REGION": "fra1", "DO_CLUSTER_ID": "c", "DO_CLUSTER_VPC_ID": "v",
		"DEFAULT_LB_TYPE": "REGIONAL", "PUBLIC_ACCESS_FIREWALL_NAME": "f", "PUBLIC_ACCESS_FIREWALL_TAGS": "a,b", "DEBUG_ADDR": "127.0.0.1:1", "METRICS_ADDR": ":2",
		"DO_NODE_LABELS_FROM_TAGS": "env=example.com/env",
	}
	e := must.Get(readEnvironment(func(name string) string { return values[name] }, "")).Or(t)
	want := environment{
		token: "t", url: "http://x", metadataURL: "http://169.254.169.254/", qps: 2.5, region: "fra1", clusterID: "c", vpc: "v", defaultType: "REGIONAL",
		firewallName: "f", firewallTags: []string{"a", "b"}, debugAddr: "127.0.0.1:1", metricsAddr: ":2",
		nodeLabels: instance.TagLabels{"env": "example.com/env"},
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("got  %+v\nwant %+v", e, want)
	}
}
