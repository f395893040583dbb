// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/testkit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// run is the plugin's main function.
func run(t *testing.T, args []string, builders ...plugin.Builder) (code int, stdout, stderr string) {
	t.Helper()
	if builders == nil {
		builders = plugin.Builtin()
	}
	var out, errOut bytes.Buffer
	code = command.Run(t.Context(), plugin.NewCommand(builders...), args, &out, &errOut)
	return code, out.String(), errOut.String()
}

// A command that takes longer than 30 s prints no stack trace of controller-runtime: a logger has been decided on.
func TestNothingIsPrintedAfterThirtySeconds(t *testing.T) {
	t.Parallel()
	plugin.NewCommand()
	sink := ctrllog.Log.WithName("a client").GetSink() //nolint:forbidigo // which one it is, is what this is about
	if sink != (ctrllog.NullLogSink{}) {
		t.Errorf("controller-runtime logs to %T", sink)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the test with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got), rewrite it with -update if that is meant:\n%s", path, diff)
	}
}

// What a person sees, word for word.
func TestGoldenTexts(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"help":               {"--help"},
		"help-version":       {"version", "--help"},
		"help-topology":      {"topology", "--help"},
		"help-agreement":     {"agreement", "--help"},
		"help-explain":       {"explain", "--help"},
		"help-ui":            {"ui", "--help"},
		"help-plan":          {"plan", "--help"},
		"help-plan-lb":       {"plan", "loadbalancer", "--help"},
		"help-plan-nodes":    {"plan", "nodes", "--help"},
		"help-plan-rr":       {"plan", "routereflectors", "--help"},
		"help-confirm":       {"confirm", "--help"},
		"help-confirm-nodes": {"confirm", "nodes", "--help"},
		"help-confirm-rrt":   {"confirm", "topology", "--help"},
		"help-bird":          {"bird-templates", "--help"},
		"help-doctor":        {"doctor", "--help"},
		"help-doctor-who":    {"doctor", "controllers", "--help"},
		"help-doctor-certs":  {"doctor", "certificates", "--help"},
		"help-doctor-rbac":   {"doctor", "rbac", "--help"},
		"help-migrate":       {"migrate", "--help"},
		"help-migrate-ets":   {"migrate", "etcdstorage", "--help"},
		"help-etcd":          {"etcd", "--help"},
		"help-etcd-export":   {"etcd", "export", "--help"},
		"help-etcd-import":   {"etcd", "import", "--help"},
		"help-etcd-capacity": {"etcd", "capacity", "--help"},
		"help-completion":    {"completion", "--help"},
		"completion-kubectl": {"completion", "kubectl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, args)
			if code != 0 || stderr != "" {
				t.Errorf("exit code %d, stderr %q", code, stderr)
			}
			golden(t, name, stdout)
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want string
	}{
		"wrong format":      {[]string{"version", "-o", "wide"}, `invalid value "wide" for --output (format): use one of table, json, yaml; see 'kubectl mooring version --help'`},
		"unknown command":   {[]string{"versio"}, `unknown command "versio" for "kubectl mooring" (did you mean "version"?); see 'kubectl mooring --help'`},
		"unknown flag":      {[]string{"version", "--name-space=x"}, `unknown flag --name-space (did you mean --namespace?); see 'kubectl mooring version --help'`},
		"stray argument":    {[]string{"version", "now"}, `unexpected argument "now": kubectl mooring version takes flags only; see 'kubectl mooring version --help'`},
		"unknown shell":     {[]string{"completion", "fsh"}, `unknown command "fsh" for "kubectl mooring completion" (did you mean "fish"?); see 'kubectl mooring completion --help'`},
		"a format without":  {[]string{"version", "-o"}, `flag --output needs a value; see 'kubectl mooring version --help'`},
		"an empty -o value": {[]string{"version", "--output="}, `invalid value "" for --output (format): use one of table, json, yaml; see 'kubectl mooring version --help'`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, tt.args)
			if code != command.ExitError || stdout != "" || stderr != "error: "+tt.want+"\n" {
				t.Errorf("exit code %d, stdout %q, stderr\n%swant\nerror: %s", code, stdout, stderr, tt.want)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	type result struct {
		Client buildinfo.Info `json:"client"`
	}
	want := result{buildinfo.Get()}
	for _, format := range []string{"json", "yaml"} {
		code, stdout, stderr := run(t, []string{"version", "--client", "-o", format})
		var got result
		if err := yaml.UnmarshalStrict([]byte(stdout), &got); err != nil || code != 0 || stderr != "" {
			t.Fatalf("%s: exit code %d, stderr %q, decoding: %v", format, code, stderr, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", format, diff)
		}
		if format == "json" && !json.Valid([]byte(stdout)) {
			t.Errorf("not JSON: %s", stdout)
		}
	}
	_, stdout, _ := run(t, []string{"version"})
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) != 2 || !slices.Equal(strings.Fields(lines[0]), []string{"COMPONENT", "VERSION", "COMMIT", "DATE", "GO", "PLATFORM"}) ||
		!slices.Equal(strings.Fields(lines[1])[:2], []string{"kubectl-mooring", want.Client.Version}) {
		t.Errorf("table:\n%s", stdout)
	}
	if _, stdout, _ := run(t, []string{"--version"}); !strings.HasPrefix(stdout, "kubectl mooring "+want.Client.Version) {
		t.Errorf("--version: %s", stdout)
	}
}

func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for shell, marker := range map[string]string{
		"bash": "complete -o default", "zsh": "#compdef kubectl-mooring", "fish": "complete -c kubectl-mooring",
	} {
		code, stdout, stderr := run(t, []string{"completion", shell})
		if code != 0 || stderr != "" || !strings.Contains(stdout, marker) {
			t.Errorf("%s: exit code %d, stderr %q, script of %d bytes without %q", shell, code, stderr, len(stdout), marker)
		}
		if path, err := exec.LookPath(shell); err == nil { // the second judge, where there is one
			check := exec.CommandContext(t.Context(), path, "-n")
			check.Stdin = strings.NewReader(stdout)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s refuses its script: %v\n%s", shell, err, out)
			}
		}
	}
}

