// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// life is one process of the operator: what it has written, and when it dies. A process that is killed reads and writes nothing more; one that dies
// after a write does not hear how it ended. It is asked at the two doors through which everything goes, that of the API server and that of the core.
type life struct {
	// dieAt is the number of the write at which it dies, 0 for none; after reports whether the write is made. What is refused, such as to make what is
	// there already, is not a write.
	dieAt int
	after bool
	// look is called after each write, before its answer is heard.
	look func(write string)

	mu     sync.Mutex
	writes []string
	dead   bool
}

// through carries a call out, if the process lives.
func (l *life) through(what string, writes bool, call func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if writes && !l.after && len(l.writes) == l.dieAt-1 {
		l.dead = true
	}
	if l.dead {
		return errDead
	}
	err := call()
	if err != nil || !writes {
		return err
	}
	l.writes = append(l.writes, what)
	if l.look != nil {
		l.look(what)
	}
	if len(l.writes) == l.dieAt {
		l.dead = true
		return errDead
	}
	return nil
}

// told returns what it wrote, and whether it died.
func (l *life) told() (writes []string, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.writes), l.dead
}

// mortal is a rig whose operator dies.
type mortal struct {
	certificate string        // of the proxies, at some point of a story
	patience    time.Duration // with the core, of processes that are born; 0 is the usual one
	*rig
	client client.Client
	relay  string // the URL of the core for the operator
	life   *life
	others []clientv3.LeaseID // leases of others in the core
	faults []string           // what was not as it must be at some instant

	mu  sync.Mutex // guards now
	now *life      // life, for the doors
}

// newMortal makes a rig; with auth the core has authentication on.
func newMortal(t *testing.T, cluster *cluster.Cluster, auth bool) *mortal {
	t.Helper()
	m := &mortal{rig: newRig(t, cluster)}
	if auth {
		m.enableAuth()
		// The operator's door to the core shows the administrator's certificate, so that no password is hashed at each connection.
		pair := m.authority.Issue(t, testkit.Leaf{CommonName: "root"})
		m.setSecret("core-admin", map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key})
	}
	config := actingAs(cluster, m.r.Settings.User)
	config.QPS, config.Burst = -1, 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return door{m, next} })
	var err error
	if m.client, err = client.New(config, client.Options{Scheme: m.operator.Scheme()}); err != nil {
		t.Fatal(err)
	}
	m.openCore()
	return m
}

// alive is the process of the moment.
func (m *mortal) alive() *life {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// born starts a process of the operator.
func (m *mortal) born(dieAt int, after bool) {
	m.t.Helper()
	if m.r.Core.client != nil {
		_ = m.r.Core.client.Close()
	}
	m.life = &life{dieAt: dieAt, after: after}
	m.mu.Lock()
	m.now = m.life
	m.mu.Unlock()
	timing := m.r.Timing
	timing.Resync = 1 << 60 // what a round returns is then when something is due
	settings := m.r.Settings
	settings.CoreURLs = []string{m.relay}
	m.r = New(Options{
		Reader: m.client, Client: m.client, Core: &Core{Patience: m.patience}, Clock: m.clock, Random: rand.Reader, Timing: timing, Settings: settings, AdminSecret: m.r.AdminSecret,
	})
}

// errRefused reports that the API server answered with an error, so that nothing was written.
var errRefused = errors.New("the API server refuses")

// door is the one to the API server.
type door struct {
	m    *mortal
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (d door) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	writes := r.Method != http.MethodGet && !strings.HasPrefix(r.URL.Path, "/apis/authentication.k8s.io/")
	err = d.m.alive().through(r.Method+" "+r.URL.Path, writes, func() error {
		answer, err = d.next.RoundTrip(r) //nolint:bodyclose // anyone who called closes it, or it is closed below
		if err == nil && answer.StatusCode >= http.StatusBadRequest {
			return errRefused
		}
		return err
	})
	if errors.Is(err, errRefused) {
		return answer, nil
	}
	if err != nil && answer != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	return answer, err
}

// openCore opens the door to the core: a relay that knows calls.
func (m *mortal) openCore() {
	m.t.Helper()
	pair := m.authority.Issue(m.t, testkit.Leaf{CommonName: "root"})
	core, err := grpc.NewClient(strings.TrimPrefix(m.etcd.Endpoint, "https://"), grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(pair.Client(m.t, m.authority))), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(testkit.Bytes{})))
	must.Do(m.t, err)
	handle := func(_ any, in grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(in)
		var request, answer []byte
		if err := in.RecvMsg(&request); err != nil {
			return err
		}
		md, _ := metadata.FromIncomingContext(in.Context())
		out := metadata.NewOutgoingContext(in.Context(), metadata.MD{"hasleader": md["hasleader"]})
		err := m.alive().through(method, changesCore(method), func() error { return core.Invoke(out, method, &request, &answer) })
		if errors.Is(err, errDead) {
			return status.Error(codes.Aborted, err.Error()) // a code after which clients do not try again
		}
		if err != nil {
			return err
		}
		return in.SendMsg(&answer)
	}
	own := m.authority.Issue(m.t, testkit.Leaf{})
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(own.Client(m.t))), grpc.ForceServerCodecV2(testkit.Bytes{}), grpc.UnknownServiceHandler(handle))
	listener := must.Get(new(net.ListenConfig).Listen(m.t.Context(), "tcp", "127.0.0.1:0")).Or(m.t)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	m.t.Cleanup(func() {
		if m.r.Core.client != nil {
			_ = m.r.Core.client.Close()
		}
		server.Stop()
		_ = core.Close()
		<-done
	})
	m.relay = "https://" + listener.Addr().String()
}

