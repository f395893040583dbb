// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// renewJitter is client-go's leaderelection.JitterFactor: it refuses a renew deadline that is not
// above the retry period times this.
const renewJitter = 1.2

// Validate reports every wrong option, joined, each as one sentence that names the flag and the next
// step. It reads the metrics certificate files but opens no connection and no port.
func (o Options) Validate() error {
	return errors.Join(
		o.Mode.Validate(),
		bindAddress("--metrics-bind-address", o.MetricsBindAddress),
		bindAddress("--health-probe-bind-address", o.HealthProbeBindAddress),
		o.validatePorts(),
		o.validateMetricsCert(),
		o.validateLeaderElection(),
		positive("--graceful-shutdown-timeout", o.GracefulShutdownTimeout),
	)
}

func bindAddress(flag, addr string) error {
	if addr == Disabled {
		return nil
	}
	advice := fmt.Sprintf(`write host:port or ":port", or %q to turn the endpoint off`, Disabled)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s %q is not an address to listen on: %s", flag, addr, advice)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%s %q has no port between 0 and 65535: %s", flag, addr, advice)
	} else if host != "" && net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 {
		return fmt.Errorf("%s %q has neither an IP address nor a host name before port %d: %s", flag, addr, n, advice)
	}
	return nil
}

func (o Options) validatePorts() error {
	if o.MetricsBindAddress == Disabled || o.MetricsBindAddress != o.HealthProbeBindAddress {
		return nil
	}
	if _, port, _ := net.SplitHostPort(o.MetricsBindAddress); port == "0" {
		return nil // two free ports
	}
	return fmt.Errorf("--metrics-bind-address and --health-probe-bind-address are both %q: give each its own port", o.MetricsBindAddress)
}

func (o Options) validateMetricsCert() error {
	if o.MetricsCertPath == "" {
		return nil
	}
	if !o.MetricsSecure {
		return errors.New("--metrics-cert-path needs --metrics-secure: drop one of them")
	}
	if o.MetricsCertName == "" || o.MetricsCertKey == "" {
		return errors.New("--metrics-cert-path needs file names in --metrics-cert-name and --metrics-cert-key")
	}
	cert, key := o.metricsCertFiles()
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return fmt.Errorf("--metrics-cert-path %q has no usable certificate: %w", o.MetricsCertPath, err)
	}
	return nil
}

func (o Options) metricsCertFiles() (cert, key string) {
	return filepath.Join(o.MetricsCertPath, o.MetricsCertName), filepath.Join(o.MetricsCertPath, o.MetricsCertKey)
}

func (o Options) validateLeaderElection() error {
	if !o.LeaderElect {
		return nil
	}
	var errs []error
	if problems := validation.IsDNS1123Subdomain(o.LeaderElectionID); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--leader-election-id %q cannot name a Lease: %s", o.LeaderElectionID, problems[0]))
	}
	if ns := o.LeaderElectionNamespace; ns != "" {
		if problems := validation.IsDNS1123Label(ns); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--leader-election-namespace %q is not a namespace: %s", ns, problems[0]))
		}
	}
	switch {
	case o.RetryPeriod <= 0:
		errs = append(errs, positive("--leader-election-retry-period", o.RetryPeriod))
	case o.LeaseDuration < time.Second:
		errs = append(errs, fmt.Errorf("--leader-election-lease-duration %s is below one second, the unit of a Lease", o.LeaseDuration))
	case o.LeaseDuration <= o.RenewDeadline:
		errs = append(errs, fmt.Errorf("--leader-election-lease-duration %s must be longer than --leader-election-renew-deadline %s",
			o.LeaseDuration, o.RenewDeadline))
	case float64(o.RenewDeadline) <= renewJitter*float64(o.RetryPeriod):
		errs = append(errs, fmt.Errorf("--leader-election-renew-deadline %s must be longer than 1.2 times --leader-election-retry-period %s",
			o.RenewDeadline, o.RetryPeriod))
	}
	return errors.Join(errs...)
}

func positive(flag string, d time.Duration) error {
	if d > 0 {
		return nil
	}
	return fmt.Errorf("%s %s must be longer than zero", flag, d)
}
