// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/platform/logging/plain"
)

// Component is the binary's name, in metrics and messages. It MUST NOT change.
const Component = "etcd-storage-proxy"

// disabled turns an endpoint off, as in the other binaries.
const disabled = "0"

// options are the flags as they were given. The names of the flags MUST NOT change: manifests and the operator use them.
type options struct {
	coreEndpoints                                             []string
	coreCAFile, coreCertFile, coreKeyFile                     string
	coreUsername, corePasswordFile                            string
	tenant, prefix, leaseSpace, systemPrefix                  string
	listenAddress, advertiseURL                               string
	tlsCertFile, tlsPrivateKeyFile, clientCAs, revokedClients string
	allowedIdentities                                         []string
	insecurePlaintext                                         bool
	healthAddress, metricsAddress                             string
	maxRequestBytes                                           int
	quotaBytes, quotaKeys                                     int64
	quotaLeases, quotaWatches                                 int
	unitsPerSecond                                            float64
	replaced                                                  []string // flags of before that were given
	inFlight, lists, replicas                                 int
	keepAlivesPerSecond                                       float64
	watchMessagesPerSecond                                    float64
	streams, streamsPerConnection                             int
	connectionsPerIdentity                                    int
	idleTime                                                  time.Duration
	answerBytes, historyBytes                                 int64
	drainDelay, drainTimeout                                  time.Duration
	logging                                                   plain.Options
}

// Defaults of the budgets: units and requests in flight are the tenant's, the others those of one replica. They are made so that one tenant alone
// has what the core can do with one processor, that a tenant at its budgets does not delay others more than a program that keeps that processor
// busy does (BenchmarkHostile), and that an API server does not notice them.
const (
	defaultUnits                = 20000 // gets of small keys, or 39 MiB of puts; in large requests 94 MiB, or 1.5 million keys
	defaultInFlight             = 16
	defaultKeepAlives           = 100
	defaultWatchMessages        = 500
	defaultStreams              = 4096
	defaultStreamsPerConnection = 1024
	defaultHistory              = 256 << 20
	defaultConnections          = 1024
	defaultIdle                 = 30 * time.Minute
)

