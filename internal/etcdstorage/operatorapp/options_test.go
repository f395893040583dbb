// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operatorapp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// parsed are the options that a command line leads to.
func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	o := newOptions()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.addFlags(fs)
	must.Do(t, fs.Parse(args))
	return o
}

// The flags of etcdproxy-controller, long and short, with their defaults.
func TestThePredecessorsFlags(t *testing.T) {
	t.Parallel()
	o := parsed(t, "-u", "https://a:2379,https://b:2379")
	if err := o.validate(); err != nil {
		t.Errorf("the least command line is refused: %v", err)
	}
	s := o.settings
	if s.CAConfigMap != "etcd-coreserving-ca" || s.CertsSecret != "etcd-coreserving-cert" || s.Namespace != "kube-apiserver-storage" || len(s.CoreURLs) != 2 || !s.TenantUsers {
		t.Errorf("%+v", s)
	}
	o = parsed(t, "--etcd-core-url=https://a:2379", "--etcd-core-url=https://b:2379", "--etcd-core-ca-configmap=ca", "--etcd-core-ca-secret=pair", "-n", "ns", "-k", "file",
		"--etcd-proxy-image=image", "--core-tenant-users=off")
	if err := o.validate(); err != nil {
		t.Error(err)
	}
	s = o.settings
	if s.CAConfigMap != "ca" || s.CertsSecret != "pair" || s.Namespace != "ns" || o.manager.Kubeconfig != "file" || s.ProxyImage != "image" || len(s.CoreURLs) != 2 || s.TenantUsers {
		t.Errorf("%+v", s)
	}
	if s := parsed(t, "--etcd-proxy-image-pull-secrets=a,b", "--etcd-proxy-image-pull-secrets=c").settings; fmt.Sprint(s.PullSecrets) != "[a b c]" {
		t.Errorf("%+v", s)
	}
	if s := parsed(t, "--etcd-core-certs-secret=pair").settings; s.CertsSecret != "pair" {
		t.Errorf("%+v", s)
	}
}

// What keeps the core from filling up: compaction without being asked, a bound for tenants and defragmentation only where they are.
func TestWhatKeepsTheCoreFromFillingUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args            []string
		bytes           int64
		history, upkeep time.Duration
	}{
		{nil, 0, 5 * time.Minute, 0},
		{[]string{"--default-quota-bytes=128Mi", "--core-history=1h", "--core-defragment"}, 128 << 20, time.Hour, time.Minute},
		{[]string{"--default-quota-bytes=0", "--core-history=0"}, 0, 0, 0},
	} {
		o := parsed(t, append([]string{"-u", "https://a:2379"}, c.args...)...)
		if err := o.validate(); err != nil || o.settings.QuotaBytes != c.bytes || o.timing.History != c.history || o.timing.Upkeep != c.upkeep {
			t.Errorf("%q: %v, %+v, %+v", c.args, err, o.settings, o.timing)
		}
	}
}

// Each mistake is one sentence with the flag, the value and what is allowed.
func TestMistakes(t *testing.T) {
	t.Parallel()
	const url = "--etcd-core-url=https://a:2379"
	for want, args := range map[string][]string{
		"--etcd-core-url is missing: name the core etcd, such as https://etcd.etcd-core.svc:2379":             nil,
		`--etcd-core-url "http://a:2379" is not a URL of an etcd with TLS: write https://host:port`:           {"--etcd-core-url=http://a:2379"},
		`--etcd-core-url "a:2379" is not a URL of an etcd with TLS: write https://host:port`:                  {"--etcd-core-url=a:2379"},
		`--etcd-core-url "https://a:2379/x" is not a URL of an etcd with TLS: write https://host:port`:        {"--etcd-core-url=https://a:2379/x"},
		`--core-tenant-users "on": must be "auto" or "off"`:                                                   {url, "--core-tenant-users=on"},
		`--default-quota-bytes "much": must be a size of at least 1Mi, such as 128Mi, or 0`:                   {url, "--default-quota-bytes=much"},
		`--default-quota-bytes "-1Gi": must be a size of at least 1Mi, such as 128Mi, or 0`:                   {url, "--default-quota-bytes=-1Gi"},
		`--default-quota-bytes "1Ki": must be a size of at least 1Mi, such as 128Mi, or 0`:                    {url, "--default-quota-bytes=1Ki"},
		`--core-overcommit-percent -1: must be a part in percent, such as 100, or 0`:                          {url, "--core-overcommit-percent=-1"},
		`--core-history 10s: must be from 1m to 24h, or 0 if the core compacts itself`:                        {url, "--core-history=10s"},
		`--core-user-rotation 1m0s: must be 0 or at least 10m, since every proxy is replaced in it`:           {url, "--core-user-rotation=1m"},
		`--namespace "a.b" is not a namespace: use lower case letters, digits and '-'`:                        {url, "--namespace=a.b"},
		`--etcd-proxy-image is empty: name the image of etcd-storage-proxy`:                                   {url, "--etcd-proxy-image="},
		`--cluster-domain ".local" is not a domain: write it without dots at its ends, such as cluster.local`: {url, "--cluster-domain=.local"},
		`--etcd-core-ca-configmap "" is not the name of an object`:                                            {url, "--etcd-core-ca-configmap="},
		`--etcd-core-admin-secret "A" is not the name of an object`:                                           {url, "--etcd-core-admin-secret=A"},
		`--etcd-proxy-image-pull-secrets "B" is not the name of an object`:                                    {url, "--etcd-proxy-image-pull-secrets=a,B"},
		`--resync-period 1s: must be from 10s to 24h0m0s`:                                                     {url, "--resync-period=1s"},
		`--retry-period 0s: must be from 1s to 1h0m0s`:                                                        {url, "--retry-period=0s"},
		`--measure-period 48h0m0s: must be from 1s to 24h0m0s`:                                                {url, "--measure-period=48h"},
	} {
		if err := parsed(t, args...).validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := parsed(t, "--core-tenant-users=x", "--namespace=A").validate(); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("not every mistake is reported: %v", err)
	}
	if o := parsed(t, url, "--core-user-rotation=0"); o.validate() != nil || o.settings.UserRotation != 0 || newOptions().settings.UserRotation != 720*time.Hour {
		t.Errorf("%+v", o.settings)
	}
}
