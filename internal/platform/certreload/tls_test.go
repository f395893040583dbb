// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package certreload_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-dev/mooring/internal/platform/certreload"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// echo serves lines back over TLS until the test ends, and returns its address.
func echo(t *testing.T, config *tls.Config) string {
	t.Helper()
	listener := must.Get(tls.Listen("tcp", "127.0.0.1:0", config)).Or(t)
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		connections.Wait()
	})
	return listener.Addr().String()
}

// dial connects and makes sure by one exchange that the server has accepted the client, too.
func dial(t *testing.T, addr string, config *tls.Config) (*tls.Conn, error) {
	t.Helper()
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: config}
	raw, err := dialer.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn, ok := raw.(*tls.Conn)
	if !ok {
		return nil, errors.New("not a TLS connection")
	}
	if err := exchange(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func exchange(conn *tls.Conn) error {
	if _, err := io.WriteString(conn, "ping\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && line != "ping\n" {
		return fmt.Errorf("echo says %q", line)
	}
	return err
}

func mustDial(t *testing.T, addr string, config *tls.Config) *tls.Conn {
	t.Helper()
	conn := must.Get(dial(t, addr, config)).Or(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func mustReload(t *testing.T, r *certreload.Reloader) {
	t.Helper()
	if changed, err := r.Reload(); err != nil || !changed {
		t.Fatalf("Reload() = %v, %v", changed, err)
	}
}

func peerSerial(conn *tls.Conn) int64 {
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// A whole rotation, CA included, in the order in which it is done in life, under live connections.
func TestRotationUnderLiveConnections(t *testing.T) {
	t.Parallel()
	oldCA, newCA := newAuthority(t, "old"), newAuthority(t, "new")
	serverFiles, clientFiles := newFolder(t, oldCA.issue(t, 1), oldCA.pem), newFolder(t, oldCA.issue(t, 11), oldCA.pem)
	server := newReloader(t, serverFiles.files(), certreload.Options{})
	client := newReloader(t, clientFiles.files(), certreload.Options{})
	addr := echo(t, server.ServerConfig(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}))
	clientConfig := client.ClientConfig("localhost") // one value for the client's whole life
	clientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	first := mustDial(t, addr, clientConfig)

	// 1. Both sides trust both CAs. 2. Both sides get new leaves. 3. Both sides drop the old CA.
	serverFiles.put(t, "ca.crt", bundle(oldCA, newCA))
	clientFiles.put(t, "ca.crt", bundle(oldCA, newCA))
	mustReload(t, server)
	mustReload(t, client)
	if got := peerSerial(mustDial(t, addr, clientConfig)); got != 1 {
		t.Errorf("server presents %d before its rotation", got)
	}
	serverFiles.write(t, newCA.issue(t, 2), bundle(oldCA, newCA))
	mustReload(t, server)
	if got := peerSerial(mustDial(t, addr, clientConfig)); got != 2 {
		t.Errorf("server presents %d after its rotation", got)
	}
	clientFiles.write(t, newCA.issue(t, 12), newCA.pem)
	mustReload(t, client)
	serverFiles.put(t, "ca.crt", newCA.pem)
	mustReload(t, server)
	mustDial(t, addr, clientConfig)

	if err := exchange(first); err != nil {
		t.Errorf("the first connection died during the rotation: %v", err)
	}
	// Who stayed behind is refused, with a resumable session or without.
	clientFiles.write(t, oldCA.issue(t, 13), newCA.pem)
	mustReload(t, client)
	if _, err := dial(t, addr, clientConfig); err == nil {
		t.Error("the server accepts a client of the withdrawn CA")
	}
	clientFiles.write(t, newCA.issue(t, 14), oldCA.pem)
	mustReload(t, client)
	if _, err := dial(t, addr, clientConfig); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("the client's answer to a server of an unknown CA: %v", err)
	}
}

// Files are replaced one after the other, without any care, while connections are made: no handshake
// may ever see half of a rotation.
func TestHandshakesDuringCarelessRotation(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	f := newFolder(t, ca.issue(t, 1), ca.pem)
	r, reports := running(t, f.files(), certreload.Options{})
	addr := echo(t, r.ServerConfig(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}))
	pairs := make([]pair, 20)
	for i := range pairs {
		pairs[i] = ca.issue(t, int64(i+2))
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conn, err := dial(t, addr, r.ClientConfig("localhost"))
				if err != nil {
					t.Errorf("handshake: %v", err)
					return
				}
				_ = conn.Close()
			}
		})
	}
	for _, p := range pairs {
		f.write(t, p, ca.pem)
	}
	waitForSerial(t, r, reports, int64(len(pairs)+1))
	close(stop)
	clients.Wait()
}

