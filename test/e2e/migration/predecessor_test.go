// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package migration

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// oldAccount is the service account, and the Deployment, of kube-calico-controller's manifest.
const oldAccount = "kube-calico-controller"

// oldFlags are all flags of kube-calico-controller 0.0.3 and of the glog in it, each with a value that it took.
func oldFlags() map[string]string {
	return map[string]string{
		"-kubeconfig": "/etc/kubeconfig", "-master": "https://192.0.2.1", "-domain": "example.com", "-syncperiod": "300", "-dryrun": "true",
		"-v": "2", "-logtostderr": "true", "-alsologtostderr": "false", "-stderrthreshold": "ERROR", "-vmodule": "controller=2",
		"-log_dir": "/tmp", "-log_backtrace_at": "main.go:1",
	}
}

// The old manifest with another image, in a Pod, does nothing until it has the rights that the page gives it, and then does the old one's work;
// and back.
func TestFromKubeCalicoControllerAndBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := workers("a", 7)
	s.join(m[:5]...)
	live := s.dump()
	for key := range s.live[m[4].node].owned {
		delete(live, key)
	}
	s.destroy(m[4]) // before anything of ours has run, as the old one's bugs leave it
	token := s.token(oldAccount)
	s.grantAsTheOldManifest()
	manifest := func(args ...string) *testkit.Process {
		return s.inPod(token, []string{"ETCD_ENDPOINTS=" + s.etcd.Endpoint}, testkit.Binary(t, "calico-node-sync"), append([]string{
			"-logtostderr=true", "-v=1", "-syncperiod=1", "-domain=.example.com", "-events-deployment", oldAccount, // as its args could be
			"-metrics-bind-address=0", "-health-probe-bind-address=0", "-round-interval=1s", // the ports would be this machine's
		}, args...)...)
	}

	t.Log("only the image changed")
	revision := s.etcd.Revision(t)
	p := manifest("-grace-period=0s")
	s.says(p, "forbidden")
	s.says(p, "will try again")
	p.Stop()
	if now := s.etcd.Revision(t); now != revision {
		t.Errorf("%d writes without the rights that the page names, want none", now-revision)
	}

	t.Log("with the rights")
	s.runFromPage("kubectl -n kube-system apply")
	p = manifest()
	s.says(p, `"gate":"grace","host":"a-4"`)
	p.Stop()
	if diff := cmp.Diff(live, less(s.dump(), &up{owned: s.lost(live)})); diff != "" {
		t.Errorf("what lives has changed:\n%s", diff)
	}

	t.Log("a shorter grace period, since this is a test")
	p = manifest("-grace-period=1s")
	s.becomes(live, "nothing but what belongs to machines that live")
	s.replace(m[5], m[0])
	s.says(p, "remove Calico Node a-0")
	p.Stop()

	t.Log("dry run")
	p = manifest("-grace-period=1s", "-dryrun")
	s.says(p, `"writes":false`)
	want := s.without(m[1])
	revision, traces := s.etcd.Revision(t), s.left()
	s.destroy(m[1])
	s.says(p, "remove Calico Node a-1")
	p.Stop()
	if now := s.etcd.Revision(t); now != revision || !cmp.Equal(traces, s.left()) {
		t.Errorf("%d writes by a dry run, and in its namespace %v, was %v", now-revision, s.left(), traces)
	}
	p = manifest("-grace-period=1s", "-leader-elect")
	s.becomes(want, "nothing but what belongs to machines that live")

	t.Log("without a journal it needs no rights on all ConfigMaps")
	p.Stop()
	roles := s.api.Client.RbacV1().Roles(s.namespace)
	role, err := roles.Get(t.Context(), "calico-node-sync", metav1.GetOptions{})
	s.must(err)
	before := len(role.Rules)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Verbs, "delete") })
	if len(role.Rules) != before-1 {
		t.Errorf("%d of its rules let it delete something, the page names one", before-len(role.Rules))
	}
	_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	s.must(err)
	p = manifest("-grace-period=1s", "-leader-elect", "-journal=none")
	want = s.without(m[2])
	s.destroy(m[2])
	s.becomes(want, "nothing but what belongs to machines that live")

	t.Log("the way back")
	p.Stop()
	s.settle()
	if diff := cmp.Diff(want, s.dump()); diff != "" {
		t.Errorf("after the end:\n%s", diff)
	}
	var names []string
	for _, u := range s.live {
		names = append(names, u.node)
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, s.calicoNodes()); diff != "" {
		t.Errorf("the old controller would see other Calico Nodes than there are machines (-machines +Calico Nodes):\n%s", diff)
	}
	s.onlyKnownTraces()
	s.runFromPage("kubectl -n kube-system delete")
	for name := range s.left() {
		t.Errorf("%s is left after the page's clean-up", name)
	}
}

// lost are the keys of the datastore that are not in content.
func (s *site) lost(content map[string]string) map[string]bool {
	s.t.Helper()
	out := map[string]bool{}
	for key := range s.dump() {
		if _, there := content[key]; !there {
			out[key] = true
		}
	}
	return out
}

// grantAsTheOldManifest gives the account what kube-calico-controller's ClusterRole gives it.
func (s *site) grantAsTheOldManifest() {
	s.t.Helper()
	ctx, name := s.t.Context(), oldAccount+"-"+s.namespace
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}}},
	}
	_, err := s.api.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	s.must(err)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: oldAccount}},
	}
	_, err = s.api.Client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	s.must(err)
}

// run runs calico-node-sync with nothing of our environment and returns its exit code and what it said.
func run(t *testing.T, env []string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.Binary(t, "calico-node-sync"), args...)
	cmd.Env = append(env, "HOME="+t.TempDir())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// Every flag that the old one had stands in the page's table and is taken, in each way of writing it. A wrong --mode ends the program after it has
