// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// The plan command against a real API server and a real etcd: what it prints, its exit codes, and that it writes nothing.
func TestPlanCommand(t *testing.T) {
	logrus.SetLevel(logrus.PanicLevel)
	cluster, etcd := testkit.ControlPlane(t), testkit.NewEtcd(t)
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, etcd.Endpoint
	store, err := caliconode.Connect(*config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Initialize(t.Context(), "10.244.0.0/16"); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"plan-a", "plan-b", "plan-c"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := cluster.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		host := caliconode.Host{Name: name, KubernetesNode: name, Address: netip.AddrFrom4([4]byte{172, 30, 9, byte(i + 1)}), IPIP: true}
		if _, err := store.Start(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
	plan := func(args ...string) (int, string) {
		return program(t, []string{"ETCD_ENDPOINTS=" + etcd.Endpoint}, append([]string{"plan", "--kubeconfig", cluster.Kubeconfig}, args...)...)
	}
	before := etcd.Revision(t)
	if code, out := plan(); code != 2 || !strings.Contains(out, "record that this datastore belongs to the cluster") {
		t.Errorf("the first plan ever: got exit code %d and %q, want 2 and the binding of the cluster", code, out)
	}
	if err := cluster.Client.CoreV1().Nodes().Delete(t.Context(), "plan-b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	code, out := plan("--grace-period=0s", "-o", "json")
	var parsed struct {
		Steps []struct{ Kind string } `json:"steps"`
	}
	if err := json.Unmarshal([]byte(out), &parsed); err != nil || code != 2 || len(parsed.Steps) < 5 || parsed.Steps[len(parsed.Steps)-1].Kind != "RemoveNode" {
		t.Errorf("after the grace period: got exit code %d and %s (%v), want 2 and the steps up to RemoveNode", code, out, err)
	}
	if code, out := plan("--min-overlap-percent=100"); code != 3 || !strings.Contains(out, "(overlap)") {
		t.Errorf("held back: got exit code %d and %q, want 3 and the overlap gate", code, out)
	}
	if code, out := plan("-o", "yaml"); code != 1 || !strings.Contains(out, "it must be text or json") {
		t.Errorf("an unknown output: got exit code %d and %q", code, out)
	}
	if after := etcd.Revision(t); after != before {
		t.Errorf("the store moved from revision %d to %d", before, after)
	}
}

// The predecessor's manifest needs only its image changed.
func TestPredecessorsFlags(t *testing.T) {
	t.Parallel()
	code, out := program(t, []string{"CALICO_ETCD_ENDPOINTS=http://127.0.0.1:1"},
		"-dryrun", "-syncperiod", "60", "-domain", "example.com", "-logtostderr", "-vmodule", "x=1", "-v", "2", "-kubeconfig", "/nowhere")
	if code != 1 || !strings.Contains(out, "--kubeconfig") {
		t.Errorf("got exit code %d and %q, want the missing kubeconfig to be the only thing wrong", code, out)
	}
	code, out = program(t, []string{"CALICO_ETCD_ENDPOINTS=http://127.0.0.1:1"}, "-syncperiod", "0")
	if code != 1 || !strings.Contains(out, "it must be a whole number of seconds") {
		t.Errorf("a period of 0, by which the predecessor never rests: got exit code %d and %q", code, out)
	}
}

func TestRestoreRefusesBadInput(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "entry.json")
	if err := os.WriteFile(file, []byte(`{"host":"n1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	etcd := "ETCD_ENDPOINTS=http://127.0.0.1:1"
	for name, c := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"no file named":        {[]string{etcd}, nil, "arg"},
		"a file that is none":  {[]string{etcd}, []string{"/nowhere/entry.json"}, "no such file"},
		"not a journal's file": {[]string{etcd}, []string{file}, "is no entry of the journal"},
		"the wrong datastore":  {[]string{"DATASTORE_TYPE=kubernetes"}, []string{file}, "only the etcdv3 datastore has anything to restore"},
	} {
		code, out := program(t, c.env, append([]string{"restore"}, c.args...)...)
		if code != 1 || !strings.HasPrefix(out, "error: ") || !strings.Contains(out, c.want) {
			t.Errorf("%s: got exit code %d and %q, want 1 and %q", name, code, out, c.want)
		}
	}
	if code, out := program(t, []string{etcd}, "--journal-dir", "/nowhere"); code != 1 || !strings.Contains(out, `--journal-dir "/nowhere" cannot be written`) {
		t.Errorf("a folder that is not there: got exit code %d and %q", code, out)
	}
}

// A journal that the controller wrote is put back by the command.
func TestRestoreCommand(t *testing.T) {
	etcd := testkit.NewEtcd(t)
	info := func(ready, uid string) {
		text := fmt.Sprintf(`{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default",`+
			`"annotations":{"nodes.mooring.dev/cluster-uid":%q}},"spec":{"datastoreReady":%s}}`, uid, ready)
		if _, err := etcd.Client.Put(t.Context(), "/calico/resources/v3/projectcalico.org/clusterinformations/default", text); err != nil {
			t.Fatal(err)
		}
	}
	value := `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"n1","uid":"uid-1"},"spec":{}}`
	key := "/calico/resources/v3/projectcalico.org/nodes/n1"
	dir := t.TempDir()
	entry := controller.Entry{Time: time.Now(), ClusterUID: "ours", Host: "n1", KubernetesNode: "n1", Objects: []calico.Object{{Key: key, Revision: 3, Value: value}}}
	if err := (controller.FolderJournal{Dir: dir}).Record(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files: %v (%v)", files, err)
	}
	restore := func() (int, string) {
		return program(t, []string{"ETCD_ENDPOINTS=" + etcd.Endpoint}, "restore", files[0])
	}
	info("false", "ours")
	if code, out := restore(); code != 1 || !strings.Contains(out, "unlock the datastore first") {
		t.Errorf("a locked datastore: got exit code %d and %q", code, out)
	}
	info("true", "another's")
	if code, out := restore(); code != 1 || !strings.Contains(out, "check ETCD_ENDPOINTS") {
		t.Errorf("another cluster's datastore: got exit code %d and %q", code, out)
	}
	info("true", "ours")
	if code, out := restore(); code != 0 || out != "restored "+key+"\n" {
		t.Errorf("got exit code %d and %q, want 0 and what was restored", code, out)
	}
	if got := etcd.Dump(t)[key]; got != value {
		t.Errorf("restored: got %s, want every byte as it was: %s", got, value)
	}
	if code, out := restore(); code != 0 || out != "restored "+key+"\n" {
		t.Errorf("once more: got exit code %d and %q, want 0, since it is there as it was", code, out)
	}
	if _, err := etcd.Client.Put(t.Context(), key, strings.Replace(value, "uid-1", "uid-2", 1)); err != nil {
		t.Fatal(err)
	}
	if code, out := restore(); code != 2 || !strings.Contains(out, "machine n1 has joined again") {
		t.Errorf("onto a machine that is back: got exit code %d and %q, want 2 and a refusal", code, out)
	}
}
