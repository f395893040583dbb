// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What the command prints is read by a shell as it is meant, whatever is in the folder's name.
func TestEnvForAShell(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), `a lab's $(folder)`)
	must.Do(t, os.MkdirAll(dir, 0o700))
	lab := `{"version":1,"calicoDatastore":"etcdv3","digitalOcean":{"apiURL":"https://127.0.0.1:1/","tokenFile":"/t","caFile":"/pki/ca.crt"},
		"calicoEtcd":{"endpoints":["https://a:1","https://b:2"],"caFile":"/c","certFile":"/d","keyFile":"/e"},"processes":[]}`
	must.Do(t, os.WriteFile(filepath.Join(dir, "lab.json"), []byte(lab), 0o600))
	lines := must.Get(run(settings(), "env", "--dir", dir)).Or(t)
	show := `printf '%s\n' "${PATH%%:*}" "$KUBECONFIG" "$MOORING_LAB_DIR" "$DO_ACCESS_TOKEN_FILE" "$DO_OVERRIDE_URL" "$SSL_CERT_DIR" "$DATASTORE_TYPE" "$ETCD_ENDPOINTS" "$ETCD_KEY_FILE"`
	out := must.Get(exec.CommandContext(t.Context(), "sh", "-c", lines+show).Output()).Or(t)
	executable := must.Get(settings().Executable()).Or(t)
	want := []string{
		filepath.Dir(executable), filepath.Join(dir, "kubeconfig"), dir, "/t", "https://127.0.0.1:1/", "/pki", "etcdv3", "https://a:1,https://b:2", "/e",
	}
	if got := strings.TrimSpace(string(out)); got != strings.Join(want, "\n") {
		t.Errorf("a shell has\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}
