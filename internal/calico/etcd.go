// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// callTimeout bounds every single call to etcd, since neither etcd's client nor libcalico-go does.
const callTimeout = 20 * time.Second

// Etcd is Calico's etcdv3 datastore.
type Etcd struct {
	config    clientv3.Config
	tls       *tls.Config // nil for http
	endpoints string
	nodes     nodeCache
	clock     clock.PassiveClock

	mu     sync.Mutex // guards client and ready
	client *clientv3.Client
	// ready is the revision of ClusterInformation at which it last said datastoreReady, 0 before it did.
	ready int64
}

// Client is what etcd's client is made of for this etcd. Client certificates are read again for every new connection, so that they can be rotated.
func (c EtcdConfig) Client() (clientv3.Config, error) {
	cfg := clientv3.Config{
		Endpoints: c.Endpoints, Username: c.Username, Password: c.Password,
		DialTimeout: 10 * time.Second, DialKeepAliveTime: 30 * time.Second, DialKeepAliveTimeout: 10 * time.Second,
		Logger: zap.NewNop(),
	}
	if strings.HasPrefix(c.Endpoints[0], "https://") {
		files := transport.TLSInfo{CertFile: c.CertFile, KeyFile: c.KeyFile, TrustedCAFile: c.CACertFile}
		var err error
		if cfg.TLS, err = files.ClientConfig(); err != nil {
			return cfg, fmt.Errorf("reading the certificates for Calico's etcd: %w", err)
		}
	}
	return cfg, nil
}

// OpenEtcd makes a client for Calico's etcd. It does not connect yet; Ping does.
func OpenEtcd(c EtcdConfig) (*Etcd, error) {
	cfg, err := c.Client()
	if err != nil {
		return nil, err
	}
	d := &Etcd{config: cfg, tls: cfg.TLS, endpoints: strings.Join(c.Endpoints, ","), clock: clock.RealClock{}}
	if c.Username != "" {
		return d, nil // etcd's client logs in when it is made, which must wait until etcd is there
	}
	_, err = d.connection()
	return d, err
}

// EtcdOver is Calico's datastore in an etcd that is reached already. It is not for Close.
func EtcdOver(kv clientv3.KV) *Etcd {
	client := clientv3.NewCtxClient(context.Background())
	client.KV = kv
	return &Etcd{client: client, clock: clock.RealClock{}}
}

// connection returns the client, and makes it if there is none yet.
func (d *Etcd) connection() (*clientv3.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client != nil {
		return d.client, nil
	}
	client, err := clientv3.New(d.config)
	if err != nil {
		return nil, fmt.Errorf("connecting to Calico's etcd at %s: %w", d.endpoints, err)
	}
	d.client = client
	return client, nil
}

// Close ends the connection.
func (d *Etcd) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client == nil {
		return nil
	}
	return d.client.Close()
}

// txn begins a transaction on the connection.
func (d *Etcd) txn(ctx context.Context) (clientv3.Txn, error) {
	client, err := d.connection()
	if err != nil {
		return nil, err
	}
	return client.Txn(ctx), nil
}

// Ping reads one key with quorum. Its error is one sentence that names the endpoints.
func (d *Etcd) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client, err := d.connection()
	if err == nil {
		_, err = client.Get(ctx, clusterInformationKey, clientv3.WithKeysOnly())
	}
	if err != nil {
		return fmt.Errorf("calico's etcd at %s does not respond to a quorum read: %w", d.endpoints, d.diagnose(context.WithoutCancel(ctx), err))
	}
	return nil
}

