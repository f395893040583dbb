// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A Cluster is the Kubernetes API of one test.
type Cluster struct {
	// Config is the administrator's; copy it before changing it.
	Config *rest.Config
	// Client is the administrator's client.
	Client kubernetes.Interface

	server *server               // nil for a real one
	real   *controlplane.Cluster // nil for a simulated one
	file   struct {
		once sync.Once
		path string
	}
}

// New returns a simulated cluster that serves the built-in kinds and those of the definitions.
func New(tb testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) *Cluster {
	tb.Helper()
	c := &Cluster{server: newServer()}
	c.Config = &rest.Config{Host: "http://simulated.invalid", Transport: transport{c.server}, QPS: -1}
	c.Client = kubernetes.NewForConfigOrDie(c.Config)
	c.Serve(tb, crds...)
	return c
}

// shared are the clusters that the tests of one package share.
var shared struct { //nolint:gochecknoglobals // there is one test process per package
	mu      sync.Mutex
	cluster *Cluster
}

// Shared returns the package's cluster: simulated for a change, real in CI and at night. Tests that share it use names of their own.
func Shared(tb testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) *Cluster {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	switch {
	case shared.cluster != nil:
		shared.cluster.Serve(tb, crds...)
	case cases.Number(tb, 0, 1, 1) == 0:
		shared.cluster = New(tb, crds...)
	default:
		shared.cluster = On(tb, controlplane.Shared(tb), crds...)
	}
	return shared.cluster
}

// Real lends a real cluster that no other test uses meanwhile, and installs the definitions. What an earlier test has left is for this one to clear.
func Real(tb testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) *Cluster {
	tb.Helper()
	return On(tb, controlplane.Lend(tb), crds...)
}

// On is a real cluster that the test has by other means, with the definitions.
func On(tb testing.TB, on *controlplane.Cluster, crds ...*apiextensionsv1.CustomResourceDefinition) *Cluster {
	tb.Helper()
	c := &Cluster{Config: on.Config, Client: on.Client, real: on}
	c.Serve(tb, crds...)
	return c
}

// Lend returns a simulated cluster for a change, and a real one in CI and at night: see package cases.
func Lend(tb testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) *Cluster {
	tb.Helper()
	if cases.Number(tb, 0, 1, 1) == 0 {
		return New(tb, crds...)
	}
	return Real(tb, crds...)
}

// Own is Lend for a test that leaves what no other may find, such as kinds in another group.
func Own(tb testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) *Cluster {
	tb.Helper()
	if cases.Number(tb, 0, 1, 1) == 0 {
		return New(tb, crds...)
	}
	return On(tb, controlplane.New(tb), crds...)
}

// Simulated reports that no real kube-apiserver is behind it.
func (c *Cluster) Simulated() bool { return c.server != nil }

// Serve makes the kinds of more definitions served.
func (c *Cluster) Serve(tb testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) {
	tb.Helper()
	if c.real != nil {
		c.real.InstallCRDs(tb, crds...)
		return
	}
	for _, crd := range crds {
		must.Do(tb, c.server.serve(crd))
	}
}

// Redefine replaces the definition of a kind that is served. A real server goes by it some time later.
func (c *Cluster) Redefine(tb testing.TB, crd *apiextensionsv1.CustomResourceDefinition) {
	tb.Helper()
	if c.server != nil {
		must.Do(tb, c.server.serve(crd))
		return
	}
	crds := apiextensions.NewForConfigOrDie(c.Config).ApiextensionsV1().CustomResourceDefinitions()
	is := must.Get(crds.Get(tb.Context(), crd.Name, metav1.GetOptions{})).Or(tb)
	is.Spec = crd.Spec
	must.Get(crds.Update(tb.Context(), is, metav1.UpdateOptions{})).Or(tb)
}

// AllowPods makes the service account that pods of a namespace run as.
func (c *Cluster) AllowPods(tb testing.TB, namespace, account string) {
	tb.Helper()
	if c.real != nil {
		c.real.AllowPods(tb, namespace, account)
	}
}

// Forget lets the simulated server forget its history, as a compaction does: watches that are behind end, and lists begin again.
func (c *Cluster) Forget() { c.server.compact() }

// Kubeconfig returns a kubeconfig file of the administrator, for clients that take nothing else.
func (c *Cluster) Kubeconfig(tb testing.TB) string {
	tb.Helper()
	if c.real != nil {
		return c.real.Kubeconfig
	}
	c.file.once.Do(func() {
		server := httptest.NewServer(c.server)
		testkit.AtEnd(func() {
			server.CloseClientConnections()
			server.Close()
		})
		config := clientcmdapi.NewConfig()
		config.Clusters["simulated"] = &clientcmdapi.Cluster{Server: server.URL}
		config.Contexts["simulated"] = &clientcmdapi.Context{Cluster: "simulated"}
		config.CurrentContext = "simulated"
		c.file.path = filepath.Join(testkit.Folder(tb, "cluster-"), "kubeconfig")
		must.Do(tb, clientcmd.WriteToFile(*config, c.file.path))
	})
	return c.file.path
}

// transport carries requests to a server in the same process.
type transport struct{ http.Handler }

// RoundTrip implements http.RoundTripper. The body of a watch is written while it is read.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	if !isWatch(r) {
		recorder := httptest.NewRecorder()
		t.ServeHTTP(recorder, r)
		response := recorder.Result()
		response.Request = r // client-go reads it
		return response, nil
	}
	reader, writer := io.Pipe()
	stop := context.AfterFunc(r.Context(), func() { _ = reader.CloseWithError(context.Cause(r.Context())) }) //nolint:contextcheck // it is over
	w := &piped{header: http.Header{}, body: writer, started: make(chan struct{})}
	go func() {
		defer stop()
		t.ServeHTTP(w, r)
		w.start(http.StatusOK)
		_ = writer.Close()
	}()
	<-w.started
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status), Header: w.header, Body: reader, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: -1,
	}, nil
}

// piped is the response to a watch.
type piped struct {
	header  http.Header
	body    io.Writer
	once    sync.Once
	status  int
	started chan struct{}
}

func (p *piped) start(status int) {
	p.once.Do(func() {
		p.status = status
		close(p.started)
	})
}

// Header implements http.ResponseWriter.
func (p *piped) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *piped) WriteHeader(status int) { p.start(status) }

// Write implements http.ResponseWriter.
func (p *piped) Write(b []byte) (int, error) {
	p.start(http.StatusOK)
	return p.body.Write(b)
}
