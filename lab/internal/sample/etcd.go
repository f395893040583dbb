// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// askEtcd puts a value, if it is given one, and returns the one that is there then.
func askEtcd(r *http.Request) (string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	client, err := connect(ctx, r)
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	if r.Form.Has("put") {
		if _, err := client.Put(ctx, r.FormValue("name"), r.FormValue("put")); err != nil {
			return "", fmt.Errorf("putting: %w", err)
		}
	}
	answer, err := client.Get(ctx, r.FormValue("name"))
	if err != nil {
		return "", fmt.Errorf("getting: %w", err)
	}
	if len(answer.Kvs) == 0 {
		return "", errors.New("there is no such key")
	}
	return string(answer.Kvs[0].Value), nil
}

// listEtcd returns the keys with a prefix.
func listEtcd(r *http.Request) (string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	client, err := connect(ctx, r)
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	answer, err := client.Get(ctx, r.FormValue("prefix"), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return "", fmt.Errorf("listing: %w", err)
	}
	var out strings.Builder
	for _, kv := range answer.Kvs {
		out.Write(kv.Key)
		out.WriteByte('\n')
	}
	return out.String(), nil
}

// connect makes a client of the etcd that a request names.
func connect(ctx context.Context, r *http.Request) (*clientv3.Client, error) {
	config, err := tlsConfig(r.FormValue("ca"), r.FormValue("cert"), r.FormValue("key"))
	if err != nil {
		return nil, fmt.Errorf("reading certificates: %w", err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{r.FormValue("endpoint")}, TLS: config, DialTimeout: timeout, Context: ctx, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return client, nil
}

func tlsConfig(ca, cert, key string) (*tls.Config, error) {
	authorities, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s holds no certificate", ca)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
