// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// adminToken is the password of the only user of an API server that lives as long as a test, on loopback.
const adminToken = "administrator"

// An APIServer is a real kube-apiserver without controllers, or another API server, whose etcd is of the test's choosing.
type APIServer struct {
	*testkit.Process
	// Config is the administrator's; copy it before changing it.
	Config *rest.Config
	// Client is the administrator's client.
	Client kubernetes.Interface
}

// NewAPIServer starts a kube-apiserver on an etcd and waits until it is ready.
func NewAPIServer(tb testing.TB, etcd string) *APIServer {
	tb.Helper()
	dir := tb.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		must.Do(tb, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	accounts := testkit.NewAuthority(tb, "nobody").Issue(tb, testkit.Leaf{})
	key := file("accounts.key", string(accounts.Key))
	s := startAPIServer(tb, testkit.APIServer(tb), dir,
		"--etcd-servers="+etcd, "--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+file("accounts.pub", publicKey(tb, accounts)), "--service-account-signing-key-file="+key,
		"--token-auth-file="+file("tokens.csv", adminToken+",admin,1,system:masters\n"), "--authorization-mode=RBAC", "--allow-privileged=true",
		"--event-ttl=1h", "--etcd-compaction-interval=2s", "--shutdown-watch-termination-grace-period=500ms")
	LogVersion(tb, s.Client)
	return s
}

// startAPIServer starts a program built on k8s.io/apiserver, with its certificate and log in a folder, and waits until it is ready.
func startAPIServer(tb testing.TB, command []string, dir string, flags ...string) *APIServer {
	tb.Helper()
	address := testkit.FreeAddress(tb)
	_, port, err := net.SplitHostPort(address)
	must.Do(tb, err)
	args := append(slices.Clone(command[1:]), flags...)
	process := testkit.Start(tb, filepath.Join(dir, "log"), nil, command[0],
		append(args, "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+dir, "--profiling=false")...)
	tb.Cleanup(process.Kill)
	s := &APIServer{Process: process}
	s.Config = &rest.Config{
		Host: "https://" + address, BearerToken: adminToken, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // its certificate is of its own making, and it is on loopback
	}
	s.Client = kubernetes.NewForConfigOrDie(Protobuf(s.Config))
	s.WaitReady(tb)
	return s
}

// WaitReady waits until it says that it is ready.
func (s *APIServer) WaitReady(tb testing.TB) {
	tb.Helper()
	testkit.Eventually(tb, "the API server to be ready", func() string {
		select {
		case <-s.Done():
			tb.Fatalf("the API server ended:\n%s", s.Output())
		default:
		}
		body, err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(tb.Context())
		if err != nil {
			return err.Error() + ": " + string(body)
		}
		return ""
	})
}

// publicKey is the public key of a pair, as kube-apiserver reads it.
func publicKey(tb testing.TB, pair testkit.Pair) string {
	tb.Helper()
	block, _ := pem.Decode(pair.Cert)
	cert := must.Get(x509.ParseCertificate(block.Bytes)).Or(tb)
	der := must.Get(x509.MarshalPKIXPublicKey(cert.PublicKey)).Or(tb)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}
