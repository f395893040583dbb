// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// readTimeout bounds one reading of the datastore.
const readTimeout = 10 * time.Second

// connect connects to the etcd that holds Calico's data.
func connect(access blueprint.EtcdAccess) (*clientv3.Client, error) {
	authority, err := os.ReadFile(access.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of Calico's etcd: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(access.CertFile, access.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate for Calico's etcd: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: access.Endpoints, DialTimeout: readTimeout, Logger: zap.NewNop(),
		TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to Calico's etcd: %w", err)
	}
	return client, nil
}

// Read reads everything that Calico keeps in the etcd.
func Read(ctx context.Context, access blueprint.EtcdAccess) (Snapshot, error) {
	client, err := connect(access)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	return read(ctx, client)
}

// read reads everything at one revision.
func read(ctx context.Context, client *clientv3.Client) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	response, err := client.Get(ctx, "/calico/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading Calico's datastore: %w", err)
	}
	snapshot := make(Snapshot, len(response.Kvs))
	for _, kv := range response.Kvs {
		snapshot[string(kv.Key)] = Entry{Value: string(kv.Value), Revision: kv.ModRevision}
	}
	return snapshot, nil
}
