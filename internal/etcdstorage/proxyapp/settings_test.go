// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// usual are flags that are fine as far as they can be judged without looking at files.
func usual() map[string]string {
	return map[string]string{
		"core-endpoints": "https://etcd-0:2379,https://10.0.0.2:2379", "core-ca-file": "core-ca", "core-cert-file": "core-cert", "core-key-file": "core-key",
		"tenant": "team-a", "listen-address": ":2379", "tls-cert-file": "cert", "tls-private-key-file": "key", "client-ca-file": "ca",
	}
}

// with returns the usual flags with changes; the value "-" leaves a flag out.
func with(changes map[string]string) []string {
	flags := usual()
	for name, value := range changes {
		if flags[name] = value; value == "-" {
			delete(flags, name)
		}
	}
	var out []string
	for name, value := range flags {
		out = append(out, "--"+name+"="+value)
	}
	slices.Sort(out)
	return out
}

// What people read of the default budget is the default.
func TestTheDefaultBudgetIsWhatIsSaid(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"api/etcd/v1alpha1/etcdstorage_types.go":    fmt.Sprintf("Absent: %d.", defaultUnits),
		"internal/plugin/etcd/capacity.go":          fmt.Sprintf("(%d if absent)", defaultUnits),
		"docs/guides/etcd-storage.md":               fmt.Sprintf("The default budget of a tenant, %d units a second,", defaultUnits),
		"docs/components/etcd-storage-proxy.md":     fmt.Sprintf("With the defaults of %d units and %d places", defaultUnits, defaultInFlight),
		"internal/etcdstorage/operator/workload.go": fmt.Sprintf("seatsAtDefault = %d", defaultInFlight),
	} {
		content := must.Get(os.ReadFile(filepath.Join(testkit.Root(t), file))).Or(t)
		if !strings.Contains(string(content), want) {
			t.Errorf("%s lacks %q", file, want)
		}
	}
}

