// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/names"
)

// home is an address of the machines' network at which the tests' own servers are: it is the lab's, like all of them.
const home = "172.30.9.9"

// TestServices runs one lab for all that is asked of its network.
func TestServices(t *testing.T) {
	l := start(t)
	t.Run("relays", l.testRelays)
	if os.Geteuid() != 0 {
		t.Skip("only root enters the lab's network from outside")
	}
	t.Run("API server", l.testAPIServer)
	t.Run("Service", l.testService)
	t.Run("aggregation", l.testAggregation)
	t.Run("killed", l.testKilled)
}

// testRelays: everything that the lab says of itself is true on the outside, too.
func (l *lab) testRelays(t *testing.T) {
	var described folder.Lab
	if err := folder.ReadJSON(l.LabFile(), &described); err != nil {
		t.Fatal(err)
	}
	addresses := 0
	for _, p := range described.Processes {
		for _, address := range p.Addresses {
			addresses++
			c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // whoever answers, answers
			if err != nil && !strings.Contains(err.Error(), "certificate") {
				t.Errorf("%s at %s: %v", p.Name, address, err)
				continue
			}
			if c != nil {
				_ = c.Close()
			}
		}
	}
	if addresses < 4 {
		t.Errorf("only %d addresses in lab.json: %+v", addresses, described.Processes)
	}
	if _, err := l.client().CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{}); err != nil {
		t.Errorf("kubeconfig on the outside: %v", err)
	}
}

// testAPIServer: pods find the API server by its Service, and its certificate is right there.
func (l *lab) testAPIServer(t *testing.T) {
	config := l.config()
	config.Host = "https://kubernetes.default.svc"
	config.Dial = l.dial
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the API server by its Service's name", func() error {
		_, err := client.Discovery().ServerVersion()
		return err
	})
	slice, err := client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != blueprint.ControlPlaneAddress {
		t.Errorf("its endpoints are %+v, %v", slice, err)
	}
	if addresses, err := l.lookup(t, "kubernetes.default.svc.cluster.local."); err != nil || !slices.Equal(addresses, []string{blueprint.APIServerService}) {
		t.Errorf("its name stands for %v, %v", addresses, err)
	}
}

// dial connects in the lab's network, by name or address.
func (l *lab) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		addresses, err := l.lookup(l.t, host+"."+names.Domain+".")
		if err != nil {
			return nil, err
		}
		host = addresses[0]
	}
	err = l.inside(func() error {
		c, err = (&net.Dialer{Timeout: patience}).DialContext(ctx, network, net.JoinHostPort(host, port))
		return err
	})
	return c, err
}

// lookup asks the lab's server of names.
func (l *lab) lookup(t *testing.T, name string) ([]string, error) {
	t.Helper()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return l.dial(ctx, network, names.Address().String())
	}}
	return resolver.LookupHost(t.Context(), name)
}

// listen listens in the lab's network, at home.
func (l *lab) listen(t *testing.T) (listener net.Listener, port int32) {
	t.Helper()
	if err := l.inside(func() (err error) {
		listener, err = net.Listen("tcp4", home+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener, int32(listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
}

// expose makes a Service without selector and the EndpointSlice of a server at home.
func (l *lab) expose(t *testing.T, name string, port int32) (address string) {
	t.Helper()
	client, protocol, portName := l.client(), corev1.ProtocolTCP, ""
	service, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{home}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service.Spec.ClusterIP
}

// testService: a Service leads to its endpoints while it has some, by address and by name; a name that is gone is gone.
func (l *lab) testService(t *testing.T) {
	listener, port := l.listen(t)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			content, _ := io.ReadAll(c)
			_, _ = fmt.Fprintf(c, "you said %s", content)
			_ = c.Close()
		}
	}()
	address := net.JoinHostPort(l.expose(t, "parrot", port), "443")
	await(t, "an answer from the Service", func() error {
		c, err := l.dial(t.Context(), "tcp4", "parrot.default.svc:443")
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, "hello"); err != nil {
			return err
		}
		_ = c.(*net.TCPConn).CloseWrite()
		content, err := io.ReadAll(c)
		if err == nil && string(content) != "you said hello" {
			err = fmt.Errorf("it says %q", content)
		}
		return err
	})
	client := l.client()
	if err := client.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "parrot-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "a refusal without endpoints", func() error {
		c, err := l.dial(t.Context(), "tcp4", address)
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	if err := client.CoreV1().Services("default").Delete(t.Context(), "parrot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the name", func() error {
		addresses, err := l.lookup(t, "parrot.default.svc.cluster.local.")
		if failed, ok := errors.AsType[*net.DNSError](err); !ok || !failed.IsNotFound {
			return fmt.Errorf("it stands for %v, %w", addresses, err)
		}
		return nil
	})
}

// testAggregation: the API server reaches an extension of itself by its Service.
func (l *lab) testAggregation(t *testing.T) {
	listener, port := l.listen(t)
	certificate, err := tls.LoadX509KeyPair(l.Certificate("kube-apiserver"), l.Key("kube-apiserver"))
	if err != nil {
		t.Fatal(err)
	}
	group := map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "toys.example.com/v1", "resources": []any{}}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == "/apis/toys.example.com/v1" {
				_ = json.NewEncoder(w).Encode(group)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]string{"user": r.Header.Get("X-Remote-User"), "path": r.URL.Path})
		}),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	l.expose(t, "toys", port)
	api := l.rest(t)
	registration := `{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.toys.example.com"}, "spec": {
		"group": "toys.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10, "insecureSkipTLSVerify": true,
		"service": {"namespace": "default", "name": "toys"}}}`
	if err := api.Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").SetHeader("Content-Type", "application/json").
		Body([]byte(registration)).Do(t.Context()).Error(); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	await(t, "the extension's answer", func() error {
		content, err := api.Get().AbsPath("/apis/toys.example.com/v1/bricks").DoRaw(t.Context())
		if err == nil && string(content) != `{"path":"/apis/toys.example.com/v1/bricks","user":"mooring-lab:admin"}`+"\n" {
			err = fmt.Errorf("it says %q", content)
		}
		return err
	})
}

func (l *lab) rest(t *testing.T) rest.Interface {
	t.Helper()
	return l.client().Discovery().RESTClient()
}

// testKilled: Services work again once the process that carries them is back.
func (l *lab) testKilled(t *testing.T) {
	before := l.state().Identities[blueprint.Services]
	l.run("kill", blueprint.Services)
	await(t, "another process", func() error {
		if now := l.state().Identities[blueprint.Services]; now == before || now.PID == 0 {
			return errors.New("it is not there")
		}
		return nil
	})
	await(t, "the API server by its Service", func() error {
		c, err := l.dial(t.Context(), "tcp4", "kubernetes.default.svc:443")
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}
