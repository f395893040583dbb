// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// patience bounds one call; only a hang exceeds it.
const patience = 20 * time.Second

// running is the program as a process of its own.
type running struct {
	*testkit.Process
	// address serves the tenant, operations probes and metrics.
	address, operations string
}

// start runs the program and waits until it serves. Probes and metrics share a port.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	args = append(args, "--listen-address=127.0.0.1:0", "--health-address=127.0.0.1:0", "--metrics-address=127.0.0.1:0", "--log-format=json")
	p := &running{Process: testkit.Start(t, filepath.Join(t.TempDir(), "log"), []string{asProgram + "=1"}, os.Args[0], args...)}
	t.Cleanup(p.Kill)
	testkit.Eventually(t, "the proxy", func() string {
		select {
		case <-p.Done():
			t.Fatalf("it ended: %s", p.Output())
		default:
		}
		line := p.logged("Serving")
		if line == nil {
			return "it is not serving yet; its log: " + p.Output()
		}
		p.address, p.operations = fmt.Sprint(line["address"]), fmt.Sprint(line["operations"])
		return ""
	})
	return p
}

// logged returns the first line of the log with this message, nil if there is none.
func (p *running) logged(message string) map[string]any {
	for text := range strings.Lines(p.Output()) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == message {
			return line
		}
	}
	return nil
}

// get asks the endpoints for operations.
func (p *running) get(t *testing.T, path string) (int, string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.operations+path, nil)).Or(t)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// metric returns the value of a series, written as in the text format; 0 if it is not there.
func (p *running) metric(t *testing.T, series string) float64 {
	t.Helper()
	code, body := p.get(t, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", code, body)
	}
	testkit.CheckMetrics(t, Component, body)
	return valueOf(t, body, series)
}

func valueOf(t *testing.T, metrics, series string) float64 {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			v := must.Get(strconv.ParseFloat(strings.TrimSpace(value), 64)).Or(t)
			return v
		}
	}
	return 0
}

// awaitReady polls /readyz for this answer: "" stands for ready, else a part of the reason.
func (p *running) awaitReady(t *testing.T, want string) {
	t.Helper()
	testkit.Eventually(t, "/readyz", func() string {
		code, body := p.get(t, "/readyz")
		if want == "" && code == http.StatusOK || want != "" && code == http.StatusServiceUnavailable && strings.Contains(body, want) {
			return ""
		}
		return fmt.Sprintf("%d %s; log: %s", code, body, p.Output())
	})
}

// dial connects as a client does; nil is plaintext. Nothing is tried again.
func dial(t *testing.T, address string, config *tls.Config) *grpc.ClientConn {
	t.Helper()
	conn := must.Get(connect(address, config)).Or(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func connect(address string, config *tls.Config) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(), grpc.WithDisableRetry())
}

// read is one linearizable read.
func read(ctx context.Context, conn *grpc.ClientConn, key string) (*etcdserverpb.RangeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return etcdserverpb.NewKVClient(conn).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(key)})
}

func write(ctx context.Context, conn *grpc.ClientConn, key, value string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := etcdserverpb.NewKVClient(conn).Put(ctx, &etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(value)})
	return err
}

// plainCore are the flags for a core without TLS.
func plainCore(e *testkit.Etcd) []string {
	return []string{"--insecure-plaintext", "--core-endpoints=" + e.Endpoint}
}

// serveTLS are the flags for clients with TLS.
func serveTLS(f testkit.TLSFolder) []string {
	return []string{"--tls-cert-file=" + f.Cert(), "--tls-private-key-file=" + f.Key(), "--client-ca-file=" + f.CA()}
}

// coreTLS are the flags for a core with TLS.
func coreTLS(f testkit.TLSFolder, endpoint string) []string {
	return []string{"--core-endpoints=" + endpoint, "--core-ca-file=" + f.CA(), "--core-cert-file=" + f.Cert(), "--core-key-file=" + f.Key()}
}
