// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/platform/certreload"
)

// settings are the flags, understood. Nothing outside of the process has been looked at yet.
type settings struct {
	tenantName   string
	tenant       tenancy.Tenant
	systemPrefix string
	identities   []identity

	core      []endpoint
	coreFiles certreload.Files // zero for a plaintext core
	listen    certreload.Files // zero for plaintext

	advertiseURL string
}

// tenantName is a DNS label (RFC 1123): it becomes part of keys and of names in the cluster.
var tenantName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// settings understands the flags, or reports every mistake in them, joined, one sentence each.
func (o *options) settings() (*settings, error) {
	s := &settings{tenantName: o.tenant, systemPrefix: o.systemPrefix, advertiseURL: o.advertiseURL}
	err := errors.Join(
		o.logging.Validate(),
		o.readTenant(s),
		o.readCore(s),
		o.readListen(s),
		o.readIdentities(s),
		o.checkLimits(),
		o.checkOperations(),
	)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (o *options) readTenant(s *settings) error {
	if o.tenant == "" {
		return errors.New("--tenant is missing: name the tenant that is served")
	}
	if !tenantName.MatchString(o.tenant) {
		return fmt.Errorf("--tenant %q is not a tenant name: use up to 63 lower case letters, digits and '-', with a letter or digit at both ends", o.tenant)
	}
	text := o.prefix
	if text == "" {
		text = "/" + o.tenant + "/"
	}
	prefix, err := tenancy.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("--prefix: %w", err)
	}
	if o.systemPrefix != "" {
		system, err := tenancy.ParseSystemPrefix(o.systemPrefix)
		if err != nil {
			return fmt.Errorf("--system-prefix: %w", err)
		}
		if prefix.Overlaps(system) {
			return fmt.Errorf("--prefix %q overlaps --system-prefix %q, where proxies keep their own records: choose another prefix", text, o.systemPrefix)
		}
	}
	leases := tenancy.DeriveLeaseSpace(prefix)
	if o.leaseSpace != "" {
		if leases, err = tenancy.ParseLeaseSpace(o.leaseSpace); err != nil {
			return fmt.Errorf("--lease-space: %w", err)
		}
	}
	s.tenant = tenancy.Tenant{Prefix: prefix, Leases: leases}
	return s.tenant.Validate()
}

func (o *options) readCore(s *settings) error {
	files := certreload.Files{Cert: o.coreCertFile, Key: o.coreKeyFile, CA: o.coreCAFile}
	scheme := schemeHTTPS
	if o.insecurePlaintext && files == (certreload.Files{}) {
		scheme = schemeHTTP
	}
	core, err := parseEndpoints(o.coreEndpoints, scheme)
	errs := []error{err, o.checkCoreDetails()}
	switch {
	case err != nil:
	case core[0].scheme == schemeHTTP:
		errs = append(errs, o.checkPlaintextCore(core, files))
	case files.CA == "":
		errs = append(errs, errors.New("--core-ca-file is missing: name the CA bundle that signed the core's certificate"))
	}
	if (files.Cert == "") != (files.Key == "") {
		errs = append(errs, errors.New("--core-cert-file and --core-key-file go together: give both or neither"))
	}
	s.core, s.coreFiles = core, files
	return errors.Join(errs...)
}

func (o *options) checkPlaintextCore(core []endpoint, files certreload.Files) error {
	if files != (certreload.Files{}) {
		return fmt.Errorf("--core-endpoints %q is plaintext, and --core-ca-file, --core-cert-file and --core-key-file are for https: use https, or drop the files", core[0])
	}
	for _, e := range core {
		if !o.insecurePlaintext || !isLoopback(e.host) {
			return fmt.Errorf("--core-endpoints %q is plaintext: use https (--insecure-plaintext allows http to a loopback address only)", e)
		}
	}
	return nil
}

// largestRequest is etcd's own bound of a gRPC message, 2 GiB, with room for what is around a request.
const largestRequest = 1 << 30

func (o *options) checkCoreDetails() error {
	if o.maxRequestBytes <= 0 || o.maxRequestBytes > largestRequest {
		return fmt.Errorf("--core-max-request-bytes %d is out of range: use the core's own value, 1 to %d", o.maxRequestBytes, largestRequest)
	}
	if (o.coreUsername == "") != (o.corePasswordFile == "") {
		return errors.New("--core-username and --core-password-file go together: give both or neither")
	}
	return nil
}

func (o *options) readListen(s *settings) error {
	if err := checkAddress("--listen-address", o.listenAddress, false); err != nil {
		return err
	}
	var missing []string
	for _, f := range [...]struct{ flag, value string }{
		{"--tls-cert-file", o.tlsCertFile}, {"--tls-private-key-file", o.tlsPrivateKeyFile}, {"--client-ca-file", o.clientCAs},
	} {
		if f.value == "" {
			missing = append(missing, f.flag)
		}
	}
	plaintext := len(missing) == 3 && o.insecurePlaintext
	switch {
	case plaintext && !isLoopback(o.listenAddress):
		return fmt.Errorf("--listen-address %q is not a loopback address, as --insecure-plaintext demands: use 127.0.0.1, or give the TLS files", o.listenAddress)
	case !plaintext && len(missing) > 0:
		return fmt.Errorf("%s missing: clients are served over TLS only, with certificates on both sides", isOrAre(missing))
	case !plaintext && o.insecurePlaintext && !slices.ContainsFunc(s.core, func(e endpoint) bool { return e.scheme == schemeHTTP }):
		return errors.New("--insecure-plaintext contradicts the TLS files of both sides: drop it")
	case !plaintext:
		s.listen = certreload.Files{Cert: o.tlsCertFile, Key: o.tlsPrivateKeyFile, CA: o.clientCAs, Extra: o.revokedClients}
	}
	if s.advertiseURL == "" {
		s.advertiseURL = defaultAdvertised(o.listenAddress, plaintext)
		return nil
	}
	return checkAdvertised(s.advertiseURL)
}

