// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/defaults"
	"github.com/mooring-dev/mooring/internal/docloud/doapi/metadata"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// Environment variables. Those without a word are the upstream project's, with its meaning and defaults: MUST NOT change.
const (
	envToken        = "DO_ACCESS_TOKEN"
	envTokenFile    = "DO_ACCESS_TOKEN_FILE" // Mooring's own: a token that may rotate
	envURL          = "DO_OVERRIDE_URL"
	envQPS          = "DO_API_RATE_LIMIT_QPS"
	envRegion       = "REGION"
	envClusterID    = "DO_CLUSTER_ID"
	envVPC          = "DO_CLUSTER_VPC_ID"
	envDefaultType  = "DEFAULT_LB_TYPE"
	envFirewallName = "PUBLIC_ACCESS_FIREWALL_NAME"
	envFirewallTags = "PUBLIC_ACCESS_FIREWALL_TAGS"
	envDebugAddr    = "DEBUG_ADDR"
	envMetricsAddr  = "METRICS_ADDR"
	envMetadataURL  = "DO_METADATA_URL"          // Mooring's own: for simulators
	envNodeLabels   = "DO_NODE_LABELS_FROM_TAGS" // Mooring's own: TAG=LABEL,…
)

// environment is what the environment variables say, checked as far as that needs nobody else.
type environment struct {
	token, tokenFile                    string
	url, metadataURL                    string
	qps                                 float64
	region, clusterID, vpc, defaultType string
	firewallName                        string
	ports                               firewall.Config // --firewall-allow-reserved-ports, --firewall-reserved-ports
	takeOver                            bool            // --allow-load-balancer-take-over
	domains                             []string        // --allow-certificate-domains
	requireTag                          bool            // --require-cluster-tag
	startupTaint                        bool            // --volume-startup-taint
	outOfService                        outOfServiceOptions
	mode                                outputs.Mode // --mode
	firewallTags                        []string     // without blanks, none of them empty; there are some if and only if there is a name
	debugAddr, metricsAddr              string
	defaults                            annotation.Defaults
	doubts                              []annotation.Warning // about the defaults
	nodeLabels                          instance.TagLabels
}

// readEnvironment reads the variables. tokenFile is the value of --token-file, which goes before its variable. An error is one sentence.
func readEnvironment(getenv func(string) string, tokenFile string) (environment, error) {
	e := environment{
		token: getenv(envToken), tokenFile: tokenFile, url: getenv(envURL), metadataURL: getenv(envMetadataURL), region: getenv(envRegion),
		clusterID: getenv(envClusterID), vpc: getenv(envVPC), defaultType: getenv(envDefaultType),
		debugAddr: getenv(envDebugAddr), metricsAddr: getenv(envMetricsAddr),
	}
	e.tokenFile = cmp.Or(e.tokenFile, getenv(envTokenFile))
	e.metadataURL = cmp.Or(e.metadataURL, metadata.DefaultURL)
	switch {
	case e.token == "" && e.tokenFile == "":
		return e, fmt.Errorf("there is no DigitalOcean token: set %s, or name a file with --token-file or %s", envToken, envTokenFile)
	case e.token != "" && e.tokenFile != "":
		return e, fmt.Errorf("there are two DigitalOcean tokens, %s and the file %s: give one of them", envToken, e.tokenFile)
	}
	if text := getenv(envQPS); text != "" {
		qps, err := strconv.ParseFloat(text, 64)
		if err != nil || qps <= 0 || math.IsNaN(qps) || math.IsInf(qps, 0) {
			return e, fmt.Errorf("%s is %q: it must be a positive number of calls per second", envQPS, text)
		}
		e.qps = qps
	}
	if err := e.readFirewall(getenv); err != nil {
		return e, err
	}
	var err error
	if e.nodeLabels, err = instance.ParseTagLabels(getenv(envNodeLabels)); err != nil {
		return e, fmt.Errorf("%s: %w", envNodeLabels, err)
	}
	return e, e.checkAddresses()
}

// readDefaults reads the defaults for annotations. file is the value of the flag, which goes before its variable.
func (e *environment) readDefaults(getenv func(string) string, file string) (err error) {
	e.defaults, e.doubts, err = defaults.Load(getenv, file)
	return err
}

// readFirewall reads which firewall is to be managed. Unlike the upstream project it takes blanks around tags for what they are.
func (e *environment) readFirewall(getenv func(string) string) error {
	name, tags := strings.TrimSpace(getenv(envFirewallName)), getenv(envFirewallTags)
	for tag := range strings.SplitSeq(tags, ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			e.firewallTags = append(e.firewallTags, tag)
		}
	}
	if (name == "") != (len(e.firewallTags) == 0) {
		return fmt.Errorf("%s is %q and %s is %q: set both to let a firewall be managed, or neither", envFirewallName, name, envFirewallTags, tags)
	}
	e.firewallName = name
	return nil
}

func (e environment) checkAddresses() error {
	for variable, address := range map[string]string{envDebugAddr: e.debugAddr, envMetricsAddr: e.metricsAddr} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			return fmt.Errorf("%s is %q: it must be HOST:PORT, such as 127.0.0.1:9100, or unset", variable, address)
		}
	}
	return nil
}

// withoutToken returns the error, without the token where that was pasted into a variable that it does not belong in and whose value is shown.
func (e environment) withoutToken(err error) error {
	token := strings.TrimSpace(e.token)
	if token == "" || !strings.Contains(err.Error(), token) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), token, "(the token)"))
}
