// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// putClusterInformation writes Calico's ClusterInformation as Calico and the controller do.
func putClusterInformation(t *testing.T, etcd *testkit.Etcd, ready, uid string) {
	t.Helper()
	text := fmt.Sprintf(`{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default",`+
		`"annotations":{"nodes.mooring.dev/cluster-uid":%q}},"spec":{"datastoreReady":%s}}`, uid, ready)
	must.Get(etcd.Client.Put(t.Context(), "/calico/resources/v3/projectcalico.org/clusterinformations/default", text)).Or(t)
}

// A journal that the controller wrote is put back by the command.
func TestRestoreCommand(t *testing.T) {
	etcd := testkit.NewEtcd(t)
	info := func(ready, uid string) { putClusterInformation(t, etcd, ready, uid) }
	value := `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"n1","uid":"uid-1"},"spec":{}}`
	key := "/calico/resources/v3/projectcalico.org/nodes/n1"
	dir := t.TempDir()
	entry := controller.Entry{Time: time.Now(), ClusterUID: "ours", Host: "n1", KubernetesNode: "n1", Objects: []calico.Object{{Key: key, Revision: 3, Value: value}}}
	must.Do(t, (controller.FolderJournal{Dir: dir}).Record(t.Context(), entry))
	file := onlyFile(t, dir)
	restore := func() (int, string) {
		return program(t, []string{"ETCD_ENDPOINTS=" + etcd.Endpoint}, "restore", file)
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
	if code, out := restore(); code != 0 || out != "unchanged: "+key+" is there just as it was\n" {
		t.Errorf("again: got exit code %d and %q, want 0, since it is there as it was", code, out)
	}
	must.Get(etcd.Client.Put(t.Context(), key, strings.Replace(value, "uid-1", "uid-2", 1))).Or(t)
	if code, out := restore(); code != 2 || !strings.Contains(out, "machine n1 has joined again") {
		t.Errorf("onto a machine that is back: got exit code %d and %q, want 2 and a refusal", code, out)
	}
}

// nodeOf is a Calico Node of a machine, in one of its lives, as it is stored.
func nodeOf(host, uid string) calico.Object {
	return calico.Object{
		Key: "/calico/resources/v3/projectcalico.org/nodes/" + host, Revision: 3,
		Value: fmt.Sprintf(`{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"uid":%q},"spec":{}}`, host, uid),
	}
}

// felixOf is the configuration that calico-node wrote for a machine.
func felixOf(host string) calico.Object {
	return calico.Object{
		Key: "/calico/resources/v3/projectcalico.org/felixconfigurations/node." + host, Revision: 4,
		Value: fmt.Sprintf(`{"kind":"FelixConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"node.%s"},"spec":{}}`, host),
	}
}

// archive is a journal in ConfigMaps, Calico's etcd, and the restore command on both.
type archive struct {
	t         *testing.T
	etcd      *testkit.Etcd
	journal   *controller.ConfigMapJournal
	namespace string
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	cluster, etcd := controlplane.Shared(t), testkit.NewEtcd(t)
	namespace := must.Get(cluster.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "restore-"}}, metav1.CreateOptions{})).Or(t)
	journal := must.Get(controller.NewConfigMapJournal(cluster.Config, namespace.Name)).Or(t)
	putClusterInformation(t, etcd, "true", "ours")
	return &archive{t: t, etcd: etcd, journal: journal, namespace: namespace.Name}
}

// record keeps an entry of a machine, so many minutes after an hour ago.
func (a *archive) record(host string, minutes int, objects ...calico.Object) {
	a.t.Helper()
	must.Do(a.t, a.journal.Record(a.t.Context(), controller.Entry{
		Time: time.Now().Add(time.Duration(minutes-60) * time.Minute), ClusterUID: "ours", Host: host, KubernetesNode: host,
		Because: host + " is gone", Objects: objects,
	}))
}

