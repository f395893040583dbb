// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operatorapp

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mooring-dev/mooring/internal/etcdstorage/controller"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/logging"
	"github.com/mooring-dev/mooring/internal/platform/manager"
)

// leaseName is the Lease that replicas compete for. MUST NOT change: two versions with different Leases would both lead.
const leaseName = "etcd-storage-operator.etcd.mooring.dev"

// Defaults of etcdproxy-controller. MUST NOT change: its users leave the flags out.
const (
	defaultCAConfigMap = "etcd-coreserving-ca"
	defaultCertsSecret = "etcd-coreserving-cert"
	defaultNamespace   = "kube-apiserver-storage"
)

// defaultProxyImage is the image of the same build.
const defaultProxyImage = "mooring/etcd-storage-proxy:dev"

// upkeepPeriod is the time between two looks at the space of the core's members: each is one call for each member.
const upkeepPeriod = time.Minute

// leastQuotaBytes is the least --default-quota-bytes: an API server that stores nothing but its own objects takes some of it.
const leastQuotaBytes = 1 << 20

// Values of --core-tenant-users.
const (
	usersAuto = "auto"
	usersOff  = "off"
)

// options are the operator's flags.
type options struct {
	manager     manager.Options
	logging     logging.Options
	timing      controller.Timing
	settings    operator.Settings
	adminSecret string
	tenantUsers string
	defragment  bool
	quotaBytes  string
}