func TestClientChecksTheServersName(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	r := newReloader(t, newFolder(t, ca.issue(t, 1), ca.pem).files(), certreload.Options{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = r.ServerConfig(&tls.Config{NextProtos: []string{"h2", "http/1.1"}})
	server.EnableHTTP2 = true
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must.Do(t, err)
	tests := map[string]struct{ name, host, want string }{
		"the dialed host name":        {"", "localhost", ""},
		"a configured name":           {"localhost", "127.0.0.1", ""},
		"a configured IP":             {"127.0.0.1", "127.0.0.1", ""},
		"an IP without a name":        {"", "127.0.0.1", "addressed by IP"},
		"another name":                {"other", "localhost", "not other"},
		"the wrong one of two names":  {"10.0.0.1", "localhost", "not 10.0.0.1"},
		"empty names are never valid": {"", "[::ffff:127.0.0.1]", "addressed by IP"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport := &http.Transport{TLSClientConfig: r.ClientConfig(tt.name), ForceAttemptHTTP2: true}
			t.Cleanup(transport.CloseIdleConnections)
			req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+tt.host+":"+port, nil)).Or(t)
			resp, err := transport.RoundTrip(req)
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want == "":
				if err := resp.Body.Close(); err != nil || resp.ProtoMajor != 2 {
					t.Errorf("close: %v, protocol %s", err, resp.Proto)
				}
			case err == nil:
				_ = resp.Body.Close()
				t.Error("the server is accepted")
			case !strings.Contains(err.Error(), tt.want):
				t.Errorf("error %q does not say %q", err, tt.want)
			}
		})
	}
}

func TestWithoutAKeyPair(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	f := newFolder(t, ca.issue(t, 1), ca.pem)
	server := newReloader(t, f.files(), certreload.Options{})
	onlyCA := newReloader(t, certreload.Files{CA: f.path("ca.crt")}, certreload.Options{})
	optional := echo(t, server.ServerConfig(&tls.Config{ClientAuth: tls.VerifyClientCertIfGiven}))
	mustDial(t, optional, onlyCA.ClientConfig("localhost"))
	required := echo(t, server.ServerConfig(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}))
	if _, err := dial(t, required, onlyCA.ClientConfig("localhost")); err == nil {
		t.Error("a client without a certificate is accepted")
	}
	if _, err := onlyCA.GetCertificate(nil); err == nil {
		t.Error("a server without a certificate has one")
	}
}

// handshake is a configuration for one handshake.
func handshake(r *certreload.Reloader, name string) *tls.Config {
	config, _ := r.HandshakeConfig(name)
	return config
}

// A configuration per handshake knows the server by IP address as well as by name, and takes the CA and the pair of the moment.
func TestHandshakeConfig(t *testing.T) {
	t.Parallel()
	oldCA, newCA := newAuthority(t, "old"), newAuthority(t, "new")
	serverFiles, clientFiles := newFolder(t, oldCA.issue(t, 1), oldCA.pem), newFolder(t, oldCA.issue(t, 11), oldCA.pem)
	server := newReloader(t, serverFiles.files(), certreload.Options{})
	client := newReloader(t, clientFiles.files(), certreload.Options{})
	addr := echo(t, server.ServerConfig(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}))
	for _, name := range []string{"127.0.0.1", "localhost"} {
		conn := mustDial(t, addr, handshake(client, name))
		if v := conn.ConnectionState().Version; v != tls.VersionTLS13 {
			t.Errorf("%s: version %x", name, v)
		}
	}
	for _, name := range []string{"127.0.0.2", "other"} {
		if _, err := dial(t, addr, handshake(client, name)); err == nil || !strings.Contains(err.Error(), "certificate is valid for") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	serverFiles.write(t, newCA.issue(t, 2), newCA.pem)
	mustReload(t, server)
	if _, err := dial(t, addr, handshake(client, "localhost")); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a server of another CA: got %v", err)
	}
	_, old := client.HandshakeConfig("localhost")
	if old != client.Current() {
		t.Error("it was not made of what there is")
	}
	clientFiles.write(t, newCA.issue(t, 12), newCA.pem)
	mustReload(t, client)
	mustDial(t, addr, handshake(client, "localhost"))
	if _, now := client.HandshakeConfig("localhost"); now != client.Current() || now == old {
		t.Error("what was reloaded is not told from what was there before")
	}
}