func newOptions() *options {
	return &options{
		systemPrefix: tenancy.DefaultSystemPrefix, listenAddress: ":2379", healthAddress: ":8081", metricsAddress: ":8080",
		drainTimeout: 20 * time.Second, maxRequestBytes: proxy.DefaultMaxRequestBytes,
		unitsPerSecond: defaultUnits, inFlight: defaultInFlight, replicas: 1, keepAlivesPerSecond: defaultKeepAlives,
		watchMessagesPerSecond: defaultWatchMessages,
		streams:                defaultStreams, streamsPerConnection: defaultStreamsPerConnection, answerBytes: proxy.DefaultAnswerBytes,
		historyBytes: defaultHistory, connectionsPerIdentity: defaultConnections, idleTime: defaultIdle,
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.coreEndpoints, "core-endpoints", o.coreEndpoints,
		"Client URLs of the core etcd, https://host:port, with commas between several (required). host:port means https.")
	fs.StringVar(&o.coreCAFile, "core-ca-file", o.coreCAFile, "CA bundle (PEM) to verify the core's certificate with; reloaded when it changes.")
	fs.StringVar(&o.coreCertFile, "core-cert-file", o.coreCertFile,
		"Client certificate (PEM) for the core; reloaded when it changes. If authentication is enabled in the core, its common name is the etcd user.")
	fs.StringVar(&o.coreKeyFile, "core-key-file", o.coreKeyFile, "Private key (PEM) of --core-cert-file.")
	fs.StringVar(&o.coreUsername, "core-username", o.coreUsername, "etcd user to log in as, if authentication is enabled in the core and the certificate does not name the user.")
	fs.StringVar(&o.corePasswordFile, "core-password-file", o.corePasswordFile, "File with the password of --core-username, read at each login.")

	fs.IntVar(&o.maxRequestBytes, "core-max-request-bytes", o.maxRequestBytes, "The core's own --max-request-bytes, so that requests it would refuse are refused here.")

	fs.StringVar(&o.tenant, "tenant", o.tenant, "Name of the tenant (required): lower case letters, digits and '-', at most 63.")
	fs.StringVar(&o.prefix, "prefix", o.prefix, "Where the tenant's keys are in the core. Unset means /<tenant>/.")
	fs.StringVar(&o.leaseSpace, "lease-space", o.leaseSpace,
		"Number that marks the tenant's leases in the core, 1 to 2147483646, different for each tenant of a core. Unset means derived from the prefix.")
	fs.StringVar(&o.systemPrefix, "system-prefix", o.systemPrefix,
		`Where the proxies of all tenants keep their own records in the core, the same for all of them; "" keeps them in memory, so that replicas may disagree about compaction.`)

	fs.Int64Var(&o.quotaBytes, "quota-bytes", o.quotaBytes,
		"How many bytes of keys, with their prefix, and values the tenant may store; writes beyond it are refused as by an etcd without space. 0 means no limit.")
	fs.Int64Var(&o.quotaKeys, "quota-keys", o.quotaKeys, "How many keys the tenant may have; writes beyond it are refused in the same way. 0 means no limit.")
	fs.Int64Var(&o.historyBytes, "quota-history-bytes", o.historyBytes,
		"How many bytes of keys and values the tenant may write between two compactions of the core, which keeps all of them until then; puts beyond it are refused. Deletes pass, and count. 0 means no limit.")
	fs.IntVar(&o.quotaLeases, "quota-leases", o.quotaLeases, "How many leases the tenant may have. 0 means no limit.")
	fs.IntVar(&o.quotaWatches, "quota-watches", o.quotaWatches, "How many watches the tenant may have on this replica. 0 means no limit.")
	fs.Float64Var(&o.unitsPerSecond, "max-units-per-second", o.unitsPerSecond,
		"How much work per second the tenant may give to the core through all replicas, in units, divided among them by demand: a get of a small key is 1, a put 3, every 16 KiB that are read, 2 KiB that are written or 250 keys of a range 1 more. Large requests have three tenths of it, and all of it while no other client uses the core. Requests beyond it wait for up to a second, large lists for ten, and are then refused. 0 means no limit.")
	o.addReplaced(fs)
	fs.IntVar(&o.inFlight, "max-in-flight", o.inFlight,
		"How many requests of all replicas the core processes at a time; the others wait in order, so that this tenant does not displace those of other proxies. Each replica has a share by its demand, at least 1. 0 means no limit.")
	fs.IntVar(&o.replicas, "replicas", o.replicas,
		`How many replicas of this tenant's proxy there are, where they cannot know it of each other, as with --system-prefix="": --max-units-per-second, --max-in-flight and --max-lists-in-flight are divided among them.`)

	fs.IntVar(&o.lists, "max-lists-in-flight", o.lists,
		"How many large requests (ranges of more than 500 keys or without a limit, RangeStreams, and whatever keeps the core busy for more than 4 units) the core processes for all replicas at a time; each has a share by its demand, at least 1. They have their own limit, so that small requests do not wait for them. 0 is an eighth of --max-in-flight.")
	fs.Float64Var(&o.keepAlivesPerSecond, "max-keep-alives-per-second", o.keepAlivesPerSecond,
		"How many keep-alives of leases per second this replica forwards, after a burst of two seconds; others wait. 0 means no limit.")
	fs.Float64Var(&o.watchMessagesPerSecond, "max-watch-messages-per-second", o.watchMessagesPerSecond,
		"How many messages of watch streams (creates, cancels, requests for progress) per second this replica processes, after a burst of two seconds; others wait. 0 means no limit.")
	fs.IntVar(&o.streams, "max-streams", o.streams, "How many RPCs of any kind, watches' and leases' streams among them, may be open at this replica at a time. 0 means no limit.")
	fs.IntVar(&o.streamsPerConnection, "max-streams-per-connection", o.streamsPerConnection,
		"How many of them one connection may have; gRPC clients wait by themselves. 0 is 4096.")
	fs.IntVar(&o.connectionsPerIdentity, "max-connections-per-identity", o.connectionsPerIdentity,
		"How many connections certificates of one identity (subject, URIs and DNS names) may have; more are closed. 0 means no limit but that of the process, 2048.")
	fs.DurationVar(&o.idleTime, "idle-timeout", o.idleTime, "How long a connection may be idle; then it is closed, and the client is asked to reconnect. 0 means no limit.")
	fs.Int64Var(&o.answerBytes, "max-answer-bytes", o.answerBytes,
		"How many bytes of responses larger than 64 KiB are in memory at a time; others wait at the core. A single response of up to one and a half times as much is allowed; larger ones are refused, and must be read in pages. Half of the process's memory limit is a good value.")

	fs.StringVar(&o.listenAddress, "listen-address", o.listenAddress, "Address on which the tenant is served, host:port.")
	fs.StringVar(&o.advertiseURL, "advertise-client-url", o.advertiseURL,
		"URL that clients get when they list the members, such as that of the Service. Unset means the listen address.")
	fs.StringVar(&o.tlsCertFile, "tls-cert-file", o.tlsCertFile, "Serving certificate (PEM), the leaf first; reloaded when it changes.")
	fs.StringVar(&o.tlsPrivateKeyFile, "tls-private-key-file", o.tlsPrivateKeyFile, "Private key (PEM) of --tls-cert-file.")
	fs.StringVar(&o.clientCAs, "client-ca-file", o.clientCAs, "CA bundle (PEM) that must have signed the clients' certificates; reloaded when it changes.")
	fs.StringVar(&o.revokedClients, "revoked-clients-file", o.revokedClients,
		"List of names of revoked client certificates, one per line, written as in --allowed-identity; reloaded when it changes, and connections of such clients end then.")
	fs.StringArrayVar(&o.allowedIdentities, "allowed-identity", o.allowedIdentities,
		"Name that a client's certificate must carry: uri:URI, dns:NAME or cn:NAME; repeatable, one of them is enough. "+
			"Unset means uri:"+TenantURI+"<tenant> or cn:<tenant>.")
	fs.BoolVar(&o.insecurePlaintext, "insecure-plaintext", o.insecurePlaintext,
		"Allow plaintext on loopback addresses: towards clients if no TLS files are given, and towards a core with http. For tests and benchmarks.")

	fs.StringVar(&o.healthAddress, "health-address", o.healthAddress, `Address of /healthz and /readyz, host:port; "0" turns them off.`)
	fs.StringVar(&o.metricsAddress, "metrics-address", o.metricsAddress,
		`Address of /metrics, host:port; "0" turns it off. May be the same as --health-address.`)
	fs.DurationVar(&o.drainDelay, "drain-delay", o.drainDelay,
		"How long new connections are still served after SIGTERM while /readyz fails, so that load balancers can notice.")
	fs.DurationVar(&o.drainTimeout, "drain-timeout", o.drainTimeout, "How long running requests may take to end after that.")
	o.logging.AddFlags(fs)
}

// addReplaced adds the flags that --max-units-per-second has replaced, so that manifests with them are refused by name.
func (o *options) addReplaced(fs *pflag.FlagSet) {
	for _, name := range [...]string{
		"max-requests-per-second", "max-request-burst", "max-read-bytes-per-second", "max-written-bytes-per-second",
	} {
		fs.Func(name, "Replaced by --max-units-per-second.", func(string) error {
			o.replaced = append(o.replaced, "--"+name)
			return nil
		})
		fs.Lookup(name).Hidden = true
	}
}
