// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// put writes keys into an etcd.
func put(t *testing.T, etcd *clientv3.Client, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, err := etcd.Put(t.Context(), key, "value of "+key); err != nil {
			t.Fatal(err)
		}
	}
}

// dump is what is under a prefix.
func dump(t *testing.T, etcd *testkit.Etcd, prefix string) string {
	t.Helper()
	var out []string
	got, err := etcd.Client.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		out = append(out, strings.TrimPrefix(string(kv.Key), prefix)+"="+string(kv.Value))
	}
	return strings.Join(out, "\n")
}

// expect runs the plugin and wants this exit code, and these texts in what it prints, on standard error too.
func expect(t *testing.T, code int, stdin string, args []string, wants ...string) (stdout string) {
	t.Helper()
	got, stdout, stderr := runWith(t, stdin, args...)
	for _, want := range wants {
		if !strings.Contains(stdout+stderr, want) {
			t.Errorf("%q: %q is not in\n%s%s", args, want, stdout, stderr)
		}
	}
	if got != code {
		t.Errorf("%q: exit code %d, want %d\n%s", args, got, code, stderr)
	}
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "error: ") && len([]rune(line)) > 81 {
			t.Errorf("longer than 80 columns: %s", line)
		}
	}
	return stdout
}

// Through a proxy: a file, standard output, a pipe, a dry run, an import that is refused and one that is resumed.
func TestEtcdThroughAProxy(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	proxy := func(tenant string) string {
		return "--endpoint=http://" + tenantproxy.InProcess(t, etcd.Endpoint, "/"+tenant+"/", tenant)
	}
	a, b, c := proxy("a"), proxy("b"), proxy("c")
	put(t, etcd.Client, "/a/x", "/a/y", "/a/z", "/other/secret")
	file := filepath.Join(t.TempDir(), "a.stream")
	expect(t, command.ExitOK, "", []string{"etcd", "export", "a", a, "-f", file}, "Exported 3 keys (42 B) and 0 leases of tenant a, as of revision ")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
	expect(t, command.ExitError, "", []string{"etcd", "export", "a", a, "-f", file}, "error: "+file+" is there already: give another name, or remove it")
	stream := expect(t, command.ExitOK, "", []string{"etcd", "export", "a", a})
	saved, err := os.ReadFile(file)
	// The core's revision, and the checksums with it, are others when a proxy has written its record.
	keys := func(stream string) []string {
		return slices.DeleteFunc(strings.Split(stream, "\n"), func(line string) bool { return !strings.HasPrefix(line, `{"kv"`) })
	}
	if err != nil || !slices.Equal(keys(string(saved)), keys(stream)) || len(keys(stream)) != 3 || strings.Contains(stream, "secret") {
		t.Errorf("standard output differs from the file: %v\n%s", err, stream)
	}

	expect(t, command.ExitOK, "", []string{"etcd", "import", "b", b, "-f", file, "--dry-run"},
		"The stream is whole: 3 keys (42 B) and 0 leases of tenant a, as of revision", "Tenant b has 0 keys; nothing was written (dry run).")
	expect(t, command.ExitOK, "", []string{"etcd", "import", "b", b, "-f", file}, "Imported 3 keys into tenant b.")
	if got, want := dump(t, etcd, "/b/"), dump(t, etcd, "/a/"); got != want || got == "" {
		t.Errorf("%s\n%s", got, want)
	}
	expect(t, command.ExitError, "", []string{"etcd", "import", "b", b, "-f", file, "--dry-run"},
		"error: the tenant is not empty: tenant b has 3 keys; it would be refused without --resume")
	expect(t, command.ExitError, "", []string{"etcd", "import", "b", b, "-f", file},
		"error: the tenant is not empty: it has 3 keys, and nothing was written; to continue an interrupted import, use --resume")
	expect(t, command.ExitOK, "", []string{"etcd", "import", "b", b, "-f", file, "--resume"}, "Imported 0 keys into tenant b; 3 keys were there already.")

	pipe := func(text string, args ...string) (int, string) {
		root := plugin.NewCommand(plugin.Builtin()...)
		root.SetIn(bytes.NewBufferString(text)) // which cannot be sought
		var out bytes.Buffer
		return command.Run(t.Context(), root, append([]string{"etcd", "import", "c", c, "-f", "-"}, args...), &out, &out), out.String()
	}
	code, text := pipe(stream, "--dry-run")
	if code != command.ExitError || text != "error: standard input cannot be read twice: --dry-run needs a file\n" {
		t.Errorf("%d %s", code, text)
	}
	code, text = pipe(stream[:len(stream)-5])
	if want := "note: standard input cannot be read twice: each page is checked before it is\n  written, the whole at its end\nerror: standard input: line 6: the stream ends within this line: " +
		"it was truncated; 3 keys of tenant c were written before, and --resume goes on from there\n"; code != command.ExitError || text != want {
		t.Errorf("%d %s\n%s", code, text, want)
	}
	code, text = pipe(stream, "--resume")
	if code != command.ExitOK || !strings.HasSuffix(text, "Imported 0 keys into tenant c; 3 keys were there already.\n") {
		t.Errorf("%d %s", code, text)
	}
	expect(t, command.ExitError, stream[:len(stream)-5], []string{"etcd", "import", "d", proxy("d"), "-f", "-"}, "it was truncated; nothing was written")
	if got := dump(t, etcd, "/d/"); got != "" {
		t.Errorf("a damaged stream was loaded: %s", got)
	}
}

