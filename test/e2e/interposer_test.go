// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// etcdWrites is the kind of all writes to etcd; those to the API server have their resource's name, such as "configmaps". rounds is not a
// kind of write, but can be counted and held all the same: the read of all Calico Nodes, with which every round begins.
const (
	etcdWrites = "etcd"
	rounds     = "rounds"
)

// interposer stands between one calico-node-sync and its two servers. It forwards everything, counts the writes of each kind, and holds a
// write for which a trap is laid until the test has said what becomes of it.
type interposer struct {
	// Kubeconfig and EtcdURL are what the product is given.
	Kubeconfig string
	EtcdURL    string

	// KubernetesAway cuts each request to the API server while it is true.
	KubernetesAway atomic.Bool

	mu    sync.Mutex // guards all below
	traps []*trap
	calls map[string]int
}

// trap waits for one write.
type trap struct {
	kind  string
	n     int
	left  int // how many writes of the kind until it springs, this one included
	after bool
	// Sprung is closed when the write is held: before its server has seen it, or when the server has answered and the product has not heard.
	Sprung chan struct{}
	// Write says what is held.
	Write string
	// Arrived is closed when the server has answered the write, if it went on its way.
	Arrived chan struct{}
	release chan bool
}

// Release lets the held write (or its answer) go on its way, or cuts the connection instead.
func (tr *trap) Release(goOn bool) { tr.release <- goOn }

// HasSprung reports whether the write has come.
func (tr *trap) HasSprung() bool {
	select {
	case <-tr.Sprung:
		return true
	default:
		return false
	}
}

// Lay sets a trap for the n-th write of a kind from now on, 1 being the next.
func (i *interposer) Lay(kind string, n int, after bool) *trap {
	tr := &trap{kind: kind, n: n, left: n, after: after, Sprung: make(chan struct{}), Arrived: make(chan struct{}), release: make(chan bool, 1)}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.traps = append(i.traps, tr)
	return tr
}

// Disarm takes a trap away that has not sprung.
func (i *interposer) Disarm(tr *trap) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.traps = slices.DeleteFunc(i.traps, func(other *trap) bool { return other == tr })
}

// String says where the trap is.
func (tr *trap) String() string {
	when := "before"
	if tr.after {
		when = "after"
	}
	return fmt.Sprintf("%s write %d of kind %s", when, tr.n, tr.kind)
}

// Writes is how many writes of each kind have come.
func (i *interposer) Writes() map[string]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := maps.Clone(i.calls)
	delete(out, rounds)
	return out
}

// Rounds is how many rounds have begun.
func (i *interposer) Rounds() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls[rounds]
}

// newInterposer stands between a product that has the token and the two servers. It lives as long as the test.
func newInterposer(t *testing.T, api *rest.Config, token, etcd string) *interposer {
	t.Helper()
	i := &interposer{calls: map[string]int{}}
	tlsConfig, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: api.CAFile, CAData: api.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	toAPI := &http.Transport{TLSClientConfig: tlsConfig}
	// With TLS, since client-go sends no token without.
	front := httptest.NewTLSServer(i.cutWhileAway(i.handler(mustParse(t, api.Host), toAPI, apiWrite)))
	t.Cleanup(front.Close)
	i.Kubeconfig = writeKubeconfig(t, front.URL, token, front.Certificate().Raw)

	var plainHTTP2 http.Protocols
	plainHTTP2.SetUnencryptedHTTP2(true)
	toEtcd := &http.Transport{Protocols: &plainHTTP2}
	etcdFront := httptest.NewUnstartedServer(i.handler(mustParse(t, etcd), toEtcd, etcdWrite))
	etcdFront.Config.Protocols = &plainHTTP2
	etcdFront.Start()
	t.Cleanup(etcdFront.Close)
	i.EtcdURL = etcdFront.URL
	return i
}

func (i *interposer) cutWhileAway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.KubernetesAway.Load() {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// writeKubeconfig writes a kubeconfig of a user with a token, and returns its path. The authority is a certificate in DER.
func writeKubeconfig(t *testing.T, server, token string, authority []byte) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority})
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["here"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "me"}
	config.CurrentContext = "here"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// handler forwards to a server. kindOf names what a request is and what it is about; an empty kind is of no interest.
func (i *interposer) handler(target *url.URL, way http.RoundTripper, kindOf func(r *http.Request, body []byte) (kind, about string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = target.Scheme, target.Host, target.Host, ""
		if r.Method == http.MethodGet {
			out.Body = nil
		} else {
			body, err := io.ReadAll(r.Body) // all of the product's calls have one message
			if err != nil {
				return
			}
			out.Body = io.NopCloser(bytes.NewReader(body))
			if kind, about := kindOf(r, body); kind != "" {
				i.forward(w, out, way, kind, about)
				return
			}
		}
		response, err := way.RoundTrip(out)
		answer(w, out, response, err)
	})
}

