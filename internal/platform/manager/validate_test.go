// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/spf13/pflag"
	certutil "k8s.io/client-go/util/cert"
)

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	const advice = `: write host:port or ":port", or "0" to turn the endpoint off`
	tests := map[string]struct {
		change func(o *Options)
		want   []string
	}{
		"the defaults":           {func(*Options) {}, nil},
		"everything off":         {func(o *Options) { o.MetricsBindAddress, o.HealthProbeBindAddress = "0", "0" }, nil},
		"addresses of all kinds": {func(o *Options) { o.MetricsBindAddress, o.HealthProbeBindAddress = "[::1]:8443", "localhost:0" }, nil},
		"two free ports":         {func(o *Options) { o.MetricsBindAddress, o.HealthProbeBindAddress = "127.0.0.1:0", "127.0.0.1:0" }, nil},
		"a bare port":            {func(o *Options) { o.MetricsBindAddress = "8443" }, []string{`--metrics-bind-address "8443" is not an address to listen on` + advice}},
		"an empty address":       {func(o *Options) { o.HealthProbeBindAddress = "" }, []string{`--health-probe-bind-address "" is not an address to listen on` + advice}},
		"a port out of range":    {func(o *Options) { o.MetricsBindAddress = ":70000" }, []string{`--metrics-bind-address ":70000" has no port between 0 and 65535` + advice}},
		"no host name": {func(o *Options) { o.MetricsBindAddress = "a b:1" },
			[]string{`--metrics-bind-address "a b:1" has neither an IP address nor a host name before port 1` + advice}},
		"one port for two": {func(o *Options) { o.MetricsBindAddress, o.HealthProbeBindAddress = ":1", ":1" },
			[]string{`--metrics-bind-address and --health-probe-bind-address are both ":1": give each its own port`}},
		"certificate without TLS": {func(o *Options) { o.MetricsSecure, o.MetricsCertPath = false, "/x" },
			[]string{`--metrics-cert-path needs --metrics-secure: drop one of them`}},
		"certificate without names": {func(o *Options) { o.MetricsCertPath, o.MetricsCertKey = "/x", "" },
			[]string{`--metrics-cert-path needs file names in --metrics-cert-name and --metrics-cert-key`}},
		"certificate missing": {func(o *Options) { o.MetricsCertPath = "/nonexistent" },
			[]string{`--metrics-cert-path "/nonexistent" has no usable certificate: open /nonexistent/tls.crt: no such file or directory`}},
		"bad times do not matter without election": {func(o *Options) { o.LeaseDuration, o.LeaderElectionID = 0, "" }, nil},
		"election in order":                        {func(o *Options) { o.LeaderElect = true }, nil},
		"lease shorter than deadline": {func(o *Options) { o.LeaderElect, o.LeaseDuration = true, 5*time.Second },
			[]string{`--leader-election-lease-duration 5s must be longer than --leader-election-renew-deadline 10s`}},
		"lease below a second": {func(o *Options) { o.LeaderElect, o.LeaseDuration = true, time.Millisecond },
			[]string{`--leader-election-lease-duration 1ms is below one second, the unit of a Lease`}},
		"deadline too near the period": {func(o *Options) { o.LeaderElect, o.RenewDeadline = true, 2400*time.Millisecond },
			[]string{`--leader-election-renew-deadline 2.4s must be longer than 1.2 times --leader-election-retry-period 2s`}},
		"no period": {func(o *Options) { o.LeaderElect, o.RetryPeriod = true, 0 },
			[]string{`--leader-election-retry-period 0s must be longer than zero`}},
		"all problems at once": {func(o *Options) {
			o.LeaderElect, o.LeaderElectionID, o.LeaderElectionNamespace, o.GracefulShutdownTimeout = true, "", "No", 0
		}, []string{
			`--leader-election-id "" cannot name a Lease: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters`,
			`--leader-election-namespace "No" is not a namespace: a lowercase RFC 1123 label must consist of lower case alphanumeric characters`,
			`--graceful-shutdown-timeout 0s must be longer than zero`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := DefaultOptions("test")
			tt.change(&o)
			got := lines(o.Validate())
			for i, line := range got { // apimachinery's explanation goes on
				if head, _, found := strings.Cut(line, "characters, "); found {
					got[i] = head + "characters"
				} else if head, _, found := strings.Cut(line, "characters or "); found {
					got[i] = head + "characters"
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems differ (-want +got):\n%s", diff)
			}
		})
	}
}

// The names and defaults are kubebuilder's, in manifests everywhere; they MUST not change.
func TestFlagNamesAndDefaults(t *testing.T) {
	t.Parallel()
	o := DefaultOptions("calico-node-sync")
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	o.AddFlags(fs)
	got := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) {
		got[f.Name] = f.DefValue
		if f.Usage == "" || !strings.HasSuffix(f.Usage, ".") {
			t.Errorf("--%s has no sentence for its help: %q", f.Name, f.Usage)
		}
	})
	want := map[string]string{
		"kubeconfig": "", "master": "",
		"metrics-bind-address": ":8443", "metrics-secure": "true",
		"metrics-cert-path": "", "metrics-cert-name": "tls.crt", "metrics-cert-key": "tls.key", "enable-http2": "false",
		"health-probe-bind-address": ":8081",
		"mode":                      "enforce",
		"leader-elect":              "false", "leader-election-id": "calico-node-sync", "leader-election-namespace": "",
		"leader-election-lease-duration": "15s", "leader-election-renew-deadline": "10s", "leader-election-retry-period": "2s",
		"graceful-shutdown-timeout": "20s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags differ (-want +got):\n%s", diff)
	}
}

func TestMetricsCertificateIsChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	must.Do(t, err)
	for name, data := range map[string][]byte{"a.crt": cert, "a.key": key, "b.key": cert} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	o := DefaultOptions("test")
	o.MetricsCertPath, o.MetricsCertName, o.MetricsCertKey = dir, "a.crt", "a.key"
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	o.MetricsCertKey = "b.key"
	if got := lines(o.Validate()); len(got) != 1 || !strings.Contains(got[0], "has no usable certificate") {
		t.Errorf("a key file without a key: %q", got)
	}
}

func TestNamespaceForTheLease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := DefaultOptions("test")
	if err := o.validateNamespace(dir); err != nil {
		t.Errorf("without election: %v", err)
	}
	o.LeaderElect = true
	if err := o.validateNamespace(dir); err == nil || !strings.HasPrefix(err.Error(), "--leader-elect needs --leader-election-namespace outside of a Pod") {
		t.Errorf("outside of a Pod: %v", err)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "namespace"), []byte("kube-system"), 0o600))
	if err := o.validateNamespace(dir); err != nil {
		t.Errorf("inside of a Pod: %v", err)
	}
}

func TestOccupiedPort(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	defer l.Close()
	addr := l.Addr().String()
	want := `--metrics-bind-address "` + addr + `" cannot be listened on, choose another address or "0" to turn the endpoint off: bind: address already in use`
	if err := checkPortFree(t.Context(), "--metrics-bind-address", addr); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, addr := range []string{Disabled, "127.0.0.1:0"} {
		if err := checkPortFree(t.Context(), "--x", addr); err != nil {
			t.Error(err)
		}
	}
}
