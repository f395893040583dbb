// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin"
)

// leaves are the commands of a tree that do something, as words, but for those that print what never depends on a cluster.
func leaves(c *cobra.Command, words []string) [][]string {
	if c.Hidden || c.Name() == "completion" || c.Name() == "help" {
		return nil
	}
	var out [][]string
	for _, sub := range c.Commands() {
		out = append(out, leaves(sub, append(append([]string{}, words...), sub.Name()))...)
	}
	if c.Runnable() && c.HasParent() {
		out = append(out, words)
	}
	return out
}

// given is what commands want before they look at a cluster.
func given() map[string][]string {
	core := []string{"a-name", "--core-endpoint=https://127.0.0.1:1"}
	return map[string][]string{"explain": {"node", "a-name"}, "estate remove": {"volume", "an-id"}, "confirm nodes": {"0123456789ab"}, "confirm machines": {"0123456789ab"}, "confirm topology": {"a-name", "0123456789ab"}, "node forget": {"a-name"}, "restore": {"a-name"}, "etcd export": core[:1], "etcd import": core[:1], "etcd capacity": core[:1], "etcd purge": core, "etcd defragment": core[1:], "etcd retained": core[1:]}
}

// TestBadInputOfEveryCommand gives each command the mistakes that anybody makes: each is told in one sentence of bounded length that names what was wrong, with exit code 1
// and nothing on standard output.
func TestBadInputOfEveryCommand(t *testing.T) { //nolint:paralleltest // the environment is the process's
	folder := t.TempDir()
	t.Setenv("KUBECONFIG", filepath.Join(folder, "none"))
	t.Setenv("HOME", folder)
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--kubeconfig=" + path
	}
	broken := file("broken", "clusters: [unfinished")
	fine := file("fine", `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c}}]}`)
	tried := 0
	for _, words := range leaves(plugin.NewCommand(plugin.Builtin()...), nil) {
		name := strings.Join(words, " ")
		mistakes := map[string][]string{
			"unknown flag --no-such-flag":                {"--no-such-flag"},
			"(did you mean --kubeconfig?)":               {"--kubeconfg=x"},
			"flag --context needs a value":               {"--context"},
			"--output":                                   {"--output=sideways"},
			`context "nowhere" does not exist`:           {fine, "--context=nowhere"},
			"/no/such/file":                              {"--kubeconfig=/no/such/file"},
			"did not find expected":                      {broken},
			`invalid value "soon" for --request-timeout`: {fine, "--request-timeout=soon"},
			"no kubeconfig says which cluster to use":    nil,
		}
		offline := name == "version" || strings.HasPrefix(name, "plan loadbalancer") || strings.HasPrefix(name, "plan firewall") ||
			name == "etcd purge" || name == "etcd defragment" || name == "etcd retained" || name == "etcd import"
		for names, flags := range mistakes {
			if offline && (flags == nil || strings.HasPrefix(flags[0], "--kubeconfig=")) {
				continue // it needs no API server, or something else first
			}
			tried++
			args := slices.Concat(words, given()[name], flags)
			code, stdout, stderr := run(t, args)
			line, rest, _ := strings.Cut(stderr, "\n")
			if code != command.ExitError || stdout != "" || rest != "" || !strings.HasPrefix(line, "error: ") || len(line) > 400 || !strings.Contains(line, names) {
				t.Errorf("kubectl mooring %s: exit code %d, stdout %q, stderr\n%swant one line with %q", strings.Join(args, " "), code, stdout, stderr, names)
			}
		}
	}
	if tried < 80 {
		t.Errorf("only %d mistakes were tried", tried)
	}
}