// forward forwards a request, unless the trap that it springs cuts it off.
func (i *interposer) forward(w http.ResponseWriter, out *http.Request, way http.RoundTripper, kind, about string) {
	tr := i.meet(kind, about)
	if tr != nil && !tr.after {
		tr.hold(out)
		out = out.WithContext(context.WithoutCancel(out.Context())) // what is under way arrives, whatever becomes of its sender
	}
	response, err := way.RoundTrip(out)
	if tr != nil {
		close(tr.Arrived)
	}
	if tr != nil && tr.after && err == nil {
		defer response.Body.Close()
		tr.hold(out)
	}
	answer(w, out, response, err)
}

// hold waits for the test's word, or for the end of the product.
func (tr *trap) hold(r *http.Request) {
	close(tr.Sprung)
	select {
	case goOn := <-tr.release:
		if !goOn {
			panic(http.ErrAbortHandler)
		}
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// meet counts a write and returns the trap that it springs, nil for none.
func (i *interposer) meet(kind, about string) *trap {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls[kind]++
	var sprung *trap
	for _, tr := range i.traps {
		if tr.kind != kind || tr.left == 0 {
			continue
		}
		if tr.left--; tr.left == 0 {
			tr.Write, sprung = about, tr
		}
	}
	return sprung
}

// answer passes on what the server said. An API server's headers go at once, since a watch may have nothing more to say for long; those of
// gRPC wait for the message, because a gRPC error is a single frame of headers that ends the stream.
func answer(w http.ResponseWriter, r *http.Request, response *http.Response, err error) {
	grpc := strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
	if err != nil && grpc {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "14") // Unavailable
		w.Header().Set("Grpc-Message", "the server behind the test is away")
		return
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	maps.Copy(w.Header(), response.Header)
	w.WriteHeader(response.StatusCode)
	flusher := http.NewResponseController(w)
	if !grpc {
		_ = flusher.Flush()
	}
	buffer := make([]byte, 32*1024)
	for {
		n, err := response.Body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
			_ = flusher.Flush()
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	for name, values := range response.Trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
}

// apiWrite names the resource that a request to the API server writes: what follows the namespace, or the version where there is none.
func apiWrite(r *http.Request, _ []byte) (kind, about string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	prefix := 3 // apis, group, version
	if parts[0] == "api" {
		prefix = 2
	}
	parts = parts[min(len(parts), prefix):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		parts = []string{r.URL.Path}
	}
	return parts[0], r.Method + " " + strings.Join(parts, "/")
}

// nodePrefix begins the keys of Calico's Nodes.
const nodePrefix = "/calico/resources/v3/projectcalico.org/nodes/"

// etcdWrite tells writes and the beginnings of rounds from other reads. A gRPC body is one byte, four for the length, and a protobuf
// message, of which only the field numbers matter here (etcd, api/etcdserverpb/rpc.proto).
func etcdWrite(r *http.Request, body []byte) (kind, about string) {
	if len(body) < 5 {
		return "", ""
	}
	switch message := body[5:]; r.URL.Path {
	case "/etcdserverpb.KV/Put", "/etcdserverpb.KV/DeleteRange":
		return etcdWrites, r.URL.Path + " " + string(firstField(message, 1))
	case "/etcdserverpb.KV/Txn":
		operations, read := operations(message)
		if len(operations) > 0 {
			return etcdWrites, strings.Join(operations, ", ")
		}
		if read == nodePrefix {
			return rounds, "reading all Calico Nodes"
		}
	}
	return "", ""
}

// operations are the puts and deletes of a TxnRequest (success = 2, failure = 3), and the key that it reads first.
func operations(txn []byte) (writes []string, read string) {
	for _, branch := range []int{2, 3} {
		for _, op := range messageFields(txn, branch) {
			for _, request := range messageFields(op, 2) { // request_put
				writes = append(writes, "put "+string(firstField(request, 1)))
			}
			for _, request := range messageFields(op, 3) { // request_delete_range
				writes = append(writes, "delete "+string(firstField(request, 1)))
			}
			for _, request := range messageFields(op, 1) { // request_range
				if read == "" {
					read = string(firstField(request, 1))
				}
			}
			for _, nested := range messageFields(op, 4) { // request_txn
				more, _ := operations(nested)
				writes = append(writes, more...)
			}
		}
	}
	return writes, read
}
