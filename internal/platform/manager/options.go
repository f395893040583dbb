// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// Disabled is the bind address that turns an endpoint off, as in kubebuilder.
const Disabled = "0"

// Options are the manager's flags. Start from [DefaultOptions].
type Options struct {
	// Kubeconfig is a path; empty means the Pod's service account.
	Kubeconfig string
	// Master overrides the API server's URL of the kubeconfig; alone, it is used without credentials.
	Master string

	// MetricsBindAddress is host:port, or "0" for no metrics.
	MetricsBindAddress string
	// MetricsSecure serves metrics over TLS, to authorized clients only.
	MetricsSecure bool
	// MetricsCertPath is the directory of the serving certificate; empty means self-signed.
	MetricsCertPath string
	// MetricsCertName and MetricsCertKey are file names in MetricsCertPath.
	MetricsCertName string
	MetricsCertKey  string
	// EnableHTTP2 allows HTTP/2 on the metrics endpoint; off, because of its history of denial of service.
	EnableHTTP2 bool

	// HealthProbeBindAddress is host:port, or "0" for no /healthz and /readyz.
	HealthProbeBindAddress string

	// Mode is whether plans are applied.
	Mode outputs.Mode

	// LeaderElect makes sure that one replica works at a time.
	LeaderElect bool
	// LeaderElectionID is the name of the Lease.
	LeaderElectionID string
	// LeaderElectionNamespace is the Lease's namespace; empty means the Pod's own.
	LeaderElectionNamespace string
	// LeaseDuration, RenewDeadline and RetryPeriod are client-go's, with its relations between them.
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration

	// GracefulShutdownTimeout is how long running work may take to stop.
	GracefulShutdownTimeout time.Duration
}

// DefaultOptions are the defaults of the binary whose lease is called leaderElectionID.
func DefaultOptions(leaderElectionID string) Options {
	return Options{
		Mode:                    outputs.Enforce,
		MetricsBindAddress:      ":8443",
		MetricsSecure:           true,
		MetricsCertName:         "tls.crt",
		MetricsCertKey:          "tls.key",
		HealthProbeBindAddress:  ":8081",
		LeaderElectionID:        leaderElectionID,
		LeaseDuration:           15 * time.Second,
		RenewDeadline:           10 * time.Second,
		RetryPeriod:             2 * time.Second,
		GracefulShutdownTimeout: 20 * time.Second,
	}
}

// AddFlags binds the options to flags; the values o holds are the defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Path to a kubeconfig file. Unset means the service account of the Pod; KUBECONFIG and ~/.kube/config are never read.")
	fs.StringVar(&o.Master, "master", o.Master,
		"URL of the API server, in place of the kubeconfig's. Without --kubeconfig no credentials are used.")

	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress,
		`Address of the metrics endpoint, host:port; "0" turns it off.`)
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure,
		"Serve metrics over HTTPS, to clients that the API server authenticates and authorizes.")
	fs.StringVar(&o.MetricsCertPath, "metrics-cert-path", o.MetricsCertPath,
		"Directory of the metrics server's certificate and key, reloaded when they change. Unset means self-signed.")
	fs.StringVar(&o.MetricsCertName, "metrics-cert-name", o.MetricsCertName, "Certificate file in --metrics-cert-path.")
	fs.StringVar(&o.MetricsCertKey, "metrics-cert-key", o.MetricsCertKey, "Key file in --metrics-cert-path.")
	fs.BoolVar(&o.EnableHTTP2, "enable-http2", o.EnableHTTP2, "Allow HTTP/2 on the metrics endpoint.")

	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress,
		`Address of /healthz and /readyz, host:port; "0" turns them off.`)

	fs.StringVar((*string)(&o.Mode), "mode", string(o.Mode), outputs.ModeUsage)

	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect,
		"Elect a leader, so that one of several replicas works at a time.")
	fs.StringVar(&o.LeaderElectionID, "leader-election-id", o.LeaderElectionID, "Name of the Lease for leader election.")
	fs.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", o.LeaderElectionNamespace,
		"Namespace of the Lease for leader election. Unset means the Pod's own.")
	fs.DurationVar(&o.LeaseDuration, "leader-election-lease-duration", o.LeaseDuration,
		"How long a lease that is not renewed keeps others from taking over.")
	fs.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", o.RenewDeadline,
		"How long the leader tries to renew before it gives up and exits.")
	fs.DurationVar(&o.RetryPeriod, "leader-election-retry-period", o.RetryPeriod, "Time between attempts to acquire or renew.")

	fs.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout,
		"How long running work may take to stop after SIGTERM.")
}
