// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeletapi is what the API server asks of a kubelet, as far as the lab has it: the logs of containers (k8s.io/kubernetes, pkg/kubelet/server).
//
//	GET /containerLogs/NAMESPACE/POD/CONTAINER?follow&previous&tailLines&limitBytes
//
// One server stands for all machines: each of their addresses is local in the lab's network. Its certificates are made as they are needed, one for each
// address, by an authority that nothing else in the lab trusts; only the API server has a client certificate of that authority.
package kubeletapi

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"
)

// Port is where kubelets listen, and what Nodes say.
const Port = "10250"

const (
	headerTimeout = 10 * time.Second
	// validity is longer than any lab runs; a certificate lives with the process.
	validity = 365 * 24 * time.Hour
	skew     = time.Hour
)

// Serve serves at the address until ctx ends. The files are the authority's.
func Serve(ctx context.Context, address, caFile, keyFile string, logs Logs) error {
	authority, err := loadAuthority(caFile, keyFile)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening for the API server: %w", err)
	}
	server := &http.Server{Handler: Handler(logs), ReadHeaderTimeout: headerTimeout, TLSConfig: authority.config()}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the API server: %w", err)
	}
	return nil
}

// authority makes certificates by the address that a connection came to.
type authority struct {
	cert *x509.Certificate
	key  crypto.PrivateKey

	mu     sync.Mutex // guards issued
	issued map[string]*tls.Certificate
}

func loadAuthority(caFile, keyFile string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(caFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of kubelets: %w", err)
	}
	return &authority{cert: pair.Leaf, key: pair.PrivateKey, issued: map[string]*tls.Certificate{}}, nil
}

func (a *authority) config() *tls.Config {
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			host, _, err := net.SplitHostPort(hello.Conn.LocalAddr().String())
			if err != nil {
				return nil, err
			}
			return a.issue(host)
		},
	}
}

func (a *authority) issue(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.issued[host]; known != nil {
		return known, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "kubelet"}, NotBefore: now.Add(-skew), NotAfter: now.Add(validity),
		IPAddresses: []net.IP{net.ParseIP(host)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("making a kubelet's certificate: %w", err)
	}
	issued := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	a.issued[host] = issued
	return issued, nil
}