// Each mistake in the flags is one sentence, which says what to write instead. People and manuals know them: they change on purpose only.
func TestRefusedFlags(t *testing.T) {
	t.Parallel()
	type flags = map[string]string
	const noFiles = "-"
	plaintext := flags{
		"core-endpoints": "http://127.0.0.1:2379", "core-ca-file": noFiles, "core-cert-file": noFiles, "core-key-file": noFiles,
		"tls-cert-file": noFiles, "tls-private-key-file": noFiles, "client-ca-file": noFiles, "listen-address": "127.0.0.1:0", "insecure-plaintext": "true",
	}
	over := func(base, changes flags) flags {
		out := flags{}
		for _, m := range []flags{base, changes} {
			maps.Copy(out, m)
		}
		return out
	}
	tests := []struct {
		flags flags
		want  string
	}{
		{flags{"core-endpoints": "-"}, `--core-endpoints is missing: name the core etcd's client URLs, such as https://etcd-0.etcd:2379`},
		{flags{"core-endpoints": "https://a:1,"}, `--core-endpoints has an empty element: write https://host:2379, with commas between several`},
		{flags{"core-endpoints": "unix:///run/etcd"}, `--core-endpoints "unix:///run/etcd" has an unknown scheme, it must be https or http: write https://host:2379`},
		{flags{"core-endpoints": "https://etcd-0"}, `--core-endpoints "https://etcd-0" has no port: write https://host:2379`},
		{flags{"core-endpoints": "https://etcd-0:port"}, `--core-endpoints "https://etcd-0:port" has no port between 1 and 65535: write https://host:2379`},
		{flags{"core-endpoints": "https://:2379"}, `--core-endpoints "https://:2379" has neither a host name nor an IP address before the port: write https://host:2379`},
		{flags{"core-endpoints": "https://a:2379/v3"}, `--core-endpoints "https://a:2379/v3" has more than scheme, host and port: write https://host:2379`},
		{flags{"core-endpoints": "https://root:pw@a:2379"}, `--core-endpoints names a user in an URL: use --core-username and --core-password-file`},
		{flags{"core-endpoints": "https://a:2379,http://b:2379"}, `--core-endpoints has both https://a:2379 and http://b:2379: all endpoints must be https`},
		{flags{"core-endpoints": "http://a:2379"}, `--core-endpoints "http://a:2379" is plaintext, and --core-ca-file, --core-cert-file and --core-key-file are for https: use https, or drop the files`},
		{flags{"core-endpoints": "http://a:2379", "core-ca-file": "-", "core-cert-file": "-", "core-key-file": "-"}, `--core-endpoints "http://a:2379" is plaintext: use https (--insecure-plaintext allows http to a loopback address only)`},
		{flags{"core-endpoints": "http://127.0.0.1:2379", "core-ca-file": "-", "core-cert-file": "-", "core-key-file": "-"}, `--core-endpoints "http://127.0.0.1:2379" is plaintext: use https (--insecure-plaintext allows http to a loopback address only)`},
		{over(plaintext, flags{"core-endpoints": "http://10.0.0.1:2379"}), `--core-endpoints "http://10.0.0.1:2379" is plaintext: use https (--insecure-plaintext allows http to a loopback address only)`},
		{flags{"core-ca-file": "-"}, `--core-ca-file is missing: name the CA bundle that signed the core's certificate`},
		{flags{"core-key-file": "-"}, `--core-cert-file and --core-key-file go together: give both or neither`},
		{flags{"core-cert-file": "-"}, `--core-cert-file and --core-key-file go together: give both or neither`},
		{flags{"core-username": "u"}, `--core-username and --core-password-file go together: give both or neither`},
		{flags{"core-password-file": "f"}, `--core-username and --core-password-file go together: give both or neither`},

		{flags{"core-max-request-bytes": "0"}, `--core-max-request-bytes 0 is out of range: use the core's own value, 1 to 1073741824`},

		{flags{"tenant": "-"}, `--tenant is missing: name the tenant that is served`},
		{flags{"tenant": "Team_A"}, `--tenant "Team_A" is not a tenant name: use up to 63 lower case letters, digits and '-', with a letter or digit at both ends`},
		{flags{"tenant": strings.Repeat("a", 64)}, `--tenant "` + strings.Repeat("a", 64) + `" is not a tenant name: use up to 63 lower case letters, digits and '-', with a letter or digit at both ends`},
		{flags{"prefix": "/a"}, `--prefix: prefix "/a" must begin and end with "/", for example /team-a/`},
		{flags{"prefix": "/"}, `--prefix: prefix "/" would be the whole of the core: give it a name, for example /team-a/`},
		{flags{"prefix": "/a//b/"}, `--prefix: prefix "/a//b/" has an empty element: write each "/" once, for example /team-a/`},
		{flags{"prefix": "/records/x/", "system-prefix": "/records/"}, `--prefix "/records/x/" overlaps --system-prefix "/records/", where proxies keep their own records: choose another prefix`},
		{flags{"system-prefix": "records"}, `--system-prefix: system prefix "records" must begin and end with "/", for example /team-a/`},
		{flags{"lease-space": "0"}, `--lease-space: lease space "0" must be a whole number from 1 to 2147483646, and no other tenant's of this core`},

		{flags{"listen-address": "2379"}, `--listen-address "2379" is not an address to listen on: write host:port or ":port"`},
		{flags{"listen-address": ":99999"}, `--listen-address ":99999" has no port between 0 and 65535: write host:port or ":port"`},
		{flags{"listen-address": "a b:1"}, `--listen-address "a b:1" has neither a host name nor an IP address before the port: write host:port or ":port"`},
		{flags{"tls-cert-file": "-"}, `--tls-cert-file is missing: clients are served over TLS only, with certificates on both sides`},
		{flags{"tls-cert-file": "-", "client-ca-file": "-"}, `--tls-cert-file and --client-ca-file are missing: clients are served over TLS only, with certificates on both sides`},
		{flags{"tls-cert-file": "-", "client-ca-file": "-", "tls-private-key-file": "-"}, `--tls-cert-file, --tls-private-key-file and --client-ca-file are missing: clients are served over TLS only, with certificates on both sides`},
		{flags{"client-ca-file": "-", "insecure-plaintext": "true"}, `--client-ca-file is missing: clients are served over TLS only, with certificates on both sides`},
		{flags{"insecure-plaintext": "true"}, `--insecure-plaintext contradicts the TLS files of both sides: drop it`},
		{over(plaintext, flags{"listen-address": ":2379"}), `--listen-address ":2379" is not a loopback address, as --insecure-plaintext demands: use 127.0.0.1, or give the TLS files`},
		{over(plaintext, flags{"listen-address": "0.0.0.0:2379"}), `--listen-address "0.0.0.0:2379" is not a loopback address, as --insecure-plaintext demands: use 127.0.0.1, or give the TLS files`},
		{over(plaintext, flags{"allowed-identity": "cn:a"}), `--allowed-identity needs client certificates, and without TLS files there are none: drop it, or give the TLS files`},
		{over(plaintext, flags{"revoked-clients-file": "x"}), `--revoked-clients-file needs client certificates, and without TLS files there are none: drop it, or give the TLS files`},

		{flags{"advertise-client-url": "etcd:2379"}, `--advertise-client-url "etcd:2379" has an unknown scheme, it must be https or http: write https://host:2379`},
		{flags{"advertise-client-url": "https://etcd"}, `--advertise-client-url "https://etcd" has no host and port: write https://host:2379`},
		{flags{"advertise-client-url": "https://etcd:2379/x"}, `--advertise-client-url "https://etcd:2379/x" has more than scheme, host and port: write https://host:2379`},
		{flags{"advertise-client-url": "https://%zz"}, `--advertise-client-url "https://%zz" is not an URL: write https://host:2379`},

		{flags{"allowed-identity": "team-a"}, `--allowed-identity "team-a" does not say which name of the certificate to check: write uri:URI, dns:NAME or cn:NAME, which the certificate must carry exactly so`},
		{flags{"allowed-identity": "CN:team-a"}, `--allowed-identity "CN:team-a" does not say which name of the certificate to check: write uri:URI, dns:NAME or cn:NAME, which the certificate must carry exactly so`},
		{flags{"allowed-identity": "cn:"}, `--allowed-identity "cn:" names nobody: write uri:URI, dns:NAME or cn:NAME, which the certificate must carry exactly so`},
		{flags{"allowed-identity": "cn: a"}, `--allowed-identity "cn: a" begins or ends with a space: write uri:URI, dns:NAME or cn:NAME, which the certificate must carry exactly so`},
		{flags{"allowed-identity": "dns:*.a"}, `--allowed-identity "dns:*.a" is not a DNS name (patterns are not known): write uri:URI, dns:NAME or cn:NAME, which the certificate must carry exactly so`},
		{flags{"allowed-identity": "uri:team-a"}, `--allowed-identity "uri:team-a" is not a URI with a scheme: write uri:URI, dns:NAME or cn:NAME, which the certificate must carry exactly so`},

		{flags{"health-address": "x"}, `--health-address "x" is not an address to listen on: write host:port or ":port", or "0" to turn the endpoint off`},
		{flags{"metrics-address": "x"}, `--metrics-address "x" is not an address to listen on: write host:port or ":port", or "0" to turn the endpoint off`},
		{flags{"metrics-address": ":2379"}, `--listen-address and --metrics-address are both ":2379": give each its own port`},
		{flags{"quota-bytes": "-1"}, `--quota-bytes -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"quota-keys": "-1"}, `--quota-keys -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"quota-leases": "-1"}, `--quota-leases -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"quota-watches": "-1"}, `--quota-watches -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"max-units-per-second": "NaN"}, `--max-units-per-second NaN is out of range: use a number above 0, or 0 for no bound`},
		{flags{"quota-history-bytes": "-1"}, `--quota-history-bytes -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"max-connections-per-identity": "-1"}, `--max-connections-per-identity -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"idle-timeout": "-1s"}, `--idle-timeout -1s is out of range: use a time above 0s, or 0s for no bound`},
		{flags{"max-lists-in-flight": "-1"}, `--max-lists-in-flight -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"max-keep-alives-per-second": "-1"}, `--max-keep-alives-per-second -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"max-watch-messages-per-second": "NaN"}, `--max-watch-messages-per-second NaN is out of range: use a number above 0, or 0 for no bound`},
		{flags{"max-read-bytes-per-second": "1"}, `--max-read-bytes-per-second was replaced: use --max-units-per-second, of which a get of a small key takes 1 and a put 3`},
		{flags{"max-written-bytes-per-second": "1"}, `--max-written-bytes-per-second was replaced: use --max-units-per-second, of which a get of a small key takes 1 and a put 3`},
		{flags{"max-requests-per-second": "0"}, `--max-requests-per-second was replaced: use --max-units-per-second, of which a get of a small key takes 1 and a put 3`},
		{flags{"max-streams": "-1"}, `--max-streams -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"max-streams-per-connection": "-1"}, `--max-streams-per-connection -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"max-answer-bytes": "1000"}, `--max-answer-bytes 1000 is out of range: use at least 4194304`},
		{flags{"max-in-flight": "-1"}, `--max-in-flight -1 is out of range: use a number above 0, or 0 for no bound`},
		{flags{"max-request-burst": "5"}, `--max-request-burst was replaced: use --max-units-per-second, of which a get of a small key takes 1 and a put 3`},
		{flags{"drain-delay": "-1s"}, `--drain-delay -1s is out of range: use 0s to 1h0m0s`},
		{flags{"drain-timeout": "0s"}, `--drain-timeout 0s is out of range: it must be longer than 0s and at most 1h0m0s`},
		{flags{"log-format": "xml"}, `--log-format "xml" is unknown: use auto, json or text`},
		// Two mistakes are two sentences on the one line.
		{flags{"tenant": "-", "drain-timeout": "0s"}, `--tenant is missing: name the tenant that is served; --drain-timeout 0s is out of range: it must be longer than 0s and at most 1h0m0s`},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, refusal(t, with(tt.flags)...)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.flags, diff)
		}
	}
	if got := refusal(t, "--core-endpoint=x"); !strings.Contains(got, "--core-endpoints") {
		t.Errorf("a misspelled flag: got %q", got)
	}
	if got := refusal(t, "here"); !strings.Contains(got, `unexpected argument "here"`) {
		t.Errorf("a stray argument: got %q", got)
	}
}