// changesCore says of a method of etcd whether it may write.
func changesCore(method string) bool {
	_, name, _ := strings.Cut(strings.TrimPrefix(method, "/etcdserverpb."), "/")
	return !slices.Contains([]string{"Range", "LeaseTimeToLive", "LeaseLeases", "UserGet", "UserList", "RoleGet", "RoleList", "AuthStatus", "Authenticate", "Status", "MemberList"}, name)
}

// fate says when a process dies: the n-th of a story, counted from 0; 0 for one that does not.
type fate func(process int) (dieAt int, after bool)

// settle reconciles with one process after the other until one comes to an end, and returns the time until something is due.
func (m *mortal) settle(name string, deaths *int, f fate) time.Duration {
	m.t.Helper()
	for range 200 {
		result := m.pass(name)
		writes, dead := m.life.told()
		switch {
		case dead:
			*deaths++
			at, after := f(*deaths)
			m.born(at, after)
			m.watch(name)
		case result.Failed:
			m.t.Fatalf("a round failed after %s: %s", strings.Join(writes, "\n"), m.conditions(name))
		case result.Next == 0 || result.Next > m.r.Timing.Poll:
			return result.Next
		}
	}
	m.t.Fatalf("EtcdStorage %s does not settle after %d deaths: %s", name, *deaths, m.conditions(name))
	return 0
}

// quiet makes sure that a new process finds nothing to write, to Kubernetes or to the core.
func (m *mortal) quiet(name string) {
	m.t.Helper()
	m.born(0, false)
	none := 0
	m.settle(name, &none, nil)
	if writes, _ := m.life.told(); len(writes) > 0 {
		m.t.Errorf("a second look writes %s", strings.Join(writes, ", "))
	}
}

// watch looks at what must hold at every instant after each write of the process.
func (m *mortal) watch(name string) {
	m.life.look = func(write string) {
		for _, problem := range m.broken(name) {
			m.faults = append(m.faults, fmt.Sprintf("after %s: %s", write, problem))
		}
	}
}

// tenantOf is a namespace with ConfigMaps and Secrets on which the operator has rights, two of each.
func (m *mortal) tenantOf() string {
	m.t.Helper()
	ns := m.tenant()
	m.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ca-2", Namespace: ns}})
	m.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "client-2", Namespace: ns}})
	verbs := []string{"get", "patch"}
	m.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "etcd-storage-2", Namespace: ns}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"ca-2"}, Verbs: verbs},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"client-2"}, Verbs: verbs},
	}})
	m.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "etcd-storage-2", Namespace: ns},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: m.r.Settings.User}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "etcd-storage-2"}})
	return ns
}