// In the core itself: the prefix is the name's or the operator's record's, and never one that overlaps another tenant's.
func TestEtcdInTheCore(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	core := "--core-endpoint=" + etcd.Endpoint
	put(t, etcd.Client, "/a/x", "/elsewhere/b/y", "/c/z")
	for name, prefix := range map[string]string{"b": "/elsewhere/b/", "c": "/c/"} {
		record := fmt.Sprintf(`{"tenant":%q,"prefix":%q,"leaseSpace":"77"}`, name, prefix)
		if _, err := etcd.Client.Put(t.Context(), operator.OwnersPrefix+name, record); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(t.TempDir(), name) }
	a, b := file("a"), file("b")
	expect(t, command.ExitOK, "", []string{"etcd", "export", "a", core, "-f", a}, "Exported 1 key (14 B)")
	expect(t, command.ExitOK, "", []string{"etcd", "export", "b", core, "-f", b}, "Exported 1 key (24 B)")
	expect(t, command.ExitOK, "", []string{"etcd", "import", "d", core, "--core-prefix=/d/d/", "-f", b}, "Imported 1 key into tenant d.")
	if got := dump(t, etcd, "/d/d/"); got != "y=value of /elsewhere/b/y" {
		t.Error(got)
	}
	for prefix, want := range map[string]string{
		"/c/":         "error: --core-prefix /c/ overlaps /c/, which is another tenant's",
		"/elsewhere/": "error: --core-prefix /elsewhere/ overlaps /elsewhere/b/, which is another tenant's",
		"/":           `error: --core-prefix: prefix "/" would be the whole of the core: give it a name, for example /team-a/`,
		"a":           `error: --core-prefix: prefix "a" must begin and end with "/", for example /team-a/`,
	} {
		expect(t, command.ExitError, "", []string{"etcd", "export", "a", core, "--core-prefix=" + prefix, "-f", file("x")}, want)
	}
	expect(t, command.ExitError, "", []string{"etcd", "export", "a", core, "--core-lease-space=x", "-f", file("x")}, `error: --core-lease-space: lease space "x" must be a whole number`)
}

// With TLS and users: the certificate of the tenant through flags, a wrong authority, and a user of the core that may read its own prefix alone.
func TestEtcdWithTLS(t *testing.T) {
	t.Parallel()
	authority := testkit.NewAuthority(t, "core")
	pair := authority.Issue(t, testkit.Leaf{})
	etcd := testkit.NewTLSEtcd(t, testkit.NewTLSFolder(t, authority.Issue(t, testkit.Leaf{}), authority.PEM), pair.Client(t, authority))
	put(t, etcd.Client, "/a/x", "/b/x")
	files := testkit.NewTLSFolder(t, pair, authority.PEM)
	access := []string{"--core-cacert", files.CA(), "--core-cert", files.Cert(), "--core-key", files.Key()}
	target := func(name string, more ...string) []string {
		return append([]string{"etcd", "export", name, "--core-endpoint", etcd.Endpoint, "-f", filepath.Join(t.TempDir(), "x")}, more...)
	}
	expect(t, command.ExitOK, "", target("a", access...), "Exported 1 key")
	expect(t, command.ExitOK, "", []string{
		"etcd", "export", "a", "--endpoint", etcd.Endpoint, "--cacert", files.CA(), "--cert", files.Cert(), "--key", files.Key(), "-f", filepath.Join(t.TempDir(), "x"),
	}, "Exported 2 keys") // as a proxy would, without a prefix
	stranger := testkit.NewTLSFolder(t, pair, testkit.NewAuthority(t, "nobody").PEM)
	expect(t, command.ExitError, "", target("a", "--core-cacert", stranger.CA(), "--core-cert", files.Cert(), "--core-key", files.Key()),
		"error: connecting to "+etcd.Endpoint+": tls: failed to verify certificate: x509: certificate signed by unknown authority")
	expect(t, command.ExitError, "", target("a", "--core-cacert", files.CA()),
		"error: connecting to "+etcd.Endpoint+": the other side does not go on: remote error: tls: certificate required")
	etcd.EnableAuth(t, clientv3.Config{TLS: pair.Client(t, authority)}, "root", testkit.Grant{User: "a", Password: "secret", Prefixes: []string{"/a/"}})
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	access = append(access, "--core-username", "a", "--core-password-file", password)
	expect(t, command.ExitOK, "", target("a", access...), "Exported 1 key")
	expect(t, command.ExitError, "", target("b", access...), "error: exporting tenant b: the core's user may not use the tenant's keys: ")
}

