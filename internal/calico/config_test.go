// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func lookupIn(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		flag      string
		env       map[string]string
		kind      Kind
		endpoints []string
	}{
		"endpoints alone mean etcd":       {"", map[string]string{"ETCD_ENDPOINTS": "http://a:2379"}, EtcdV3, []string{"http://a:2379"}},
		"the old controller's variable":   {"", map[string]string{"CALICO_ETCD_ENDPOINTS": "https://a:1,https://b:2"}, EtcdV3, []string{"https://a:1", "https://b:2"}},
		"Calico's variable":               {"", map[string]string{"DATASTORE_TYPE": "kubernetes"}, Kubernetes, nil},
		"its prefixed form":               {"", map[string]string{"CALICO_DATASTORE_TYPE": "kubernetes"}, Kubernetes, nil},
		"the flag":                        {"kubernetes", nil, Kubernetes, nil},
		"the flag and the same variable":  {"etcdv3", map[string]string{"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": "http://a:1"}, EtcdV3, []string{"http://a:1"}},
		"blanks and empty parts in lists": {"", map[string]string{"ETCD_ENDPOINTS": " http://a:1 ,, http://b:1,"}, EtcdV3, []string{"http://a:1", "http://b:1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := must.Get(Resolve(c.flag, lookupIn(c.env))).Or(t)
			if got.Kind != c.kind || !slices.Equal(got.Etcd.Endpoints, c.endpoints) {
				t.Errorf("got %+v, want %s at %v", got, c.kind, c.endpoints)
			}
		})
	}
}

// Each of these is refused with one sentence that says what is wrong and what to do; none falls back to another datastore.
func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	noCA := file("ca.pem", "not a certificate")
	secure := "https://a:2379"
	cases := map[string]struct {
		flag string
		env  map[string]string
		want string
	}{
		"nothing at all":         {"", nil, "no datastore is named: set --datastore-type"},
		"an unknown type":        {"etcdv2", nil, `"etcdv2" is unknown: it must be etcdv3 or kubernetes`},
		"etcd without endpoints": {"etcdv3", nil, "no endpoint is named: set ETCD_ENDPOINTS"},
		"only ETCD_AUTHORITY":    {"", map[string]string{"ETCD_AUTHORITY": "a:2379"}, "ETCD_AUTHORITY, which is set, is not read: ETCD_ENDPOINTS replaces it"},
		"etcd with CALICO_ETCD_AUTHORITY": {
			"etcdv3", map[string]string{"CALICO_ETCD_AUTHORITY": "a:2379"}, "set ETCD_ENDPOINTS (or CALICO_ETCD_ENDPOINTS) to Calico's etcd",
		},
		"kubernetes with endpoints":     {"kubernetes", map[string]string{"ETCD_ENDPOINTS": secure}, "ETCD_ENDPOINTS is set as well: unset one"},
		"flag against variable":         {"kubernetes", map[string]string{"DATASTORE_TYPE": "etcdv3"}, `--datastore-type says "kubernetes" and DATASTORE_TYPE says "etcdv3"`},
		"two spellings that differ":     {"", map[string]string{"ETCD_ENDPOINTS": secure, "CALICO_ETCD_ENDPOINTS": "https://b:2379"}, "ETCD_ENDPOINTS and CALICO_ETCD_ENDPOINTS are both set and differ"},
		"types that differ":             {"", map[string]string{"DATASTORE_TYPE": "etcdv3", "CALICO_DATASTORE_TYPE": "kubernetes"}, "DATASTORE_TYPE and CALICO_DATASTORE_TYPE"},
		"an endpoint that is not a URL": {"", map[string]string{"ETCD_ENDPOINTS": "a:2379"}, `holds "a:2379", which is not a URL such as https://10.0.0.1:2379`},
		"only commas":                   {"", map[string]string{"ETCD_ENDPOINTS": ","}, "holds no endpoint"},
		"a password in an endpoint":     {"", map[string]string{"ETCD_ENDPOINTS": "http://u:secret@a:1"}, "use ETCD_USERNAME and ETCD_PASSWORD"},
		"http and https":                {"", map[string]string{"ETCD_ENDPOINTS": "http://a:1,https://b:1"}, "mixes http and https"},
		"certificates without https":    {"", map[string]string{"ETCD_ENDPOINTS": "http://a:1", "ETCD_CA_CERT_FILE": noCA}, "use https, or unset the certificates"},
		"a certificate without a key":   {"", map[string]string{"ETCD_ENDPOINTS": secure, "ETCD_CERT_FILE": noCA}, "a client certificate needs both"},
		"a user without a password":     {"", map[string]string{"ETCD_ENDPOINTS": secure, "ETCD_USERNAME": "u"}, "only one of ETCD_USERNAME and ETCD_PASSWORD"},
		"a CA that is not there":        {"", map[string]string{"ETCD_ENDPOINTS": secure, "ETCD_CA_CERT_FILE": "/nowhere/ca"}, "ETCD_CA_CERT_FILE cannot be read"},
		"a CA that is none":             {"", map[string]string{"ETCD_ENDPOINTS": secure, "ETCD_CA_CERT_FILE": noCA}, "holds no certificate: it must be a PEM file"},
		"a key that is not there":       {"", map[string]string{"ETCD_ENDPOINTS": secure, "ETCD_CERT_FILE": noCA, "ETCD_KEY_FILE": "/nowhere/key"}, "ETCD_KEY_FILE cannot be read"},
		"discovery by DNS":              {"", map[string]string{"ETCD_ENDPOINTS": secure, "ETCD_DISCOVERY_SRV": "example.com"}, "list the endpoints in ETCD_ENDPOINTS"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Resolve(c.flag, lookupIn(c.env))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want one sentence with %q", err, c.want)
			}
		})
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("", "http://a:1", "etcdv3")
	f.Add("kubernetes", "", "")
	f.Fuzz(func(t *testing.T, flag, endpoints, kind string) {
		c, err := Resolve(flag, lookupIn(map[string]string{"ETCD_ENDPOINTS": endpoints, "DATASTORE_TYPE": kind}))
		if err == nil && c.Kind == EtcdV3 && len(c.Etcd.Endpoints) == 0 {
			t.Fatal("etcd without endpoints was accepted")
		}
		if err == nil && c.Kind == Kubernetes && endpoints != "" {
			t.Fatal("kubernetes was chosen although etcd endpoints are set")
		}
	})
}
