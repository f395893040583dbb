// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package publicroots_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	// As the programs do.
	_ "github.com/mooring-dev/mooring/internal/platform/publicroots"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// helper, set to a server's URL, makes this test binary a program that says whom it trusts: Go reads the system's store once, before any test runs.
const helper = "MOORING_TEST_PUBLICROOTS"

// authority is who signs the certificate of api.digitalocean.com, by its certificate's common name.
const authority = "GTS Root R4"

func TestMain(m *testing.M) {
	if url := os.Getenv(helper); url != "" {
		fmt.Printf("public %t server %t", trustsPublic(), trustsServer(url))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// trustsPublic reports whether a certificate of a public authority counts.
func trustsPublic() bool {
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			panic(err)
		}
		if certificate.Subject.CommonName == authority {
			_, err := certificate.Verify(x509.VerifyOptions{})
			return err == nil
		}
	}
	panic("the bundle holds no " + authority)
}

// trustsServer reports whether an ordinary client believes the server.
func trustsServer(url string) bool {
	answer, err := http.Get(url)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil
}

// TestEmbeddedRootsCountOnlyWhereTheSystemHasNone runs a program in an image without certificates, and on a machine whose store holds one
// authority of its own.
func TestEmbeddedRootsCountOnlyWhereTheSystemHasNone(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a client that does not believe it hangs up
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	store := filepath.Join(dir, "store.pem")
	if err := os.WriteFile(store, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	nothing := filepath.Join(dir, "nothing")
	for name, tt := range map[string]struct{ file, dir, want string }{
		"the system has no store":  {nothing, nothing, "public true server false"},
		"a store of the system's":  {store, nothing, "public false server true"},
		"a folder of the system's": {nothing, dir, "public false server true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), os.Args[0])
			program.Env = append(os.Environ(), helper+"="+server.URL, "SSL_CERT_FILE="+tt.file, "SSL_CERT_DIR="+tt.dir, "GODEBUG=")
			got, err := program.CombinedOutput()
			if err != nil || string(got) != tt.want {
				t.Errorf("the program says %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// TestProgramsThatCarryTheRoots: those that may meet a certificate of a public authority, and no other.
func TestProgramsThatCarryTheRoots(t *testing.T) {
	t.Parallel()
	want := map[string]bool{
		"calico-node-sync": true, "calico-route-reflector-operator": true,
		"digitalocean-cloud-controller-manager": true, "digitalocean-cloud-controller-manager-admission-server": true,
		"digitalocean-csi-driver": true, "etcd-storage-operator": false, "etcd-storage-proxy": false, "kubectl-mooring": false,
	}
	lists, err := filepath.Glob("../../../cmd/*/deps.txt")
	if err != nil || len(lists) != len(want) {
		t.Fatalf("lists %v, %v; want %d", lists, err, len(want))
	}
	for _, list := range lists {
		content := must.Get(os.ReadFile(list)).Or(t)
		binary := filepath.Base(filepath.Dir(list))
		if got := strings.Contains(string(content), "\ngolang.org/x/crypto/x509roots/fallback "); got != want[binary] {
			t.Errorf("%s carries the public authorities: %t, want %t", binary, got, want[binary])
		}
	}
}
