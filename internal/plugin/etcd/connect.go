// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/transfer"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// dialTimeout bounds the first connection.
const dialTimeout = 15 * time.Second

// access say how a tenant is reached.
type access struct {
	endpoint       string
	ca, cert, key  string
	core           []string
	coreCA         string
	coreCert       string
	coreKey        string
	coreUser       string
	corePassword   string
	corePrefix     string
	coreLeaseSpace string
	namesOfProxy   []string
	namesOfCore    []string
}

func (f *access) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.endpoint, "endpoint", "", "URL of a proxy of the tenant, in place of the EtcdStorage's own.")
	flags.StringVar(&f.ca, "cacert", "", "File with the CA bundle of the proxies.")
	flags.StringVar(&f.cert, "cert", "", "File with the tenant's client certificate.")
	flags.StringVar(&f.key, "key", "", "File with its private key.")
	f.addCoreTo(cmd)
	flags.StringVar(&f.corePrefix, "core-prefix", "", "Where the tenant's keys are in the core. Unset: as the operator noted in the core, or /NAME/.")
	flags.StringVar(&f.coreLeaseSpace, "core-lease-space", "", "The tenant's lease space, as in --lease-space of the proxy. Unset: as the operator noted in the core, or made of the prefix.")
	f.namesOfProxy = []string{"endpoint", "cacert", "cert", "key"}
	f.namesOfCore = []string{"core-endpoint", "core-cacert", "core-cert", "core-key", "core-username", "core-password-file", "core-prefix", "core-lease-space"}
}

// addCoreTo adds the flags about the way to the core itself.
func (f *access) addCoreTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.core, "core-endpoint", nil, "URL of the core etcd; goes to the core itself.")
	flags.StringVar(&f.coreCA, "core-cacert", "", "File with the core's CA bundle.")
	flags.StringVar(&f.coreCert, "core-cert", "", "File with a client certificate for the core.")
	flags.StringVar(&f.coreKey, "core-key", "", "File with its private key.")
	flags.StringVar(&f.coreUser, "core-username", "", "User of the core, if it has authentication on.")
	flags.StringVar(&f.corePassword, "core-password-file", "", "File with that user's password.")
}

// connect returns the tenant, and what ends the connection.
func (f *access) connect(cmd *cobra.Command, env *observe.Env, name string) (transfer.Tenant, func(), error) {
	config, err := f.config(cmd, env, name)
	if err != nil {
		return transfer.Tenant{}, nil, err
	}
	client, err := dial(cmd.Context(), config)
	if err != nil {
		return transfer.Tenant{}, nil, err
	}
	end := func() { _ = client.Close() }
	tenant := transfer.Tenant{KV: client.KV, Lease: client.Lease}
	if len(f.core) > 0 {
		if err := f.inCore(cmd.Context(), client, name, &tenant); err != nil {
			end()
			return transfer.Tenant{}, nil, err
		}
	}
	return tenant, end, nil
}

// config finds out where to connect to, and as whom.
func (f *access) config(cmd *cobra.Command, env *observe.Env, name string) (clientv3.Config, error) {
	config := baseConfig()
	changed := func(names []string) string {
		for _, n := range names {
			if cmd.Flags().Changed(n) {
				return n
			}
		}
		return ""
	}
	byProxy, byCore := changed(f.namesOfProxy), changed(f.namesOfCore)
	switch {
	case byProxy != "" && byCore != "":
		return config, fmt.Errorf("--%s goes to a proxy and --%s to the core: give flags of one kind", byProxy, byCore)
	case byCore != "" && len(f.core) == 0:
		return config, fmt.Errorf("--%s goes with --core-endpoint", byCore)
	case byCore != "":
		return f.coreConfig(config)
	}
	p, err := f.proxy(cmd.Context(), env, name)
	if err != nil {
		return config, err
	}
	config.Endpoints = []string{p.endpoint}
	if config.TLS, err = tlsFor(config.Endpoints, p.ca, p.cert, p.key, "--cacert", "--cert and --key"); err != nil {
		return config, err
	}
	return config, nil
}

func baseConfig() clientv3.Config {
	return clientv3.Config{DialTimeout: dialTimeout, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 10 * time.Second, Logger: zap.NewNop()}
}

func (f *access) coreConfig(config clientv3.Config) (clientv3.Config, error) {
	config.Endpoints, config.Username = f.core, f.coreUser
	if (f.coreUser == "") != (f.corePassword == "") {
		return config, errors.New("--core-username and --core-password-file go together")
	}
	files, err := readNamed(f.coreCA, f.coreCert, f.coreKey, f.corePassword)
	if err != nil {
		return config, err
	}
	config.Password = strings.TrimRight(string(files[3]), "\r\n")
	config.TLS, err = tlsFor(f.core, files[0], files[1], files[2], "--core-cacert", "--core-cert and --core-key")
	return config, err
}

// readNamed reads files that flags name, nothing for a flag that is not given.
func readNamed(paths ...string) ([][]byte, error) {
	files := make([][]byte, len(paths))
	for i, path := range paths {
		if path == "" {
			continue
		}
		var err error
		if files[i], err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("reading a file that a flag names: %w", err)
		}
	}
	return files, nil
}

