// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// stage is the API server on which one world after the other is written.
type stage struct {
	*testing.T
	etcd       *testkit.Etcd
	server     *controlplane.APIServer
	kubeconfig string
	// flags are given to every view, such as as whom it is run.
	flags []string
	// written is what is in etcd, by key.
	written map[string]string
	world   *world
	// followed are the commands of next steps that were run.
	followed map[string]bool
	// ahead is by how much the clocks of the cluster are ahead of this machine's.
	ahead time.Duration
	api   atomic.Pointer[http.Handler]
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// snapshotKind is a kind of the external snapshotter, as far as it is read.
func snapshotKind(kind, plural string) *apiextensionsv1.CustomResourceDefinition {
	keep := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:        plural + ".snapshot.storage.k8s.io",
			Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "snapshot.storage.k8s.io", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
				},
			}},
		},
	}
}

func newStage(t *testing.T) *stage {
	t.Helper()
	for _, name := range []string{
		"DATASTORE_TYPE", "CALICO_DATASTORE_TYPE", "ETCD_ENDPOINTS", "CALICO_ETCD_ENDPOINTS", "DO_ACCESS_TOKEN_FILE",
	} {
		t.Setenv(name, "")
	}
	s := &stage{T: t, etcd: testkit.NewEtcd(t), written: map[string]string{}, followed: map[string]bool{}}
	s.server = controlplane.NewAPIServer(t, s.etcd.Endpoint)
	config := s.server.Config
	kinds := append(controlplane.CalicoCRDs(t), controlplane.OwnKind(t, "etcdstorages"),
		controlplane.OwnKind(t, "routereflectortopologies"), snapshotKind("VolumeSnapshotContent", "volumesnapshotcontents"),
		snapshotKind("VolumeSnapshotClass", "volumesnapshotclasses"))
	(&controlplane.Cluster{Config: config, Client: s.server.Client}).InstallCRDs(t, kinds...)
	s.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	s.must(os.WriteFile(s.kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: truth
contexts: [{name: truth, context: {cluster: truth, user: admin}}]
clusters: [{name: truth, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: %q}}]
`, config.Host, config.BearerToken), 0o600))
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*s.api.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)
	t.Setenv("DO_OVERRIDE_URL", api.URL)
	return s
}

// set makes a world the one that the API server and DigitalOcean's simulator have.
func (s *stage) set(w *world) {
	s.Helper()
	s.world = w
	handler := w.cloud.Handler()
	s.api.Store(&handler)
	s.Setenv("DO_ACCESS_TOKEN", w.token)
	want := map[string]string{}
	for key, o := range w.objects {
		want[key] = w.encoded(o)
	}
	var changes []clientv3.Op
	for key, text := range want {
		if s.written[key] != text {
			changes = append(changes, clientv3.OpPut(key, text))
		}
	}
	for key := range s.written {
		if want[key] == "" {
			changes = append(changes, clientv3.OpDelete(key))
		}
	}
	s.written = want
	for chunk := range slices.Chunk(changes, 100) {
		_, err := s.etcd.Client.Txn(s.Context()).Then(chunk...).Commit()
		s.must(err)
	}
}

// beat renews the Leases of those that work.
func (s *stage) beat() {
	s.Helper()
	for name := range s.world.beating {
		namespace, name, _ := strings.Cut(name, "/")
		for key := range s.written {
			if key != "/registry/leases/"+namespace+"/"+name {
				continue
			}
			at := metav1.NewMicroTime(time.Now().Add(s.ahead))
			s.world.leaseOf(namespace, name).Spec.RenewTime = &at
			s.written[key] = s.world.encoded(s.world.leaseOf(namespace, name))
			_, err := s.etcd.Client.Put(s.Context(), key, s.written[key])
			s.must(err)
		}
	}
}

// ask asks every view about the world; explain is asked about the parts.
func (s *stage) ask(explained ...part) (answers []*answer) {
	s.Helper()
	for _, view := range []func() *answer{s.status, s.doctor, s.agreement, s.volumes, s.version, s.page} {
		s.beat()
		answers = append(answers, view())
	}
	for _, p := range explained {
		if slices.Contains(shows(p.kind), "explain") {
			answers = append(answers, s.explain(p))
		}
	}
	return answers
}

// TestFaultWalk is the walk.
func TestFaultWalk(t *testing.T) {
	s := newStage(t)
	start := time.Now()
	s.set(healthy(t, start))
	answers := s.ask(parts()...)
	for _, a := range answers {
		if a.code != 0 {
			t.Errorf("nothing is at fault, and %s ends with %d: %s%s", a.view, a.code, a.errs, a.out)
		}
	}
	for _, lie := range judge(broken{}, answers) {
		t.Errorf("nothing is at fault: %s", lie)
	}
	if t.Failed() {
		return
	}
	var table strings.Builder
	tried, lying := 0, 0
	for i, f := range faults() {
		if testing.Short() && i%3 != int(seed())%3 {
			continue
		}
		if only := os.Getenv("MOORING_TRUTH"); only != "" && !regexp.MustCompile(only).MatchString(f.name) {
			continue
		}
		w := healthy(t, start)
		f.make(w)
		s.set(w)
		answers := s.ask(slices.Concat([]part{f.part}, f.affects, f.more)...)
		lies := append(judge(f.broken, answers), s.follow(f, answers)...)
		tried++
		lying += min(1, len(lies))
		table.WriteString(line(f, answers, lies))
		switch why := left()[f.name]; {
		case why != "" && len(lies) == 0:
			t.Errorf("%s: nothing lies any more: take it off what is left", f.name)
		case why == "" && len(lies) > 0:
			t.Errorf("%s:\n  %s", f.name, strings.Join(lies, "\n  "))
		}
	}
	people := []func() (string, []string){s.forbidden, s.early, s.late, s.frozen, s.stuck, s.slow, s.gone}
	s.set(healthy(t, start))
	for i, r := range rights() {
		if !testing.Short() || i%3 == int(seed())%3 {
			people = append([]func() (string, []string){func() (string, []string) { return s.partial(r) }}, people...)
		}
	}
	for _, f := range people {
		name, lies := f()
		tried++
		lying += min(1, len(lies))
		fmt.Fprintf(&table, "%s%s\n", mark(lies), name)
		if len(lies) > 0 {
			t.Errorf("%s:\n  %s", name, strings.Join(lies, "\n  "))
		}
	}
	t.Logf("%s%d green lies and false reds in %d faults\n", table.String(), lying, tried)
}

// left are the faults of which views still lie, with what is missing.
func left() map[string]string {
	return map[string]string{}
}

// line is a row of the table: what each view says of the part.
func line(f fault, answers []*answer, lies []string) string {
	var cells []string
	for _, a := range answers {
		x, known := a.said[f.part]
		switch {
		case a.code == 1:
			cells = append(cells, a.view+" error")
		case known:
			cells = append(cells, a.view+" "+x.state.String())
		}
	}
	return fmt.Sprintf("%s%-64s %s\n", mark(lies), f.name, strings.Join(cells, ", "))
}

// mark shows a fault about which a view lies.
func mark(lies []string) string {
	if len(lies) > 0 {
		return "! "
	}
	return "  "
}

// seed is MOORING_SEED, by which a sample is chosen.
func seed() (n uint) {
	_, _ = fmt.Sscan(os.Getenv("MOORING_SEED"), &n) // without one it is 0
	return n
}
