// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/platform/logging/plain"
)

const (
	// metadataURL is where a droplet finds its metadata service.
	metadataURL = "http://169.254.169.254/"
	// defaultEndpoint is that of csi-digitalocean.
	defaultEndpoint = "unix:///var/lib/kubelet/plugins/" + csi.DriverName + "/csi.sock"
)

// driverNames is what the Container Storage Interface takes as a driver's name.
var driverNames = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,61}[a-zA-Z0-9])?$`)

// options are the flags. Those of csi-digitalocean keep their names and meanings: MUST NOT change.
type options struct {
	logging           plain.Options
	endpoint          string
	token, tokenFile  string
	url, metadataURL  string
	region, dropletID string
	tag, driverName   string
	debugAddress      string
	metricsAddress    string
	qps               float64
	volumeLimit       int
	pollInterval      time.Duration
	links, sysfs      string
	linkWait          time.Duration
	registrationDir   string
	registrationPath  string
	automountRule     string

	pageSize uint // kept for old command lines
	validate bool // kept for old command lines
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	o.logging.AddFlags(flags)
	flags.StringVar(&o.endpoint, "endpoint", defaultEndpoint, "Unix socket on which the driver serves.")
	flags.StringVar(&o.token, "token", "", "DigitalOcean token. With it, or with --token-file, this is the controller; without one it is the node plugin.")
	flags.StringVar(&o.tokenFile, "token-file", "", "File with the DigitalOcean token, which may be replaced at any time.")
	flags.StringVar(&o.url, "url", "https://api.digitalocean.com/", "URL of DigitalOcean's API.")
	flags.StringVar(&o.metadataURL, "metadata-url", metadataURL, "URL of the metadata service, which knows the region and, for the node plugin, the droplet.")
	flags.StringVar(&o.region, "region", "", "Region of the volumes. If empty, the metadata service is queried, which works only on a droplet.")
	flags.StringVar(&o.dropletID, "droplet-id", "", "ID of the droplet on which the node plugin runs; for the controller, of any droplet of the cluster, which shows that the token is of the right account. If empty, the metadata service is queried.")
	flags.StringVar(&o.tag, "do-tag", "", "Tag for all volumes and snapshots that the driver creates.")
	flags.StringVar(&o.driverName, "driver-name", csi.DriverName, "Name of the driver.")
	flags.StringVar(&o.debugAddress, "debug-addr", "", "HOST:PORT where /health, /healthz and /readyz are served. If empty, they are not served.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "", "HOST:PORT where /metrics is served, which may be that of --debug-addr. If empty, it is not served.")
	flags.Float64Var(&o.qps, "do-api-rate-limit", 0, "Maximum number of calls to DigitalOcean's API per second; 0 means only DigitalOcean's own limit.")
	flags.IntVar(&o.volumeLimit, "volume-limit", assumed.VolumesPerDroplet, "How many volumes a droplet can have, including those attached by hand.")
	flags.DurationVar(&o.pollInterval, "action-poll-interval", csi.DefaultPollInterval, "Minimum time between calls about actions in progress.")
	flags.StringVar(&o.links, "device-links", "/dev/disk/by-id", "Folder with the links to devices.")
	flags.StringVar(&o.sysfs, "device-sysfs", "/sys", "Folder where the kernel describes devices: their vendor, serial and size.")
	flags.DurationVar(&o.linkWait, "device-wait", 30*time.Second, "How long a device's link may take to appear after the attachment.")
	flags.StringVar(&o.registrationDir, "registration-dir", "/registration", "Path in this container of the folder in which the kubelet looks for plugins.")
	flags.StringVar(&o.registrationPath, "kubelet-registration-path", "",
		"Path of the driver's socket on the host, as the kubelet opens it. If set, the node plugin registers itself with the kubelet; otherwise run node-driver-registrar.")
	flags.StringVar(&o.automountRule, "remove-automount-rule", "",
		"File of the udev rule with which DigitalOcean's droplets briefly mount new volumes, which makes them busy. The node plugin removes it. If empty, nothing is removed.")
	flags.UintVar(&o.pageSize, "default-volumes-page-size", 0, "Accepted for compatibility, without effect: pages have 200 volumes, DigitalOcean's maximum.")
	flags.BoolVar(&o.validate, "validate-attachment", false, "Accepted for compatibility, without effect: the device is always checked.")
}

// controller reports whether this process is the controller.
func (o *options) controller() bool { return o.token != "" || o.tokenFile != "" }

// complete checks all of it. An error is one sentence.
func (o *options) complete() error {
	o.token = strings.TrimSpace(o.token)
	switch {
	case o.token != "" && o.tokenFile != "":
		return errors.New("there are two DigitalOcean tokens, --token and --token-file: give one of them")
	case !driverNames.MatchString(o.driverName):
		return fmt.Errorf("--driver-name is %q: it must be a domain name of at most 63 characters, such as %s", o.driverName, csi.DriverName)
	case o.qps < 0 || math.IsNaN(o.qps) || math.IsInf(o.qps, 0):
		return fmt.Errorf("--do-api-rate-limit is %v: it must be a number of calls per second, or 0", o.qps)
	case o.registrationPath != "" && o.controller():
		return errors.New("--kubelet-registration-path is for the node plugin, which has no token: remove it from the controller")
	}
	if o.tag != "" {
		if err := volume.CheckTag(o.tag); err != nil {
			return fmt.Errorf("--do-tag: %w", err)
		}
	}
	if _, err := socketPath(o.endpoint); err != nil {
		return err
	}
	return errors.Join(o.checkNumbers(), o.checkAutomountRule(), o.logging.Validate(), checkAddress("--debug-addr", o.debugAddress), checkAddress("--metrics-bind-address", o.metricsAddress))
}

func (o *options) checkNumbers() error {
	switch {
	case o.volumeLimit < 1:
		return fmt.Errorf("--volume-limit is %d: it must be at least 1; DigitalOcean attaches up to %d", o.volumeLimit, assumed.VolumesPerDroplet)
	case o.pollInterval < 10*time.Millisecond:
		return fmt.Errorf("--action-poll-interval is %s: it must be at least 10ms; DigitalOcean takes 250 calls in a minute", o.pollInterval)
	case o.linkWait <= 0:
		return fmt.Errorf("--device-wait is %s: it must be more than 0", o.linkWait)
	case o.registrationPath != "" && !filepath.IsAbs(o.registrationPath):
		return fmt.Errorf("--kubelet-registration-path is %q: it must be an absolute path on the host", o.registrationPath)
	}
	return nil
}

func (o *options) checkAutomountRule() error {
	switch {
	case o.automountRule == "":
		return nil
	case o.controller():
		return errors.New("--remove-automount-rule is for the node plugin, which has no token: remove it from the controller")
	case filepath.Ext(o.automountRule) != ".rules" || !filepath.IsAbs(o.automountRule):
		return fmt.Errorf("--remove-automount-rule is %q: it must be the absolute path of a file that ends in .rules", o.automountRule)
	}
	return nil
}

func checkAddress(flag, address string) error {
	if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
		return fmt.Errorf("%s is %q: it must be HOST:PORT, such as :9910, or empty", flag, address)
	}
	return nil
}

// socketPath reads --endpoint.
func socketPath(endpoint string) (string, error) {
	path, found := strings.CutPrefix(endpoint, "unix://")
	if !found {
		path, found = strings.CutPrefix(endpoint, "unix:")
	}
	if !found || !filepath.IsAbs(path) {
		return "", fmt.Errorf("--endpoint is %q: it must be a Unix socket, such as %s", endpoint, defaultEndpoint)
	}
	return path, nil
}

// withoutToken returns the error without the token, should that be pasted where it is shown.
func (o *options) withoutToken(err error) error {
	if err == nil || o.token == "" || !strings.Contains(err.Error(), o.token) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), o.token, "(the token)"))
}
