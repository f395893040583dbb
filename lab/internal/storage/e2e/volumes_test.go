// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestVolumesLife is the smallest life of a volume: a claim becomes a disk with a file system in a pod, and goes with it.
func TestVolumesLife(t *testing.T) {
	if testing.Short() {
		t.Skip("what real machines run takes ten CPU minutes to build: make e2e E2E_FLAGS=lab/internal/storage/e2e builds it and runs this")
	}
	l := start(t, "--real-nodes", "1", "--nodes", "1")
	l.life(ext4Class, "ext4")
	l.life(xfsClass, "xfs")
	l.nothingLeft()
}

// life makes a claim and a pod that writes, and deletes both.
func (l *lab) life(class, fileSystem string) {
	l.Helper()
	began, before := time.Now(), len(l.cloud().Volumes)
	l.createClaim("life", class, "1Gi", nil)
	l.createWriter("life", "life")
	pod := l.awaitPod("life")
	l.awaitCount("life", pod.Spec.NodeName)
	l.Logf("%s: a claim became a disk with numbers on it after %v", fileSystem, time.Since(began).Round(100*time.Millisecond))
	if kind := l.kindOf(l.mountOf(pod, "life")); kind != fileSystem {
		l.Errorf("the file system is %s, want %s", kind, fileSystem)
	}
	l.checkNumbers(filepath.Join(l.mountOf(pod, "life"), fileName), "life")
	l.deletePod("life")
	l.deleteClaim("life")
	l.left(before)
	for _, file := range l.must2(filepath.Glob(filepath.Join(l.records, "life*"))) {
		l.must(os.Remove(file))
	}
}

func (l *lab) must2(values []string, err error) []string {
	l.Helper()
	l.must(err)
	return values
}

// kindOf is the kind of file system at a path (statfs(2)).
func (l *lab) kindOf(path string) string {
	l.Helper()
	var st unix.Statfs_t
	l.must(unix.Statfs(path, &st))
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	}
	return fmt.Sprintf("%#x", st.Type)
}

// TestVolumes takes one lab of two machines through what happens to volumes, with a counter that must never lose a number.
func TestVolumes(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for machines that fail: make e2e E2E_FLAGS=lab/internal/storage/e2e runs it")
	}
	all := start(t, "--real-nodes", "2", "--nodes", "2")
	for _, part := range []struct {
		name string
		run  func(*lab)
	}{
		{"a claim lives and goes", func(l *lab) { l.life(ext4Class, "ext4") }},
		{"a volume grows while it is used", (*lab).grows},
		{"a snapshot is restored and a claim cloned", (*lab).copies},
		{"a StatefulSet moves with its data", (*lab).moves},
		{"the driver is replaced under volumes in use", (*lab).replaced},
		{"a machine is cut off", func(l *lab) { l.failsOver(cutOff()) }},
		{"a machine is switched off", func(l *lab) { l.failsOver(switchedOff()) }},
		{"twenty claims come and go", func(l *lab) { l.many(20) }},
		{"nothing is left", (*lab).nothingLeft},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(all.with(t)) }) {
			return // what comes after begins where this should have ended
		}
	}
}