// commitReady is commit, if the datastore is not locked: that ClusterInformation says datastoreReady is part of the transaction, so that nothing is
// written into a datastore that is being migrated. A datastore that is locked is a *ConflictError: the next round says so.
func (d *Etcd) commitReady(ctx context.Context, guard *Guard, seen map[string]int64, ops ...clientv3.Op) (int64, error) {
	if guard == nil && len(seen) == 0 {
		return 0, errors.New("a write without a comparison is not allowed")
	}
	d.mu.Lock()
	ready := d.ready
	d.mu.Unlock()
	for again := ready != 0; ; again = false {
		if ready == 0 {
			var err error
			if ready, err = d.readReady(ctx); err != nil {
				return 0, err
			}
		}
		expected := maps.Clone(seen)
		if expected == nil {
			expected = map[string]int64{}
		}
		expected[clusterInformationKey] = ready
		revision, err := d.commit(ctx, guard, expected, ops...)
		var conflict *ConflictError
		if !again || !errors.As(err, &conflict) || conflict.Key != clusterInformationKey {
			return revision, err
		}
		ready = 0 // it was written since, for whatever reason
	}
}

// readReady returns the revision of ClusterInformation, a *ConflictError if it does not say datastoreReady.
func (d *Etcd) readReady(ctx context.Context) (int64, error) {
	resp, err := d.get(ctx, clusterInformationKey)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", clusterInformationKey, err)
	}
	var s Snapshot
	for _, kv := range resp.Kvs {
		s.readClusterInformation(kv.Value, kv.ModRevision)
	}
	if !s.DatastoreReady {
		return 0, &ConflictError{Key: clusterInformationKey, Detail: "the datastore is locked"}
	}
	d.noteReady(s)
	return s.ClusterInformation.Revision, nil
}

// noteReady keeps the revision at which the datastore was ready.
func (d *Etcd) noteReady(s Snapshot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready = 0
	if s.DatastoreReady {
		d.ready = s.ClusterInformation.Revision
	}
}

// commit runs one transaction: ops if the guard and every comparison hold, else nothing. The store revision is returned, which is the
// ModRevision of every key that ops put. When a comparison fails the error is a *ConflictError that names the key.
func (d *Etcd) commit(ctx context.Context, guard *Guard, seen map[string]int64, ops ...clientv3.Op) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	expected := make(map[string]int64, len(seen)+1)
	maps.Copy(expected, seen)
	if guard != nil {
		if guard.Host == "" {
			return 0, errors.New("a destructive write needs the name of its Calico Node")
		}
		expected[nodeKey(guard.Host)] = guard.Revision
	}
	if len(expected) == 0 {
		return 0, errors.New("a write without a comparison is not allowed")
	}
	compares := make([]clientv3.Cmp, 0, len(expected))
	reads := make([]clientv3.Op, 0, len(expected))
	for key, revision := range expected {
		// A key that does not exist has ModRevision 0 in a comparison (etcd, etcdserver/txn: applyCompare).
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
		reads = append(reads, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	if err := allowed(ctx, ops); err != nil {
		return 0, err
	}
	txn, err := d.txn(ctx)
	if err != nil {
		return 0, err
	}
	resp, err := txn.If(compares...).Then(ops...).Else(reads...).Commit()
	if err != nil {
		return 0, err
	}
	if !resp.Succeeded {
		return 0, conflictOf(expected, resp)
	}
	return resp.Header.Revision, nil
}

// allowed returns an error for an operation that a round's controller does not declare.
func allowed(ctx context.Context, ops []clientv3.Op) error {
	for _, op := range ops {
		verb := "put"
		if op.IsDelete() {
			verb = "delete"
		}
		if _, err := outputs.Allowed(ctx, outputs.CalicoEtcd, writtenResource(string(op.KeyBytes())), verb); err != nil {
			return err
		}
	}
	return nil
}

func conflictOf(expected map[string]int64, resp *clientv3.TxnResponse) error {
	actual := make(map[string]int64, len(expected))
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			actual[string(kv.Key)] = kv.ModRevision
		}
	}
	conflict := &ConflictError{Key: "the transaction", Detail: "it no longer applies"}
	for key, want := range expected {
		if got := actual[key]; got != want && (conflict.Key == "the transaction" || key < conflict.Key) {
			conflict = &ConflictError{Key: key, Detail: fmt.Sprintf("it is at %s, not %s", revisionText(got), revisionText(want))}
		}
	}
	return conflict
}

func revisionText(revision int64) string {
	if revision == 0 {
		return "absent"
	}
	return fmt.Sprintf("revision %d", revision)
}
