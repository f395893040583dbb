// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestRevokedClients revokes an identity under a client that is connected and watches: its connections end, new ones are refused with the
// reason, and another client of the same tenant notices nothing. A list that cannot be read changes nothing; one without the identity lets
// it in again.
func TestRevokedClients(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	ca := testkit.NewAuthority(t, "ca")
	folder := testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{CommonName: "proxy"}), ca.PEM)
	list := filepath.Join(t.TempDir(), "revoked-clients")
	revoke := func(text string) {
		t.Helper()
		must.Do(t, os.WriteFile(list, []byte(text), 0o600))
	}
	revoke("")
	p := startInside(t, newHand(), slices.Concat(plainCore(etcd), serveTLS(folder), []string{"--tenant=team-a", "--revoked-clients-file=" + list})...)
	reload := func() error {
		t.Helper()
		_, err := p.listenFiles.Reload()
		return err
	}
	const lost = "urn:mooring:etcd-client:team-a/lost/1"
	lostConfig := ca.Issue(t, testkit.Leaf{CommonName: "team-a", URI: lost}).Client(t, ca)
	other := dial(t, p.address, ca.Issue(t, testkit.Leaf{CommonName: "team-a", URI: "urn:mooring:etcd-client:team-a/other/1"}).Client(t, ca))
	watching := openWatch(t, etcdserverpb.NewWatchClient(dial(t, p.address, lostConfig)), "k")
	must.Do(t, write(t.Context(), other, "k", "1"))
	if values, err := watching.values(); err != nil || !slices.Equal(values, []string{"1"}) {
		t.Fatal(values, err)
	}

	revoke("# a list\nuri:" + lost + "\n")
	must.Do(t, reload())
	if err := watching.end(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the client certificate of this connection was revoked: connect again") {
		t.Errorf("the watch ended with %v", err)
	}
	if got := p.count(t, overSeries, "revoked"); got != 1 {
		t.Errorf("%v connections were ended, want 1", got)
	}
	refused := func() {
		t.Helper()
		err := write(t.Context(), dial(t, p.address, lostConfig), "k", "2")
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), errRevoked.Error()) || !strings.Contains(err.Error(), lost) {
			t.Errorf("a new connection: %v", err)
		}
	}
	refused()
	if err := write(t.Context(), other, "k", "3"); err != nil {
		t.Errorf("the other client: %v", err)
	}

	revoke("nobody")
	if err := reload(); err == nil || !strings.Contains(err.Error(), list) || !strings.Contains(err.Error(), `the revoked identity "nobody" does not say which name of the certificate to check: write uri:URI`) {
		t.Errorf("a list that cannot be read: %v", err)
	}
	refused()
	revoke("uri:urn:mooring:etcd-client:team-a/lost/10\n")
	must.Do(t, reload())
	if err := write(t.Context(), dial(t, p.address, lostConfig), "k", "4"); err != nil {
		t.Errorf("with another number revoked: %v", err)
	}
}

func FuzzParseRevoked(f *testing.F) {
	f.Add("uri:urn:mooring:etcd-client:a/b/1\n# no\n\ncn:x\r\ndns:Example.COM.")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseRevoked(text)
		if err != nil {
			return
		}
		var lines []string
		for _, id := range list {
			lines = append(lines, id.String())
		}
		if again, err := parseRevoked(strings.Join(lines, "\n")); err != nil || !slices.Equal(again, list) {
			t.Errorf("%q reads as %v, and that as %v, %v", text, list, again, err)
		}
	})
}
