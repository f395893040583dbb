// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

const oldStorages = "testdata/old-etcdstorages.yaml"

// What a person and a pipe see: the objects on standard output, what was lost on standard error, and the exit code.
func TestMigrateEtcdStorage(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		code int
	}{
		"migrate-etcdstorage-all":    {nil, command.ExitError},
		"migrate-etcdstorage-whole":  {[]string{"team-a"}, command.ExitOK},
		"migrate-etcdstorage-hinted": {[]string{"sample"}, command.ExitOK},
		"migrate-etcdstorage-lost":   {[]string{"strange", "team-a"}, command.ExitAttention},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, append([]string{"migrate", "etcdstorage", "-f", oldStorages}, tt.args...))
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			golden(t, name, stdout)
			golden(t, name+"-stderr", stderr)
			for line := range strings.Lines(stderr) {
				if len([]rune(strings.TrimRight(line, "\n"))) > 80 {
					t.Errorf("longer than 80 columns: %s", line)
				}
			}
		})
	}
}

// What is printed can be given back: it is passed over, and named, since it is of our group. The same input gives the same output.
func TestMigrateEtcdStorageAgain(t *testing.T) {
	t.Parallel()
	_, first, _ := run(t, []string{"migrate", "ets", "-f", oldStorages, "team-a"})
	_, second, _ := run(t, []string{"migrate", "ets", "-f", oldStorages, "team-a"})
	if first != second || first == "" {
		t.Errorf("%s\n%s", first, second)
	}
	code, _, stderr := runWith(t, first, "migrate", "etcdstorage", "-f", "-")
	if code != command.ExitError || !strings.Contains(stderr, "note: EtcdStorage team-a is of "+v1alpha1.GroupVersion.String()+" and is skipped") ||
		!strings.Contains(stderr, "there is no EtcdStorage of etcd.xmudrii.com in standard input") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestMigrateEtcdStorageRefuses(t *testing.T) {
	t.Parallel()
	const object = "apiVersion: etcd.xmudrii.com/v1alpha1\nkind: EtcdStorage\nmetadata: {name: a}\n"
	for input, want := range map[string]string{
		"":                                     "error: there is no EtcdStorage of etcd.xmudrii.com in standard input",
		"\t":                                   "error: document 1 of standard input: it is neither YAML nor JSON: yaml: ",
		"[]":                                   "error: document 1 of standard input: it is not a Kubernetes object: it is a JSON array",
		"a: b":                                 "error: document 1 of standard input: it is not a Kubernetes object: it has no kind",
		object + "---\n{kind: List, items: 7}": "error: document 2 of standard input: items of the list must be a list of objects",
		"{kind: List, items: [7]}":             "error: document 1 of standard input: item 1 of the list is not a Kubernetes object",
		object + "kind: Other\n":               "error: document 1 of standard input: it is neither YAML nor JSON: ",
	} {
		if code, stdout, stderr := runWith(t, input, "migrate", "etcdstorage", "-f", "-"); code != command.ExitError || stdout != "" || !strings.HasPrefix(stderr, want) {
			t.Errorf("%q: exit code %d, %s%s", input, code, stdout, stderr)
		}
	}
	if code, stdout, stderr := runWith(t, object+"---\n"+object, "migrate", "etcdstorage", "-f", "-"); code != command.ExitError ||
		strings.Count(stdout, "kind:") != 1 || !strings.Contains(stderr, "another object before this one has the same name") {
		t.Errorf("the same name twice: exit code %d, %s%s", code, stdout, stderr)
	}
	for args, want := range map[string]string{
		"-f /nowhere/x":            "error: opening the input: open /nowhere/x: no such file or directory\n",
		"-f " + oldStorages + " b": "error: there is no EtcdStorage \"b\" of etcdproxy-controller\n",
		"-f x --dry-run":           "error: --dry-run needs --apply; without --apply nothing is written anyway\n",
		"--kubeconfig /nowhere/x":  "error: reading the kubeconfig, pass --kubeconfig or --context to choose another: ",
	} {
		if code, _, stderr := run(t, append([]string{"migrate", "etcdstorage"}, strings.Fields(args)...)); code != command.ExitError || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

// FuzzMigrateEtcdStorage: whatever the input is, the command ends with one of its codes, an error is one line, and what it prints is objects of our kind.
func FuzzMigrateEtcdStorage(f *testing.F) {
	whole, err := os.ReadFile(filepath.FromSlash(oldStorages))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(whole))
	f.Add("{kind: EtcdStorageList, apiVersion: etcd.xmudrii.com/v1alpha1, items: [{metadata: {name: a}, spec: {signingCertificateValidity: 1h}}]}")
	f.Add("a: &a [*a]\n---\n{kind: List}\n")
	f.Fuzz(func(t *testing.T, input string) {
		code, stdout, stderr := runWith(t, input, "migrate", "etcdstorage", "-f", "-")
		if code < command.ExitOK || code > command.ExitAttention || strings.Count("\n"+stderr, "\nerror: ") > 1 {
			t.Fatalf("exit code %d, %s", code, stderr)
		}
		for document := range strings.SplitSeq(stdout, "\n---\n") {
			var got v1alpha1.EtcdStorage
			if err := yaml.UnmarshalStrict([]byte(document), &got); err != nil || document != "" && (got.Name == "" || got.APIVersion != v1alpha1.GroupVersion.String()) {
				t.Fatalf("%v\n%s", err, document)
			}
		}
	})
}