func parsed(t *testing.T, args []string) *options {
	t.Helper()
	o := newOptions()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.addFlags(flags)
	must.Do(t, flags.Parse(args))
	return o
}

// What the flags mean when they are fine, defaults above all: manifests rely on them.
func TestSettings(t *testing.T) {
	t.Parallel()
	type flags = map[string]string
	tests := map[string]struct {
		flags flags
		look  func(s *settings) string
		want  string
	}{
		"prefix":                {flags{}, func(s *settings) string { return s.tenant.Prefix.String() }, "/team-a/"},
		"another prefix":        {flags{"prefix": "/x/y/"}, func(s *settings) string { return s.tenant.Prefix.String() }, "/x/y/"},
		"lease space":           {flags{"lease-space": "7"}, func(s *settings) string { return s.tenant.Leases.String() }, "7"},
		"system prefix":         {flags{}, func(s *settings) string { return s.systemPrefix }, "/.etcd.mooring.dev/"},
		"no system prefix":      {flags{"system-prefix": ""}, func(s *settings) string { return s.systemPrefix }, ""},
		"host:port is https":    {flags{"core-endpoints": "etcd:2379"}, func(s *settings) string { return s.core[0].String() }, "https://etcd:2379"},
		"IPv6":                  {flags{"core-endpoints": "https://[::1]:2379/"}, func(s *settings) string { return s.core[0].host }, "[::1]:2379"},
		"advertised":            {flags{}, func(s *settings) string { return s.advertiseURL }, "https://localhost:2379"},
		"advertised IP":         {flags{"listen-address": "10.1.2.3:1"}, func(s *settings) string { return s.advertiseURL }, "https://10.1.2.3:1"},
		"advertised as told":    {flags{"advertise-client-url": "https://etcd-a.ns.svc:2379"}, func(s *settings) string { return s.advertiseURL }, "https://etcd-a.ns.svc:2379"},
		"identities":            {flags{}, func(s *settings) string { return describe(s.identities) }, `"uri:urn:mooring:etcd-tenant:team-a", "cn:team-a"`},
		"identity as told":      {flags{"allowed-identity": "cn:client-ns-name"}, func(s *settings) string { return describe(s.identities) }, `"cn:client-ns-name"`},
		"TLS with a plain core": {flags{"core-endpoints": "localhost:1", "core-ca-file": "-", "core-cert-file": "-", "core-key-file": "-", "insecure-plaintext": "true"}, func(s *settings) string { return s.core[0].String() + s.listen.CA }, "http://localhost:1ca"},
	}
	for name, tt := range tests {
		s, err := parsed(t, with(tt.flags)).settings()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := tt.look(s); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// The defaults of the flags are promises to manifests.
func TestDefaults(t *testing.T) {
	t.Parallel()
	o := parsed(t, nil)
	got := []string{o.listenAddress, o.healthAddress, o.metricsAddress, o.systemPrefix, o.drainDelay.String(), o.drainTimeout.String()}
	want := []string{":2379", ":8081", ":8080", "/.etcd.mooring.dev/", time.Duration(0).String(), (20 * time.Second).String()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "localhost:1": true, "LOCALHOST:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example.com:1": false, "127.0.0.1.example.com:1": false, "127.0.0.1": false,
	} {
		if got := isLoopback(addr); got != want {
			t.Errorf("%s: got %t", addr, got)
		}
	}
}

// No text makes the readers of flags panic, and what they accept they print so that it reads the same again.
func FuzzFlags(f *testing.F) {
	for _, seed := range []string{"https://a:1", "a:1", "cn:a", "uri:urn:x:y", "dns:A.b.", "://", "[::1]:1", "http://%zz", ":0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if e, err := parseEndpoint(text, schemeHTTPS); err == nil {
			if again, err := parseEndpoint(e.String(), schemeHTTPS); err != nil || again != e {
				t.Errorf("endpoint %q became %q and %q: %v", text, e, again, err)
			}
		}
		if id, err := parseIdentity("--allowed-identity", text); err == nil {
			if again, err := parseIdentity("--allowed-identity", id.String()); err != nil || again != id {
				t.Errorf("identity %q became %q and %q: %v", text, id, again, err)
			}
		}
		_ = checkAddress("--x", text, true)
		_ = checkAdvertised(text)
	})
}
