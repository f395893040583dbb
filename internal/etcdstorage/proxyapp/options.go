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
	requestsPerSecond                                         float64
	burst, inFlight, lists                                    int
	keepAlivesPerSecond                                       float64
	watchMessagesPerSecond                                    float64
	readBytesPerSecond, writtenBytesPerSecond                 int64
	streams, streamsPerConnection                             int
	connectionsPerIdentity                                    int
	idleTime                                                  time.Duration
	answerBytes, historyBytes                                 int64
	drainDelay, drainTimeout                                  time.Duration
	logging                                                   plain.Options
}

// Defaults of the budgets of one replica. They are made so that ten tenants with three replicas each, all at their budgets at one time, leave a core of
// the shipped size (2 GiB of memory, a database of 4 GiB) working, and so that an API server does not notice them.
const (
	defaultRequests             = 1000
	defaultInFlight             = 8
	defaultKeepAlives           = 100
	defaultWatchMessages        = 500
	defaultReadBytes            = 64 << 20
	defaultWrittenBytes         = 8 << 20
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
		requestsPerSecond: defaultRequests, inFlight: defaultInFlight, keepAlivesPerSecond: defaultKeepAlives,
		watchMessagesPerSecond: defaultWatchMessages, readBytesPerSecond: defaultReadBytes, writtenBytesPerSecond: defaultWrittenBytes,
		streams: defaultStreams, streamsPerConnection: defaultStreamsPerConnection, answerBytes: proxy.DefaultAnswerBytes,
		historyBytes: defaultHistory, connectionsPerIdentity: defaultConnections, idleTime: defaultIdle,
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.coreEndpoints, "core-endpoints", o.coreEndpoints,
		"Client URLs of the core etcd, https://host:port, with commas between several (required). host:port means https.")
	fs.StringVar(&o.coreCAFile, "core-ca-file", o.coreCAFile, "CA bundle (PEM) that the core's certificate is checked against; reloaded when it changes.")
	fs.StringVar(&o.coreCertFile, "core-cert-file", o.coreCertFile,
		"Client certificate (PEM) towards the core; reloaded when it changes. With authentication on, its common name is the etcd user.")
	fs.StringVar(&o.coreKeyFile, "core-key-file", o.coreKeyFile, "Private key (PEM) of --core-cert-file.")
	fs.StringVar(&o.coreUsername, "core-username", o.coreUsername, "etcd user to log in as, if the core has authentication on and the certificate does not say who it is.")
	fs.StringVar(&o.corePasswordFile, "core-password-file", o.corePasswordFile, "File with the password of --core-username, read at each login.")

	fs.IntVar(&o.maxRequestBytes, "core-max-request-bytes", o.maxRequestBytes, "The core's own --max-request-bytes, so that requests it would refuse are refused here.")

	fs.StringVar(&o.tenant, "tenant", o.tenant, "Name of the tenant (required): lower case letters, digits and '-', at most 63.")
	fs.StringVar(&o.prefix, "prefix", o.prefix, "Where the tenant's keys are in the core. Unset means /<tenant>/.")
	fs.StringVar(&o.leaseSpace, "lease-space", o.leaseSpace,
		"Number that marks the tenant's leases in the core, 1 to 2147483646, different for each tenant of a core. Unset means derived from the prefix.")
	fs.StringVar(&o.systemPrefix, "system-prefix", o.systemPrefix,
		`Where the proxies of all tenants keep their own records in the core, the same for all of them; "" keeps them in memory, so that replicas may disagree about compaction.`)

	fs.Int64Var(&o.quotaBytes, "quota-bytes", o.quotaBytes,
		"How many bytes of keys, with their prefix, and values the tenant may store; what would grow beyond is refused as etcd does without space. 0 is no bound.")
	fs.Int64Var(&o.quotaKeys, "quota-keys", o.quotaKeys, "How many keys the tenant may have, refused likewise. 0 is no bound.")
	fs.Int64Var(&o.historyBytes, "quota-history-bytes", o.historyBytes,
		"How many bytes of keys and values the tenant may write between two compactions of the core, which keeps them all until then; puts beyond are refused. Deletes pass, and count. 0 is no bound.")
	fs.IntVar(&o.quotaLeases, "quota-leases", o.quotaLeases, "How many leases the tenant may have. 0 is no bound.")
	fs.IntVar(&o.quotaWatches, "quota-watches", o.quotaWatches, "How many watches the tenant may have on this replica. 0 is no bound.")
	fs.Float64Var(&o.requestsPerSecond, "max-requests-per-second", o.requestsPerSecond,
		"How many requests a second are passed on by this replica, of every kind that costs the core; a stream counts when it begins. Others wait for up to a second and are refused then. 0 is no bound.")
	fs.IntVar(&o.burst, "max-request-burst", o.burst, "How many requests may come at once before --max-requests-per-second holds. 0 means one second's worth.")
	fs.IntVar(&o.inFlight, "max-in-flight", o.inFlight,
		"How many requests of this replica the core answers at one time; the others wait in their order, so that this tenant does not crowd out those of other proxies. 0 is no bound.")

	fs.IntVar(&o.lists, "max-lists-in-flight", o.lists,
		"How many requests whose answer may be large (ranges of more than 500 keys, or of any number, and RangeStreams) the core answers for this replica at one time. They have seats of their own, so that small requests do not wait for them. 0 is a quarter of --max-in-flight.")
	fs.Float64Var(&o.keepAlivesPerSecond, "max-keep-alives-per-second", o.keepAlivesPerSecond,
		"How many keep-alives of leases a second are passed on by this replica, after two seconds' worth at once; others wait. 0 is no bound.")
	fs.Float64Var(&o.watchMessagesPerSecond, "max-watch-messages-per-second", o.watchMessagesPerSecond,
		"How many messages of watch streams (creates, cancels, requests for progress) a second this replica deals with, after two seconds' worth at once; others wait. 0 is no bound.")
	fs.Int64Var(&o.readBytesPerSecond, "max-read-bytes-per-second", o.readBytesPerSecond,
		"How many bytes of answers a second this replica reads from the core, once for small requests and once for large lists; requests wait while the bytes before them are above it, and are refused when that takes more than one second, or ten for lists. 0 is no bound.")
	fs.Int64Var(&o.writtenBytesPerSecond, "max-written-bytes-per-second", o.writtenBytesPerSecond,
		"How many bytes of puts a second this replica passes on; others wait for up to a second and are refused then. Deletes are free. 0 is no bound.")
	fs.IntVar(&o.streams, "max-streams", o.streams, "How many RPCs of any kind, watches' and leases' streams among them, may be open at this replica at one time. 0 is no bound.")
	fs.IntVar(&o.streamsPerConnection, "max-streams-per-connection", o.streamsPerConnection,
		"How many of them one connection may have; clients of gRPC wait by themselves. 0 is 4096.")
	fs.IntVar(&o.connectionsPerIdentity, "max-connections-per-identity", o.connectionsPerIdentity,
		"How many connections certificates of one identity (subject, URIs and DNS names) may have; more are closed. 0 is no bound but that of the process, 2048.")
	fs.DurationVar(&o.idleTime, "idle-timeout", o.idleTime, "How long a connection may be without a request or a stream; it is told to connect again then, and closed. 0 is no bound.")
	fs.Int64Var(&o.answerBytes, "max-answer-bytes", o.answerBytes,
		"How many bytes of answers larger than 64 KiB are in memory at one time; others stay at the core until there is room. An answer of up to half as much again passes alone; what is larger is refused, and must be read in pages. Half of the memory that the process may have is right.")

	fs.StringVar(&o.listenAddress, "listen-address", o.listenAddress, "Address on which the tenant is served, host:port.")
	fs.StringVar(&o.advertiseURL, "advertise-client-url", o.advertiseURL,
		"URL that clients are told when they ask for the members, such as that of the Service. Unset means the listen address.")
	fs.StringVar(&o.tlsCertFile, "tls-cert-file", o.tlsCertFile, "Serving certificate (PEM), the leaf first; reloaded when it changes.")
	fs.StringVar(&o.tlsPrivateKeyFile, "tls-private-key-file", o.tlsPrivateKeyFile, "Private key (PEM) of --tls-cert-file.")
	fs.StringVar(&o.clientCAs, "client-ca-file", o.clientCAs, "CA bundle (PEM) that must have signed the clients' certificates; reloaded when it changes.")
	fs.StringVar(&o.revokedClients, "revoked-clients-file", o.revokedClients,
		"List of names that no client's certificate may carry any more, one in each line, written as in --allowed-identity; reloaded when it changes, and connections of such clients end then.")
	fs.StringArrayVar(&o.allowedIdentities, "allowed-identity", o.allowedIdentities,
		"Name that a client's certificate must carry: uri:URI, dns:NAME or cn:NAME; repeatable, one of them is enough. "+
			"Unset means uri:"+TenantURI+"<tenant> or cn:<tenant>.")
	fs.BoolVar(&o.insecurePlaintext, "insecure-plaintext", o.insecurePlaintext,
		"Allow plaintext on loopback addresses: towards clients if no TLS files are given, and towards a core with http. For tests and benchmarks.")

	fs.StringVar(&o.healthAddress, "health-address", o.healthAddress, `Address of /healthz and /readyz, host:port; "0" turns them off.`)
	fs.StringVar(&o.metricsAddress, "metrics-address", o.metricsAddress,
		`Address of /metrics, host:port; "0" turns it off. May be the same as --health-address.`)
	fs.DurationVar(&o.drainDelay, "drain-delay", o.drainDelay,
		"How long new connections are still served after SIGTERM while /readyz says no, so that load balancers can notice.")
	fs.DurationVar(&o.drainTimeout, "drain-timeout", o.drainTimeout, "How long running requests may take to end after that.")
	o.logging.AddFlags(fs)
}