func newOptions() *options {
	return &options{
		manager: manager.DefaultOptions(leaseName), timing: controller.DefaultTiming(), tenantUsers: usersAuto, quotaBytes: "0",
		settings: operator.Settings{
			Namespace: defaultNamespace, ClusterDomain: "cluster.local", ProxyImage: defaultProxyImage, CAConfigMap: defaultCAConfigMap,
			CertsSecret: defaultCertsSecret, UserRotation: 30 * 24 * time.Hour,
		},
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	common := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.manager.AddFlags(common)
	common.VisitAll(func(f *pflag.Flag) {
		if f.Name == "kubeconfig" {
			f.Shorthand = "k" // etcdproxy-controller's
		}
		fs.AddFlag(f)
	})
	o.logging.AddFlags(fs)
	s := &o.settings
	fs.StringSliceVarP(&s.CoreURLs, "etcd-core-url", "u", s.CoreURLs, "Client URLs of the core etcd, https://host:port, with commas between several or repeated (required).")
	fs.StringVar(&s.CAConfigMap, "etcd-core-ca-configmap", s.CAConfigMap,
		"ConfigMap in --namespace with the CA bundle that signed the core's certificate, key ca.crt or ca.pem.")
	fs.StringVar(&s.CertsSecret, "etcd-core-certs-secret", s.CertsSecret,
		"Secret in --namespace with the client certificate of the proxies for the core, keys tls.crt and tls.key, or client.pem and client-key.pem. "+
			"If authentication is enabled in the core, its common name must not be an etcd user.")
	fs.StringVar(&s.CertsSecret, "etcd-core-ca-secret", s.CertsSecret, "Another name of --etcd-core-certs-secret.")
	fs.StringVar(&o.adminSecret, "etcd-core-admin-secret", o.adminSecret,
		"Secret in --namespace with the operator's own credentials for the core: username and password, or tls.crt and tls.key, or all of them. No proxy gets it. "+
			"Unset means --etcd-core-certs-secret.")
	fs.StringVar(&o.tenantUsers, "core-tenant-users", o.tenantUsers,
		`"auto" gives each tenant an etcd user and a role of its own if authentication is enabled in the core; "off" never does.`)
	fs.DurationVar(&s.UserRotation, "core-user-rotation", s.UserRotation, "How long an etcd user of a tenant is used before it is replaced; 0 means forever.")
	fs.StringVarP(&s.Namespace, "namespace", "n", s.Namespace, "Namespace of the proxies, and of the Secrets and ConfigMaps above.")
	fs.StringVar(&s.ProxyImage, "etcd-proxy-image", s.ProxyImage, "Image of etcd-storage-proxy. etcd's own image has another command and does not work.")
	fs.StringSliceVar(&s.PullSecrets, "etcd-proxy-image-pull-secrets", s.PullSecrets,
		"Secrets in --namespace with which --etcd-proxy-image is pulled, with commas between several or repeated. Unset means those of the namespace's account default.")
	fs.StringVar(&s.ClusterDomain, "cluster-domain", s.ClusterDomain, "Domain of the cluster's names.")
	fs.DurationVar(&o.timing.Resync, "resync-period", o.timing.Resync, "The resync period of an EtcdStorage; 10s to 24h.")
	fs.DurationVar(&o.timing.Retry, "retry-period", o.timing.Retry, "The time between retries while a right or the core is missing; 1s to 1h.")
	fs.DurationVar(&o.timing.Measure, "measure-period", o.timing.Measure, "The time between two counts of the tenants' storage; 1s to 24h.")
	fs.DurationVar(&o.timing.History, "core-history", o.timing.History,
		"How long the core's history is kept before the operator compacts it; 1m to 24h. 0 leaves compaction to the core (etcd's --auto-compaction-retention).")
	fs.StringVar(&o.quotaBytes, "default-quota-bytes", o.quotaBytes,
		"Limit of the storage of a tenant whose EtcdStorage does not set spec.quota.bytes, such as 128Mi; 0 means no limit. A change rolls the proxies of these tenants.")
	fs.Int64Var(&s.OvercommitPercent, "core-overcommit-percent", s.OvercommitPercent,
		"New EtcdStorages are refused if all tenants of the core may then store and write, between two compactions, more than this part of the quota of its smallest "+
			"member, in percent; 0 refuses none.")
	fs.BoolVar(&o.defragment, "core-defragment", o.defragment,
		"Defragment the core's members, one at a time and the leader last, where half of the file or more is free, and disarm the alarm NOSPACE when all have space "+
			"again. A member does not serve meanwhile, some seconds for each GiB.")
}

// validate reports every mistake in the flags, joined, one sentence each.
func (o *options) validate() error {
	o.settings.TenantUsers = o.tenantUsers == usersAuto
	if o.defragment {
		o.timing.Upkeep = upkeepPeriod
	}
	errs := []error{o.manager.Validate(), o.logging.Validate(), o.checkURLs(), o.checkPullSecrets(), o.readQuota()}
	if o.tenantUsers != usersAuto && o.tenantUsers != usersOff {
		errs = append(errs, fmt.Errorf(`--core-tenant-users %q: must be "auto" or "off"`, o.tenantUsers))
	}
	if d := o.settings.UserRotation; d != 0 && d < 10*time.Minute {
		errs = append(errs, fmt.Errorf("--core-user-rotation %s: must be 0 or at least 10m, since every proxy is replaced in it", d))
	}
	if len(validation.IsDNS1123Label(o.settings.Namespace)) > 0 {
		errs = append(errs, fmt.Errorf("--namespace %q is not a namespace: use lower case letters, digits and '-'", o.settings.Namespace))
	}
	if o.settings.ProxyImage == "" {
		errs = append(errs, errors.New("--etcd-proxy-image is empty: name the image of etcd-storage-proxy"))
	}
	if len(validation.IsDNS1123Subdomain(o.settings.ClusterDomain)) > 0 {
		errs = append(errs, fmt.Errorf("--cluster-domain %q is not a domain: write it without dots at its ends, such as cluster.local", o.settings.ClusterDomain))
	}
	for _, f := range []struct {
		flag, name string
		optional   bool
	}{
		{"--etcd-core-ca-configmap", o.settings.CAConfigMap, false}, {"--etcd-core-certs-secret", o.settings.CertsSecret, false},
		{"--etcd-core-admin-secret", o.adminSecret, true},
	} {
		if (f.name != "" || !f.optional) && len(validation.IsDNS1123Subdomain(f.name)) > 0 {
			errs = append(errs, fmt.Errorf("%s %q is not the name of an object", f.flag, f.name))
		}
	}
	if p := o.settings.OvercommitPercent; p < 0 {
		errs = append(errs, fmt.Errorf("--core-overcommit-percent %d: must be a part in percent, such as 100, or 0", p))
	}
	errs = append(errs, o.checkTiming()...)
	return errors.Join(errs...)
}

// readQuota takes over --default-quota-bytes.
func (o *options) readQuota() error {
	bytes, err := resource.ParseQuantity(o.quotaBytes)
	if err != nil || bytes.Sign() < 0 || bytes.Value() > 0 && bytes.Value() < leastQuotaBytes {
		return fmt.Errorf("--default-quota-bytes %q: must be a size of at least 1Mi, such as 128Mi, or 0", o.quotaBytes)
	}
	o.settings.QuotaBytes = bytes.Value()
	return nil
}

// checkTiming returns a sentence for each duration that is out of range.
func (o *options) checkTiming() []error {
	var errs []error
	if d := o.timing.History; d != 0 && (d < time.Minute || d > 24*time.Hour) {
		errs = append(errs, fmt.Errorf("--core-history %s: must be from 1m to 24h, or 0 if the core compacts itself", d))
	}
	for _, d := range []struct {
		flag            string
		is, least, most time.Duration
	}{
		{"--resync-period", o.timing.Resync, 10 * time.Second, 24 * time.Hour}, {"--retry-period", o.timing.Retry, time.Second, time.Hour},
		{"--measure-period", o.timing.Measure, time.Second, 24 * time.Hour},
	} {
		if d.is < d.least || d.is > d.most {
			errs = append(errs, fmt.Errorf("%s %s: must be from %s to %s", d.flag, d.is, d.least, d.most))
		}
	}
	return errs
}

func (o *options) checkPullSecrets() error {
	for _, name := range o.settings.PullSecrets {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("--etcd-proxy-image-pull-secrets %q is not the name of an object", name)
		}
	}
	return nil
}

func (o *options) checkURLs() error {
	if len(o.settings.CoreURLs) == 0 {
		return errors.New("--etcd-core-url is missing: name the core etcd, such as https://etcd.etcd-core.svc:2379")
	}
	for _, text := range o.settings.CoreURLs {
		u, err := url.Parse(strings.TrimSpace(text))
		if err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" {
			return fmt.Errorf("--etcd-core-url %q is not a URL of an etcd with TLS: write https://host:port", text)
		}
	}
	return nil
}