// entries are the names of a machine's entries, oldest first by what they say themselves.
func (a *archive) entries(host string) []string {
	a.t.Helper()
	all := must.Get(a.journal.List(a.t.Context())).Or(a.t)
	var names []string
	for _, kept := range all {
		if kept.Host == host {
			names = append(names, kept.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (a *archive) restore(args ...string) (int, string) {
	a.t.Helper()
	args = append([]string{"restore", "--namespace", a.namespace, "--kubeconfig", controlplane.Shared(a.t).Kubeconfig}, args...)
	return program(a.t, []string{"ETCD_ENDPOINTS=" + a.etcd.Endpoint}, args...)
}

// expect runs restore and wants an exit code and a text, and, unless something is to be written, an etcd that has not moved.
func (a *archive) expect(code int, want string, writes bool, args ...string) string {
	a.t.Helper()
	before := a.etcd.Revision(a.t)
	got, out := a.restore(args...)
	if got != code || !strings.Contains(out, want) {
		a.t.Errorf("restore %q: got exit code %d and %q, want %d and %q", args, got, out, code, want)
	}
	if moved := a.etcd.Revision(a.t) != before; moved != writes {
		a.t.Errorf("restore %q: etcd was written: %v, want %v", args, moved, writes)
	}
	return out
}

// A machine is put back from the journal in ConfigMaps by its name, by its entry's and by its ConfigMap's; unknown names write nothing and say what
// there is.
func TestRestoreFromConfigMaps(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.expect(1, `there is no "n1" to restore: the journal in namespace `+a.namespace+" is empty", false, "n1")
	a.expect(0, "has no entry", false, "--list")
	for i := range 12 {
		a.record(fmt.Sprintf("n%d", i), i, nodeOf(fmt.Sprintf("n%d", i), fmt.Sprintf("uid-%d", i)), felixOf(fmt.Sprintf("n%d", i)))
	}
	list := a.expect(0, "BECAUSE", false, "--list")
	rows := strings.Split(strings.TrimSpace(list), "\n")
	if len(rows) != 13 || !strings.Contains(rows[1], "n11") || strings.Join(strings.Fields(rows[0]), " ") != "ENTRY HOST WHEN OBJECTS BECAUSE" {
		t.Errorf("the list is not a row for each entry, the newest first:\n%s", list)
	}
	if fields := strings.Fields(rows[12]); fields[0] != a.entries("n0")[0] || fields[1] != "n0" || fields[3] != "2" || strings.Join(fields[4:], " ") != "n0 is gone" {
		t.Errorf("the row of n0 is %q", rows[12])
	}
	if one := a.expect(0, "n3 is gone", false, "--list", "n3"); strings.Count(one, "\n") != 2 {
		t.Errorf("the list of one machine:\n%s", one)
	}
	a.expect(1, "and 2 more; restore --list shows them", false, "n99")
	a.expect(1, `there is no "n99" to restore`, false, "n1", "n99")
	a.expect(1, `there is no "n"`, false, "--list", "n")
	a.expect(0, "would restore "+nodeOf("n1", "").Key, false, "n1", "--dry-run")
	a.expect(0, "restored "+felixOf("n1").Key, true, "n1")
	if got := a.etcd.Dump(t)[nodeOf("n1", "").Key]; got != nodeOf("n1", "uid-1").Value {
		t.Errorf("restored: got %s, want every byte as it was", got)
	}
	a.expect(0, "unchanged: "+nodeOf("n1", "").Key, false, "n1")
	a.expect(0, "unchanged: "+nodeOf("n1", "").Key, false, "n1", "--dry-run")
	a.expect(0, "restored "+nodeOf("n2", "").Key, true, a.entries("n2")[0])
	a.expect(0, "restored "+nodeOf("n3", "").Key, true, controller.JournalPrefix+a.entries("n3")[0]+"-001")
	must.Get(a.etcd.Client.Put(t.Context(), nodeOf("n4", "").Key, nodeOf("n4", "another").Value)).Or(t)
	a.expect(2, "machine n4 has joined again", false, "n4", "--dry-run")
	a.expect(2, "machine n4 has joined again", false, "n4")
	must.Get(a.etcd.Client.Put(t.Context(), felixOf("n5").Key, "{}")).Or(t)
	a.expect(2, "exists again and stays as it is", false, "n5", "--dry-run")
	a.expect(2, "exists again and stays as it is", true, "n5")
	a.record("ipam", 20, calico.Object{Key: "/calico/ipam/v2/host/ipam/ipv4/block/10.0.0.0-26", Value: "{}"})
	a.expect(2, "holds nothing that could be put back", false, "ipam")
	putClusterInformation(t, a.etcd, "true", "another's")
	a.expect(1, "check ETCD_ENDPOINTS", false, "n6")
}

// Of several entries of one machine the newest is not what an operator wants for sure: which one is asked for, unless they hold the same.
func TestRestoreOfSeveralEntries(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	// A clean-up that was interrupted: what was left is journaled again, with the fence.
	fenced := nodeOf("cut", "u1")
	fenced.Value = strings.Replace(fenced.Value, `"uid"`, `"annotations":{"nodes.mooring.dev/decommission":"cut"},"uid"`, 1)
	a.record("cut", 0, nodeOf("cut", "u1"), felixOf("cut"))
	a.record("cut", 10, fenced)
	out := a.expect(1, "machine cut has 2 different entries: name the one to restore", false, "cut")
	both := a.entries("cut")
	for _, name := range both {
		if !strings.Contains(out, name) {
			t.Errorf("the refusal does not name %s: %s", name, out)
		}
	}
	a.expect(0, "restored "+felixOf("cut").Key, true, both[1], both[0])
	if got := a.etcd.Dump(t)[nodeOf("cut", "").Key]; got != nodeOf("cut", "u1").Value {
		t.Errorf("restored: got %s, want it as it was before the clean-up", got)
	}
	// Another one, whose Calico Node somebody else removed meanwhile: kube-controllers alongside do.
	affinity := calico.Object{Key: "/calico/ipam/v2/host/bare/ipv4/block/10.0.0.0-26", Value: "{}"}
	a.record("bare", 0, nodeOf("bare", "u1"), felixOf("bare"), affinity)
	a.record("bare", 10, felixOf("bare"), affinity)
	a.record("bare", 20, affinity)
	a.expect(0, "restored "+felixOf("bare").Key, true, a.entries("bare")...)
	if out := a.expect(2, "machine bare has joined again", false, a.entries("bare")[1]); strings.Contains(out, "restored /") {
		t.Errorf("onto a Node that the entry does not hold: %q", out)
	}
	// A machine that came and went again.
	a.record("twice", 0, nodeOf("twice", "u1"))
	a.record("twice", 10, nodeOf("twice", "u2"), felixOf("twice"))
	lives := a.entries("twice")
	a.expect(1, "2 different entries", false, "twice")
	a.expect(1, "are of two Calico Nodes of that name (UID u1 and u2)", false, lives[0], lives[1])
	a.expect(0, "restored "+felixOf("twice").Key, true, lives[1])
	// The same, kept again after hours, by a process that could not drop the older copy.
	a.journal.Client = undeletable{a.journal.Client}
	a.record("same", 200, nodeOf("same", "u1"))
	a.record("same", 300, nodeOf("same", "u1"))
	if entries := a.entries("same"); len(entries) != 2 {
		t.Fatalf("entries: %q, want two of the same content", entries)
	}
	a.expect(0, "restored "+nodeOf("same", "").Key, true, "same")
}

// undeletable is a client that may delete nothing.
type undeletable struct{ client.Client }

func (undeletable) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return errors.New("forbidden")
}

// dying is a client of a process that dies after its first write.
type dying struct {
	client.Client
	writes int
}

func (d *dying) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if d.writes++; d.writes > 1 {
		return errors.New("the process has died")
	}
	return d.Client.Create(ctx, object, options...)
}

// An entry that lacks a part is told of and not used.
func TestRestoreOfAnIncompleteEntry(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.journal.Client = &dying{Client: a.journal.Client}
	chance, noise := rand.New(rand.NewPCG(3, 4)), make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(' ' + chance.IntN(94))
	}
	err := a.journal.Record(t.Context(), controller.Entry{
		Time: time.Now(), ClusterUID: "ours", Host: "half", Objects: []calico.Object{{Key: "/calico/x", Value: string(noise)}},
	})
	if err == nil {
		t.Fatal("the entry is complete, so this proves nothing")
	}
	a.expect(1, "is incomplete, 1 of its 2 parts exist", false, "half")
	a.expect(0, "1 of its 2 parts exist, so nothing was removed because of it", false, "--list")
}