func isOrAre(flags []string) string {
	if len(flags) == 1 {
		return flags[0] + " is"
	}
	return strings.Join(flags[:len(flags)-1], ", ") + " and " + flags[len(flags)-1] + " are"
}

// defaultAdvertised is the URL of the listener. For a listener on all addresses that is localhost, as etcd itself does.
func defaultAdvertised(listen string, plaintext bool) string {
	scheme := schemeHTTPS
	if plaintext {
		scheme = schemeHTTP
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil || host == "" || host == "0.0.0.0" || host == "::" {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

func (o *options) readIdentities(s *settings) error {
	plaintext := s.listen == (certreload.Files{})
	if plaintext && o.insecurePlaintext && len(o.allowedIdentities) > 0 {
		return errors.New("--allowed-identity needs client certificates, and without TLS files there are none: drop it, or give the TLS files")
	}
	if plaintext && o.insecurePlaintext && o.revokedClients != "" {
		return errors.New("--revoked-clients-file needs client certificates, and without TLS files there are none: drop it, or give the TLS files")
	}
	s.identities = defaultIdentities(o.tenant)
	if len(o.allowedIdentities) == 0 {
		return nil
	}
	s.identities = nil
	var errs []error
	for _, text := range o.allowedIdentities {
		id, err := parseIdentity("--allowed-identity", text)
		errs = append(errs, err)
		s.identities = append(s.identities, id)
	}
	return errors.Join(errs...)
}

func (o *options) checkOperations() error {
	errs := []error{
		checkAddress("--health-address", o.healthAddress, true),
		checkAddress("--metrics-address", o.metricsAddress, true),
		o.checkDurations(),
	}
	for _, other := range [...]struct{ flag, addr string }{{"--health-address", o.healthAddress}, {"--metrics-address", o.metricsAddress}} {
		if _, port, err := net.SplitHostPort(other.addr); err == nil && port != "0" && other.addr == o.listenAddress {
			errs = append(errs, fmt.Errorf("--listen-address and %s are both %q: give each its own port", other.flag, other.addr))
		}
	}
	return errors.Join(errs...)
}

// leastAnswerBytes are enough for the answers to any small request.
const leastAnswerBytes = 4 << 20

// checkLimits refuses bounds that are below nothing.
func (o *options) checkLimits() error {
	var errs []error
	for _, bound := range [...]struct {
		flag  string
		value float64
	}{
		{"--quota-bytes", float64(o.quotaBytes)}, {"--quota-keys", float64(o.quotaKeys)}, {"--quota-leases", float64(o.quotaLeases)},
		{"--quota-watches", float64(o.quotaWatches)}, {"--max-units-per-second", o.unitsPerSecond},
		{"--max-in-flight", float64(o.inFlight)}, {"--max-lists-in-flight", float64(o.lists)},
		{"--max-keep-alives-per-second", o.keepAlivesPerSecond}, {"--max-watch-messages-per-second", o.watchMessagesPerSecond},
		{"--quota-history-bytes", float64(o.historyBytes)}, {"--max-streams", float64(o.streams)}, {"--max-connections-per-identity", float64(o.connectionsPerIdentity)}, {"--max-streams-per-connection", float64(o.streamsPerConnection)},
	} {
		if bound.value < 0 || math.IsNaN(bound.value) || math.IsInf(bound.value, 0) {
			errs = append(errs, fmt.Errorf("%s %v is out of range: use a number above 0, or 0 for no bound", bound.flag, bound.value))
		}
	}
	if o.answerBytes < leastAnswerBytes {
		errs = append(errs, fmt.Errorf("--max-answer-bytes %d is out of range: use at least %d", o.answerBytes, leastAnswerBytes))
	}
	if o.replicas < 1 {
		errs = append(errs, fmt.Errorf("--replicas %d is out of range: use the number of proxies of this tenant, at least 1", o.replicas))
	}
	for _, flag := range o.replaced {
		errs = append(errs, fmt.Errorf("%s was replaced: use --max-units-per-second, of which a get of a small key takes 1 and a put 3", flag))
	}
	return errors.Join(errs...)
}

// longestDrain is more than any orchestrator waits for.
const longestDrain = time.Hour

func (o *options) checkDurations() error {
	if o.drainDelay < 0 || o.drainDelay > longestDrain {
		return fmt.Errorf("--drain-delay %s is out of range: use 0s to %s", o.drainDelay, longestDrain)
	}
	if o.idleTime < 0 {
		return fmt.Errorf("--idle-timeout %s is out of range: use a time above 0s, or 0s for no bound", o.idleTime)
	}
	if o.drainTimeout <= 0 || o.drainTimeout > longestDrain {
		return fmt.Errorf("--drain-timeout %s is out of range: it must be longer than 0s and at most %s", o.drainTimeout, longestDrain)
	}
	return nil
}