// grows doubles a volume that a pod writes to. The file system is XFS: for ext4 the kernel wants a right (CAP_SYS_RESOURCE) that root does not have everywhere.
func (l *lab) grows() {
	l.createClaim("grows", xfsClass, "1Gi", nil)
	l.createWriter("grows", "grows")
	pod := l.awaitPod("grows")
	l.awaitCount("grows", "")
	before := l.sizeOf(l.mountOf(pod, "grows"))
	_, err := l.api.CoreV1().PersistentVolumeClaims(namespace).Patch(l.Context(), "grows", types.MergePatchType,
		[]byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`), metav1.PatchOptions{})
	l.must(err)
	took := l.await("the claim to have 2 GiB", func() error {
		got, err := l.api.CoreV1().PersistentVolumeClaims(namespace).Get(l.Context(), "grows", metav1.GetOptions{})
		if err == nil && got.Status.Capacity.Storage().Cmp(resource.MustParse("2Gi")) < 0 {
			err = fmt.Errorf("its status is %+v", got.Status)
		}
		return err
	})
	after := l.sizeOf(l.mountOf(pod, "grows"))
	if after < before+1<<29 {
		l.Errorf("the file system had %d bytes and has %d", before, after)
	}
	l.Logf("it grew from %d to %d MiB under a writer in %v", before>>20, after>>20, took.Round(100*time.Millisecond))
	l.awaitCount("grows", "")
	l.checkNumbers(filepath.Join(l.mountOf(pod, "grows"), fileName), "grows")
	l.deletePod("grows")
	l.deleteClaim("grows")
}

func (l *lab) sizeOf(path string) uint64 {
	l.Helper()
	var st unix.Statfs_t
	l.must(unix.Statfs(path, &st))
	return st.Blocks * uint64(st.Bsize) //nolint:gosec // it is positive
}

// copies restores a snapshot into a larger volume, and clones a claim. Both have what was on the disk.
func (l *lab) copies() {
	l.createClaim("origin", ext4Class, "1Gi", nil)
	l.createWriter("origin", "origin")
	l.awaitCount("origin", "")
	l.deletePod("origin")
	least, _ := l.record("origin")
	l.snapshotOf("copy", "origin")
	group := snapshots.Group
	l.createClaim("restored", ext4Class, "2Gi", &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "copy"})
	l.createWriter("restored", "restored")
	pod := l.awaitPod("restored")
	l.awaitCount("restored", "")
	l.checkCopy(pod, "restored", least)
	if size := l.sizeOf(l.mountOf(pod, "restored")); size < 3<<29 {
		l.Errorf("the restored file system has %d bytes of 2 GiB", size)
	}
	l.deletePod("restored")
	l.deleteClaim("restored")
	l.must(l.dynamic.Resource(snapshots).Namespace(namespace).Delete(l.Context(), "copy", metav1.DeleteOptions{}))
	l.deleteClaim("origin")
	l.nothingLeft()
	l.clone()
}

// clone copies a claim, of which no other snapshot was made: DigitalOcean makes one in ten minutes.
func (l *lab) clone() {
	l.createClaim("source", ext4Class, "1Gi", nil)
	l.createWriter("source", "source")
	l.awaitCount("source", "")
	l.deletePod("source")
	least, _ := l.record("source")
	l.createClaim("clone", ext4Class, "1Gi", &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"})
	l.createWriter("clone", "clone")
	pod := l.awaitPod("clone")
	l.awaitCount("clone", "")
	l.checkCopy(pod, "clone", least)
	l.deletePod("clone")
	l.deleteClaim("clone")
	l.deleteClaim("source")
	l.nothingLeft()
}

// checkCopy checks that a writer went on where another volume's ended.
func (l *lab) checkCopy(pod *corev1.Pod, claimName string, least int) {
	l.Helper()
	l.checkNumbers(filepath.Join(l.mountOf(pod, claimName), fileName), claimName)
	if number, _ := l.record(claimName); number <= least {
		l.Errorf("the copy counts at %d, and %d was written before it was made", number, least)
	}
}

// moves evicts a StatefulSet's pod from its machine: it goes on on the other one.
func (l *lab) moves() {
	l.createSet("moves", ext4Class)
	pod := l.awaitPod("moves-0")
	first := pod.Spec.NodeName
	l.awaitCount("moves-0", first)
	l.cordon(first, true)
	defer l.cordon(first, false)
	l.must(l.api.CoreV1().Pods(namespace).Delete(l.Context(), "moves-0", metav1.DeleteOptions{}))
	took := l.await("the counter on the other machine", func() error {
		if number, writer := l.record("moves-0"); strings.HasPrefix(writer, "moves-0-"+first) {
			return fmt.Errorf("the last number is %d by %s", number, writer)
		}
		return nil
	})
	second := l.awaitPod("moves-0")
	l.awaitCount("moves-0", second.Spec.NodeName)
	l.Logf("it counts on the other machine after %v", took.Round(100*time.Millisecond))
	l.checkNumbers(filepath.Join(l.mountOf(second, "data-moves-0"), fileName), "moves-0")
	l.deleteSet("moves")
	l.nothingLeft()
}

// many makes and deletes claims at once, and counts the calls.
func (l *lab) many(count int) {
	since, began := l.mark(), time.Now()
	for i := range count {
		l.createClaim(fmt.Sprintf("many-%d", i), ext4Class, "1Gi", nil)
	}
	l.await("all claims to be bound", func() error { return l.bound(count) })
	bound := time.Since(began)
	// As many pods as machines can have volumes: seven each.
	pods := min(count, 2*7-2)
	for i := range pods {
		l.createWriter(fmt.Sprintf("many-%d", i), fmt.Sprintf("many-%d", i))
	}
	for i := range pods {
		l.awaitPod(fmt.Sprintf("many-%d", i))
	}
	attached := time.Since(began)
	for i := range pods {
		l.must(l.api.CoreV1().Pods(namespace).Delete(l.Context(), fmt.Sprintf("many-%d", i), metav1.DeleteOptions{}))
	}
	for i := range count {
		l.deleteClaim(fmt.Sprintf("many-%d", i))
	}
	l.nothingLeft()
	gone := time.Since(began)
	calls := l.volumeRequests(since)
	statuses := map[string]int{}
	for _, c := range calls {
		statuses[fmt.Sprintf("%s %d", c.Method, c.Status)]++
	}
	l.Logf("%d claims: bound after %v, %d of them in pods after %v, all gone after %v; %d calls: %v, %d attach, %d detach", count, bound.Round(time.Second),
		pods, attached.Round(time.Second), gone.Round(time.Second), len(calls), statuses, actions(calls, "attach"), actions(calls, "detach"))
	if n := actions(calls, "attach"); n != pods {
		l.Errorf("%d attachments were accepted for %d pods", n, pods)
	}
	if n := actions(calls, "detach"); n != pods {
		l.Errorf("%d detachments were accepted for %d pods", n, pods)
	}
	const most = 20 // calls for a claim, from its creation to its end
	if len(calls) > most*count {
		l.Errorf("%d claims took %d calls, more than %d each", count, len(calls), most)
	}
	if n := statuses[fmt.Sprintf("%s %d", http.MethodPost, http.StatusUnprocessableEntity)]; n > 0 {
		l.Logf("DigitalOcean refused %d actions, as another was under way", n)
	}
}

func (l *lab) bound(count int) error {
	list, err := l.api.CoreV1().PersistentVolumeClaims(namespace).List(l.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	n := 0
	for _, c := range list.Items {
		if c.Status.Phase == corev1.ClaimBound {
			n++
		}
	}
	if n < count {
		return fmt.Errorf("%d of %d claims are bound", n, count)
	}
	return nil
}