func TestCompletesWords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"__complete", "ver"}, []string{"version"}},
		{[]string{"__complete", "completion", ""}, []string{"bash", "fish", "kubectl", "zsh"}},
		{[]string{"__complete", "version", "-o", ""}, []string{"table", "json", "yaml"}},
	} {
		_, stdout, _ := run(t, tt.args)
		var got []string
		for line := range strings.Lines(stdout) {
			if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); word != "" && word[0] != ':' {
				got = append(got, word)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.args, diff)
		}
	}
}

// A script under the plugin's name shows which words arrive.
func TestKubectlCompletionScriptCallsThePlugin(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil || runtime.GOOS == "windows" {
		testkit.Skip(t, "it needs a POSIX shell")
	}
	dir := t.TempDir()
	_, script, _ := run(t, []string{"completion", "kubectl"})
	for name, text := range map[string]string{
		"kubectl_complete-mooring": script, "kubectl-mooring": "#!" + sh + "\necho \"$#: $*\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil { //nolint:gosec // scripts are run
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), sh, filepath.Join(dir, "kubectl_complete-mooring"), "version", "-o", "")
	cmd.Env = []string{"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if want := "4: __complete version -o \n"; err != nil || string(out) != want {
		t.Errorf("kubectl's words arrive as %q (%v), want %q", out, err, want)
	}
}

// probe is a command as later ones will be: it uses the connection flags and its exit code speaks.
func probe(seen *string) plugin.Builder {
	return func(env *observe.Env) *cobra.Command {
		return &cobra.Command{Use: "probe", Short: "Test", RunE: func(*cobra.Command, []string) error {
			config, err := env.RESTConfig()
			if err != nil {
				return err
			}
			namespace, explicit, err := env.Namespace()
			if err != nil {
				return err
			}
			*seen = config.Host + " " + namespace + " " + map[bool]string{true: "asked", false: "context"}[explicit] + " " + config.UserAgent
			return command.Exit(command.ExitAttention, nil)
		}}
	}
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: a, user: u, namespace: team}}
- {name: b, context: {cluster: b, user: u}}
clusters:
- {name: a, cluster: {server: "https://a"}}
- {name: b, cluster: {server: "https://b"}}
users: [{name: u, user: {token: x}}]
`

func TestConnectionFlagsAreKubectls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path) // a person's tool reads it, as kubectl does
	tests := map[string]struct {
		args []string
		want string
	}{
		"the current context":    {nil, "https://a team context"},
		"another context":        {[]string{"--context=b"}, "https://b default context"},
		"a namespace":            {[]string{"-n", "x"}, "https://a x asked"},
		"an explicit kubeconfig": {[]string{"--kubeconfig", path, "--cluster", "b"}, "https://b team context"},
		"a server":               {[]string{"-s", "https://c"}, "https://c team context"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var seen string
			code, stdout, stderr := run(t, append([]string{"probe"}, tt.args...), probe(&seen))
			if code != command.ExitAttention || stdout != "" || stderr != "" {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			if want := tt.want + " " + buildinfo.Get().UserAgent("kubectl-mooring"); seen != want {
				t.Errorf("connection is %q, want %q", seen, want)
			}
		})
	}
	var seen string
	code, _, stderr := run(t, []string{"probe", "--context=nope"}, probe(&seen))
	if code != command.ExitError || !regexp.MustCompile(`^error: reading the kubeconfig, .*"nope" does not exist\n$`).MatchString(stderr) {
		t.Errorf("a wrong context: exit code %d, %s", code, stderr)
	}
}