// Each mistake is one sentence, before anything is asked or written.
func TestEtcdRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, garbage := file("empty", ""), file("garbage", "hello\n")
	const export, load = "etcd export a -f " + "FILE ", "etcd import a "
	for args, want := range map[string]string{
		"etcd export":          "give the name of one EtcdStorage; see 'kubectl mooring etcd export --help'",
		"etcd export a b":      "give the name of one EtcdStorage; see 'kubectl mooring etcd export --help'",
		load:                   "give the stream with -f FILE, - for standard input",
		load + "-f /nowhere/x": "opening the input: open /nowhere/x: no such file or directory",
		load + "-f " + empty:   empty + ": the input is empty: it must be what 'kubectl mooring etcd export' has written; nothing was written",
		load + "-f " + garbage: garbage + ": line 1: this is not what 'kubectl mooring etcd export' writes; nothing was written",
		"etcd export a -f /nowhere/x --endpoint http://127.0.0.1:1":                                        "making a file next to /nowhere/x: open /nowhere/",
		export + "--endpoint https://h:1 --core-endpoint https://h:1":                                      "--endpoint goes to a proxy and --core-endpoint to the core: give flags of one kind",
		export + "--core-prefix /a/":                                                                       "--core-prefix goes with --core-endpoint",
		export + "--core-endpoint https://h:1 --core-username u":                                           "--core-username and --core-password-file go together",
		export + "--endpoint https://h:1 --cert " + garbage:                                                "--cert and --key go together",
		export + "--endpoint https://h:1 --cacert /nowhere/x":                                              "reading a file that a flag names: open /nowhere/x: no such file or directory",
		export + "--endpoint https://h:1 --cacert " + garbage + " --cert " + garbage + " --key " + garbage: "--cacert: there is no certificate in PEM",
		export + "--core-endpoint https://h:1":                                                             "--core-cacert: there is no certificate in PEM",
		export + "--core-endpoint h:1":                                                                     `"h:1" is not the URL of an etcd: write https://HOST:PORT`,
		export + "--core-endpoint https://h":                                                               `"https://h" is not the URL of an etcd: write https://HOST:PORT`,
		export + "--endpoint http://192.0.2.1:2379":                                                        `"http://192.0.2.1:2379" is without encryption, which is allowed on this machine only: write https://HOST:PORT`,
		export + "--core-endpoint http://localhost:1,https://h:1":                                          "some endpoints are https and some are http: give endpoints of one kind",
		export + "--endpoint http://127.0.0.1:1":                                                           "connecting to http://127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused",
		export + "--kubeconfig /nowhere/x":                                                                 "reading the kubeconfig, pass --kubeconfig or --context to choose another: ",
	} {
		target := filepath.Join(dir, "never")
		code, stdout, stderr := run(t, strings.Fields(strings.Replace(args, "FILE", target, 1)))
		if code != command.ExitError || stdout != "" || !strings.HasPrefix(stderr, "error: "+want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s%s\nwant error: %s", args, code, stdout, stderr, want)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*never*")); err != nil || len(left) > 0 {
			t.Fatalf("%s: %v is left", args, left)
		}
	}
}

// The requests of clients are measured through a proxy and at the core, with --yes only, and no key of them is left.
func TestEtcdCapacity(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	put(t, etcd.Client, "/a/x", "/other/secret")
	through := "--endpoint=http://" + tenantproxy.InProcess(t, etcd.Endpoint, "/a/", "a")
	direct := "--core-endpoint=" + etcd.Endpoint
	measure := func(more ...string) []string {
		return append([]string{"etcd", "capacity", "a", "--time=100ms"}, more...)
	}
	expect(t, command.ExitError, "", measure(through), "error: all tenants of the core notice the load, and there is no terminal to ask on: give --yes")
	expect(t, command.ExitError, "", measure(through, "--yes", "--time=1h"), "error: --time 1h0m0s is out of range: give 100ms to 10s")
	expect(t, command.ExitError, "", measure("--yes", "--endpoint=http://127.0.0.1:1"), "error: connecting to http://127.0.0.1:1: ")
	for _, way := range []struct{ flag, says string }{{through, "The tenant had "}, {direct, "The core did "}} {
		code, out, errs := runWith(t, "", measure(way.flag, "--yes")...)
		// 64 clients can be more than a slow machine serves in time, which is said in place of their rows.
		busy := strings.Contains(errs, "with 64 clients: a request took more than 5s: the core, or the way to it, is too busy to be measured")
		if wellDone := code == command.ExitOK; wellDone == busy || !strings.Contains(out, way.says) {
			t.Errorf("exit code %d:\n%s%s", code, out, errs)
		}
		for _, request := range []string{"get", "update", "create", "list"} {
			if n := strings.Count(out, "\n"+request+" "); n != 3 && !busy && !strings.Contains(out, "REQUEST: "+request) {
				t.Errorf("%d rows of %s, want 3:\n%s", n, request, out)
			}
		}
	}
	if got := dump(t, etcd, "/"); strings.Contains(got, "capacity") || !strings.Contains(got, "a/x=") {
		t.Errorf("the core has\n%s", got)
	}
}
