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
	"sync/atomic"
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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// deathStage is a stage whose operator dies. All its calls are seen: those to the API server, and by a relay those to
// the core.
type deathStage struct {
	*stage

	certificate string                          // of the proxies, at some point of a story
	patience    time.Duration                   // with the core, of operators that are started; 0 is the usual one
	config      *rest.Config                    // of the operator
	relay       string                          // the URL of the core for the operator
	others      []clientv3.LeaseID              // leases of others in the core
	faults      []string                        // what was not as it must be at some instant
	program     atomic.Pointer[cluster.Program] // of the operator that runs
}

// newDeathStage makes a stage; with auth the core has authentication on.
func newDeathStage(t *testing.T, cluster *cluster.Cluster, auth bool) *deathStage {
	t.Helper()
	m := &deathStage{stage: newStage(t, cluster)}
	if auth {
		m.enableAuth()
		// The relay to the core shows the administrator's certificate, so that no password is hashed at each connection.
		pair := m.authority.Issue(t, testkit.Leaf{CommonName: "root"})
		m.setSecret("core-admin", map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key})
	}
	m.config = actingAs(cluster, m.r.Settings.User)
	m.config.QPS, m.config.Burst = -1, 0
	m.openCore()
	return m
}

// start starts a new process of the operator.
func (m *deathStage) start(death cluster.Death) {
	m.t.Helper()
	if m.r.Core.client != nil {
		_ = m.r.Core.client.Close()
	}
	program := cluster.NewProgram(m.t, m.config, death)
	m.program.Store(program)
	options := client.Options{Scheme: m.operator.Scheme(), Mapper: m.operator.RESTMapper()}
	api := must.Get(client.New(program.Config(), options)).Or(m.t)
	timing := m.r.Timing
	timing.Resync = 1 << 60 // what a round returns is then when something is due
	settings := m.r.Settings
	settings.CoreURLs = []string{m.relay}
	m.r = New(Options{
		Reader: api, Client: api, Core: &Core{Patience: m.patience}, Clock: m.clock, Random: rand.Reader, Timing: timing,
		Settings: settings, AdminSecret: m.r.AdminSecret,
	})
}

// openCore starts the relay to the core.
func (m *deathStage) openCore() {
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
		call := http.MethodGet + " " + method
		if changesCore(method) {
			call = http.MethodPut + " " + method
		}
		err := m.program.Load().Call(call, func() error { return core.Invoke(out, method, &request, &answer) })
		if errors.Is(err, cluster.ErrDead) {
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

// fate says when a program dies: the n-th of a story, counted from 0.
type fate func(program int) cluster.Death

// settle reconciles with one program after the other until one comes to an end, and returns the time until something is
// due.
func (m *deathStage) settle(name string, deaths *int, f fate) time.Duration {
	m.t.Helper()
	for range 200 {
		result := m.pass(name)
		program := m.program.Load()
		switch {
		case program.Died():
			*deaths++
			m.start(f(*deaths))
			m.watch(name)
		case result.Failed:
			m.t.Fatalf("a round failed after %s: %s", strings.Join(program.Done(), "\n"), m.conditions(name))
		case result.Next == 0 || result.Next > m.r.Timing.Poll:
			return result.Next
		}
	}
	m.t.Fatalf("EtcdStorage %s does not settle after %d deaths: %s", name, *deaths, m.conditions(name))
	return 0
}

// quiet makes sure that a new program finds nothing to write, to Kubernetes or to the core.
func (m *deathStage) quiet(name string) {
	m.t.Helper()
	m.start(cluster.Death{})
	none := 0
	m.settle(name, &none, nil)
	if writes := m.program.Load().Done(); len(writes) > 0 {
		m.t.Errorf("a second look writes %s", strings.Join(writes, ", "))
	}
}

// watch looks at what must hold at every instant after each write of the program.
func (m *deathStage) watch(name string) {
	m.program.Load().Look(func(write string) {
		for _, problem := range m.broken(name) {
			m.faults = append(m.faults, fmt.Sprintf("after %s: %s", write, problem))
		}
	})
}

// tenantOf is a namespace with ConfigMaps and Secrets on which the operator has rights, two of each.
func (m *deathStage) tenantOf() string {
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