// read its flags.
func TestEveryOldFlagIsTaken(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, row := range table(t, "### Flags and variables") {
		for _, word := range quotedIn(row[0]) {
			if strings.HasPrefix(word, "-") {
				named[word] = true
			}
		}
	}
	for flag, value := range oldFlags() {
		if !named[flag] {
			t.Errorf("the page does not name %s", flag)
		}
		delete(named, flag)
		ways := [][]string{{flag + "=" + value}, {"-" + flag + "=" + value}, {flag, value}, {"-" + flag, value}}
		if flag == "-v" {
			ways = [][]string{{"-v=" + value}, {"-v", value}}
		}
		if value == "true" || value == "false" {
			ways = [][]string{{flag}, {"-" + flag}, {flag + "=" + value}}
		}
		for _, way := range ways {
			code, out := run(t, nil, append(way, "--mode=nonsense")...)
			if code != 1 || !strings.HasPrefix(out, `error: --mode "nonsense" is unknown`) {
				t.Errorf("%q: exit code %d and %q", way, code, out)
			}
		}
	}
	for flag := range named {
		t.Errorf("the page names %s, which the old controller did not have", flag)
	}
	if code, out := run(t, nil, "-syncperiod=0"); code != 1 || !strings.Contains(out, "at least 1") {
		t.Errorf("-syncperiod=0: exit code %d and %q", code, out)
	}
}

// The variables of the page's table do what it says of them.
func TestEveryOldVariableIsTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.join(worker("v-0"))
	tlsEndpoint, caFile := s.api.Etcd(t)
	here, there := "ETCD_ENDPOINTS="+s.etcd.Endpoint, "ETCD_ENDPOINTS="+tlsEndpoint
	flags := []string{"plan", "-kubeconfig", s.api.Kubeconfig}
	cases := map[string]struct {
		env  []string
		code int
		want string
	}{
		"plain":                          {[]string{here}, 2, "record that this datastore belongs to the cluster"},
		"with CALICO_":                   {[]string{"CALICO_" + here}, 2, "record that this datastore belongs to the cluster"},
		"no endpoint":                    {nil, 1, "no datastore is named"},
		"ETCD_AUTHORITY and ETCD_SCHEME": {[]string{"ETCD_AUTHORITY=127.0.0.1:2379", "ETCD_SCHEME=http"}, 1, "no datastore is named"},
		"DATASTORE_TYPE etcdv2":          {[]string{here, "DATASTORE_TYPE=etcdv2"}, 1, "must be etcdv3 or kubernetes"},
		"a CA file":                      {[]string{there, "ETCD_CA_CERT_FILE=" + caFile}, 1, "etcd refuses our client certificate"},
		"a CA file with CALICO_":         {[]string{there, "CALICO_ETCD_CA_CERT_FILE=" + caFile}, 1, "etcd refuses our client certificate"},
		"no CA file":                     {[]string{there}, 1, "unknown authority"},
		"the system's CAs":               {[]string{there, "SSL_CERT_FILE=" + caFile}, 1, "etcd refuses our client certificate"},
		"a certificate":                  {[]string{there, "ETCD_CA_CERT_FILE=" + caFile, "ETCD_CERT_FILE=/nowhere"}, 1, "ETCD_CERT_FILE"},
		"a key":                          {[]string{there, "ETCD_CA_CERT_FILE=" + caFile, "CALICO_ETCD_KEY_FILE=/nowhere"}, 1, "ETCD_KEY_FILE"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := run(t, c.env, flags...)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("got exit code %d and %q, want %d and %q", code, out, c.code, c.want)
			}
		})
	}
	t.Run("-master overrides the kubeconfig's", func(t *testing.T) {
		t.Parallel()
		content, err := os.ReadFile(s.api.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(elsewhere, bytes.ReplaceAll(content, []byte(s.api.Config.Host), []byte("https://127.0.0.1:1")), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out := run(t, []string{here}, "plan", "-kubeconfig", elsewhere); code != 1 {
			t.Errorf("with a wrong server: exit code %d and %q, want 1", code, out)
		}
		if code, out := run(t, []string{here}, "plan", "-kubeconfig", elsewhere, "-master", s.api.Config.Host); code != 2 {
			t.Errorf("with -master: exit code %d and %q, want 2", code, out)
		}
	})
}

// An etcd that knows users takes the two variables, and nothing without them.
func TestTheUserOfEtcdIsTaken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.join(worker("u-0"))
	ctx, auth := t.Context(), clientv3.NewAuth(s.etcd.Client)
	for _, err := range []error{
		second(auth.RoleAdd(ctx, "root")), second(auth.UserAdd(ctx, "root", "secret")), second(auth.UserGrantRole(ctx, "root", "root")),
		second(auth.AuthEnable(ctx)),
	} {
		s.must(err)
	}
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.etcd.Endpoint}, Username: "root", Password: "secret", Logger: zap.NewNop()})
	s.must(err)
	defer func() {
		// The next test gets this etcd as it was.
		s.must(errors.Join(second(root.AuthDisable(ctx)), second(auth.UserDelete(ctx, "root")), second(auth.RoleDelete(ctx, "root")), root.Close()))
	}()
	for password, want := range map[string]int{"secret": 2, "wrong": 1, "": 1} {
		env := []string{"ETCD_ENDPOINTS=" + s.etcd.Endpoint, "ETCD_USERNAME=root", "CALICO_ETCD_PASSWORD=" + password}
		if code, out := run(t, env, "plan", "-kubeconfig", s.api.Kubeconfig); code != want {
			t.Errorf("password %q: exit code %d and %q, want %d", password, code, out, want)
		}
	}
}

func second[T any](_ T, err error) error { return err }