// tlsFor returns the settings for these endpoints, nil for plaintext, which is for tests and stays on the machine.
func tlsFor(endpoints []string, ca, cert, key []byte, caFrom, pairFrom string) (*tls.Config, error) {
	plain, err := checkEndpoints(endpoints)
	if err != nil || plain {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s: there is no certificate in PEM", caFrom)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if len(cert)+len(key) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pairFrom, err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// checkEndpoints refuses what is not a URL of an etcd, and reports whether all of them are plaintext.
func checkEndpoints(endpoints []string) (plaintext bool, err error) {
	plain := 0
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Host == "" || u.Port() == "" || u.Path != "" && u.Path != "/" || u.Scheme != "https" && u.Scheme != "http":
			return false, fmt.Errorf("%q is not the URL of an etcd: write https://HOST:PORT", endpoint)
		case u.Scheme == "http" && !isLoopback(u.Hostname()):
			return false, fmt.Errorf("%q is without encryption, which is allowed on this machine only: write https://HOST:PORT", endpoint)
		case u.Scheme == "http":
			plain++
		}
	}
	if plain > 0 && plain < len(endpoints) {
		return false, errors.New("some endpoints are https and some are http: give endpoints of one kind")
	}
	return plain > 0, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// dial returns a client of an etcd that can be reached.
func dial(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	if err := reach(ctx, config); err != nil {
		return nil, err
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", strings.Join(config.Endpoints, ","), transfer.Explain(err))
	}
	return client, nil
}

// reach makes one connection by hand, to say why there is none: etcd's client would try for long and then say that time is over.
func reach(ctx context.Context, config clientv3.Config) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var first error
	for _, endpoint := range config.Endpoints {
		err := reachOne(ctx, endpoint, config.TLS)
		if err == nil {
			return nil
		}
		if first == nil {
			first = fmt.Errorf("connecting to %s: %w", endpoint, err)
		}
	}
	return first
}

func reachOne(ctx context.Context, endpoint string, settings *tls.Config) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	if settings == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	settings = settings.Clone()
	settings.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	return greet(ctx, conn)
}

// greet sends the beginning of HTTP/2 (RFC 9113, 3.4) and waits for the server's: with TLS 1.3 a server refuses a client's certificate only after the
// client's handshake is over.
func greet(ctx context.Context, conn net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	const frameHeader = 9
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0} // an empty SETTINGS frame
	if _, err := conn.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), settings...)); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, frameHeader)); err != nil {
		return fmt.Errorf("the other side does not go on: %w", err)
	}
	return nil
}

// inCore completes a tenant that is reached in the core: its prefix and its lease space. The operator's records are read if the user may:
// the tenant's own for what it says, the others' so that nothing of theirs is touched.
func (f *access) inCore(ctx context.Context, client *clientv3.Client, name string, tenant *transfer.Tenant) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	record := operator.Owner{Prefix: "/" + name + "/"}
	var others []operator.Owner
	answer, err := client.Get(ctx, operator.OwnersPrefix, clientv3.WithPrefix())
	switch {
	case err == nil:
		if others, err = owners(answer.Kvs, name, &record); err != nil {
			return err
		}
	case !errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("reading the operator's record of tenant %s in the core: %w", name, transfer.Explain(err))
	}
	if f.corePrefix != "" && f.corePrefix != record.Prefix {
		record = operator.Owner{Prefix: f.corePrefix}
	}
	if f.coreLeaseSpace != "" {
		record.LeaseSpace = f.coreLeaseSpace
	}
	if tenant.Prefix, err = tenancy.ParsePrefix(record.Prefix); err != nil {
		return fmt.Errorf("--core-prefix: %w", err)
	}
	for _, o := range others {
		if theirs, err := tenancy.ParsePrefix(o.Prefix); err == nil && theirs.Overlaps(tenant.Prefix) {
			return fmt.Errorf("--core-prefix %s overlaps %s, which is another tenant's", tenant.Prefix, theirs)
		}
	}
	tenant.Leases = tenancy.DeriveLeaseSpace(tenant.Prefix)
	if record.LeaseSpace != "" {
		if tenant.Leases, err = tenancy.ParseLeaseSpace(record.LeaseSpace); err != nil {
			return fmt.Errorf("--core-lease-space: %w", err)
		}
	}
	tenant.Core = clientv3.RetryLeaseClient(client)
	return nil
}

// owners decodes the operator's records: the tenant's own into record, and the others'.
func owners(kvs []*mvccpb.KeyValue, name string, record *operator.Owner) (others []operator.Owner, err error) {
	for _, kv := range kvs {
		var o operator.Owner
		if err := json.Unmarshal(kv.Value, &o); err != nil {
			return nil, fmt.Errorf("the operator's record %s in the core cannot be read: %w", kv.Key, err)
		}
		if string(kv.Key) == operator.OwnersPrefix+name {
			*record = o
		} else {
			others = append(others, o)
		}
	}
	return others, nil
}
