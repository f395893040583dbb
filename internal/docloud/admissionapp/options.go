// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/docloud/defaults"
	"github.com/mooring-dev/mooring/internal/docloud/doapi/metadata"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/logging/plain"
)

// Environment variables. Those without a word are the upstream project's, with its meaning: MUST NOT change.
const (
	envToken       = "DO_ACCESS_TOKEN"
	envTokenFile   = "DO_ACCESS_TOKEN_FILE" // Mooring's own: a token that may rotate
	envURL         = "DO_OVERRIDE_URL"
	envQPS         = "DO_API_RATE_LIMIT_QPS" // of the controller; here too
	envRegion      = "REGION"
	envClusterID   = "DO_CLUSTER_ID"
	envVPC         = "DO_CLUSTER_VPC_ID"
	envDefaultType = "DEFAULT_LB_TYPE"
	envMetricsAddr = "METRICS_ADDR"
	envMetadataURL = "DO_METADATA_URL" // Mooring's own: for simulators
)

const (
	// certDir is where the upstream project's manifests mount the certificate (controller-runtime's default).
	certDir = "/tmp/k8s-webhook-server/serving-certs"
	// disabled is the address of an endpoint that is not served.
	disabled = "0"
)

// options are the flags and variables.
type options struct {
	logging                                       plain.Options
	webhookAddress, healthAddress, metricsAddress string
	certDir                                       string
	tokenFile, defaultsFile                       string
	ask                                           bool
	askTimeout                                    time.Duration
	drainDelay, drainTimeout                      time.Duration

	token, url, metadataURL string
	qps                     float64
	cluster                 loadbalancer.Cluster
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	o.logging.AddFlags(flags)
	flags.StringVar(&o.webhookAddress, "webhook-bind-address", ":9443", "Where the webhook is served, over HTTPS.")
	flags.StringVar(&o.certDir, "cert-dir", certDir,
		"Folder with tls.crt and tls.key, which may be replaced at any time.")
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", `Where /healthz and /readyz are served, "0" for nowhere.`)
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", `Where /metrics is served, "0" for nowhere. Also `+envMetricsAddr+".")
	flags.StringVar(&o.tokenFile, "token-file", "",
		"File with the DigitalOcean token, which may be replaced at any time. Also "+envTokenFile+"; a token that does not change may be in "+envToken+
			". Without a token DigitalOcean is not queried.")
	defaults.AddFlag(flags, &o.defaultsFile)
	flags.BoolVar(&o.ask, "ask-digitalocean", true, "Query DigitalOcean, with a request that changes nothing, whether it would accept a load balancer.")
	flags.DurationVar(&o.askTimeout, "ask-timeout", 3*time.Second, "How long DigitalOcean may take to respond; after it the Service is allowed with a warning.")
	flags.DurationVar(&o.drainDelay, "drain-delay", 5*time.Second, "How long requests are still accepted after a termination signal, until the API server has removed this pod from the endpoints.")
	flags.DurationVar(&o.drainTimeout, "drain-timeout", 15*time.Second, "How long requests may take to end after that.")
}

// complete reads the variables and checks all of it. An error is one sentence.
func (o *options) complete(flags *pflag.FlagSet, getenv func(string) string) error {
	o.token, o.url = strings.TrimSpace(getenv(envToken)), getenv(envURL)
	o.tokenFile = cmp.Or(o.tokenFile, getenv(envTokenFile))
	o.metadataURL = cmp.Or(getenv(envMetadataURL), metadata.DefaultURL)
	if address := getenv(envMetricsAddr); address != "" && !flags.Changed("metrics-bind-address") {
		o.metricsAddress = address
	}
	o.cluster = loadbalancer.Cluster{ID: getenv(envClusterID), Region: getenv(envRegion), VPC: getenv(envVPC), DefaultType: getenv(envDefaultType)}
	var err error
	if o.cluster.Defaults, _, err = defaults.Load(getenv, o.defaultsFile); err != nil {
		return err
	}
	if text := getenv(envQPS); text != "" {
		qps, err := strconv.ParseFloat(text, 64)
		if err != nil || qps <= 0 || math.IsNaN(qps) || math.IsInf(qps, 0) {
			return fmt.Errorf("%s is %q: it must be a positive number of calls per second", envQPS, text)
		}
		o.qps = qps
	}
	if o.token != "" && o.tokenFile != "" {
		return fmt.Errorf("there are two DigitalOcean tokens, %s and the file %s: give one of them", envToken, o.tokenFile)
	}
	return errors.Join(o.logging.Validate(), o.checkAddresses(), o.checkTimes())
}

func (o *options) checkAddresses() error {
	var errs []error
	for _, one := range []struct {
		flag, address string
		optional      bool
	}{
		{"--webhook-bind-address", o.webhookAddress, false}, {"--health-probe-bind-address", o.healthAddress, true},
		{"--metrics-bind-address", o.metricsAddress, true},
	} {
		if one.optional && one.address == disabled {
			continue
		}
		if _, _, err := net.SplitHostPort(one.address); err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: it must be HOST:PORT, such as :9443", one.flag, one.address))
		}
	}
	return errors.Join(errs...)
}

func (o *options) checkTimes() error {
	switch {
	case o.askTimeout <= 0:
		return fmt.Errorf("--ask-timeout is %s: it must be more than 0; --ask-digitalocean=false asks nothing", o.askTimeout)
	case o.drainDelay < 0 || o.drainTimeout < 0:
		return errors.New("--drain-delay and --drain-timeout must not be negative")
	}
	return nil
}

// asks reports whether DigitalOcean can be asked.
func (o *options) asks() bool { return o.ask && (o.token != "" || o.tokenFile != "") }
