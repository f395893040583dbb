// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

const (
	driver = "dobs.csi.digitalocean.com"
	// perMachine is how many volumes DigitalOcean attaches to a droplet.
	perMachine = 7
)

// night skips what takes an hour, unless it is asked for.
func night(t *testing.T) {
	t.Helper()
	if testing.Short() || os.Getenv("MOORING_CASES") != "night" {
		t.Skip("it takes an hour: MOORING_CASES=night runs it")
	}
}

// TestVolumesNight lets machines fail ten times in each way, with one counter that must never lose a number.
func TestVolumesNight(t *testing.T) {
	night(t)
	const times, name = 10, "night"
	l := start(t, "--real-nodes", "2", "--nodes", "2")
	l.createSet(name, ext4Class)
	machine := l.awaitPod(name + "-0").Spec.NodeName
	l.awaitCount(name+"-0", machine)
	// Kubernetes detaches the volumes of a Node that was deleted without the taint after six minutes.
	l.patience = 20 * time.Minute
	for _, f := range []failure{cutOff(), switchedOff(), destroyed()} {
		t.Run(f.name, func(t *testing.T) {
			for range times {
				machine, _ = l.with(t).strike(f, name, machine)
			}
		})
	}
	l.deleteSet(name)
	l.nothingLeft()
}

// powerOffs is the variable with how often TestVolumesPowerOff switches a machine off.
const powerOffs = "MOORING_POWER_OFFS"

// TestVolumesPowerOff switches the machine of a counter off, ten times, with the timings that a kubelet and
// kube-controller-manager have by default, and the taint that digitalocean-cloud-controller-manager sets: the counter
// writes elsewhere within 75 seconds, has lost no number, and no number is written by two.
func TestVolumesPowerOff(t *testing.T) {
	times := cases.FromEnv(t, powerOffs, 0)
	if times == 0 {
		night(t)
		times = 10
	}
	const name, most = "timings", 75 * time.Second
	l := start(t, "--real-nodes", "2", "--nodes", "2", "--node-monitor-grace-period", "50s")
	l.createSet(name, ext4Class)
	machine := l.awaitPod(name + "-0").Spec.NodeName
	l.awaitCount(name+"-0", machine)
	off := switchedOff()
	off.untouched = true
	for i := range times {
		var took time.Duration
		l.spreadDriver()
		if machine, took = l.strike(off, name, machine); took > most {
			t.Errorf("power-off %d: the counter wrote elsewhere after %.1f s", i+1, took.Seconds())
		}
	}
	l.deleteSet(name)
	l.nothingLeft()
}

// TestVolumesCrowd makes 500 claims at once, attaches their volumes to 20 machines, as many at a time as these take, and deletes all: calls, time, and that
// nothing is left. The machines are simulated but for the two on which the driver runs, so that nothing is mounted.
func TestVolumesCrowd(t *testing.T) {
	night(t)
	const claims, machines = 500, 20
	l := start(t, "--real-nodes", "2", "--nodes", strconv.Itoa(machines+2))
	l.patience = time.Hour // DigitalOcean takes 250 calls in a minute
	nodes := l.pretendPlugins(machines)
	since, began := l.mark(), time.Now()
	for i := range claims {
		l.createClaim(fmt.Sprintf("crowd-%d", i), ext4Class, "1Gi", nil)
	}
	l.await("all claims to be bound", func() error { return l.bound(claims) })
	t.Logf("%d claims are bound after %v", claims, time.Since(began).Round(time.Second))
	volumes, err := l.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	l.must(err)
	for first := 0; first < len(volumes.Items); first += machines * perMachine {
		l.attachAndDetach(volumes.Items[first:min(first+machines*perMachine, len(volumes.Items))], nodes)
	}
	t.Logf("all were attached and detached after %v", time.Since(began).Round(time.Second))
	l.must(l.api.CoreV1().PersistentVolumeClaims(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	l.nothingLeft()
	links, err := filepath.Glob(filepath.Join(l.Disks(), "by-id-*", "*"))
	if err != nil || len(links) > 0 {
		t.Errorf("links are left: %v, %v", links, err)
	}
	calls := l.mark() - since // of all, with those of the cloud controller manager; the journal forgets the first
	took := time.Since(began).Round(time.Second)
	t.Logf("%d claims came and went in %v with %d calls to DigitalOcean, %.1f for each", claims, took, calls, float64(calls)/claims)
	const most = 20
	if calls > most*claims {
		t.Errorf("there were more than %d calls for each claim", most)
	}
}

// pretendPlugins writes what kubelet writes of a node plugin, for simulated machines.
func (l *lab) pretendPlugins(count int) []string {
	l.Helper()
	droplets := map[string]int{}
	for _, d := range l.cloud().Droplets {
		droplets[d.Name] = d.ID
	}
	var names []string
	for i := range count {
		name := fmt.Sprintf("node-%d", i+3)
		most := int32(perMachine)
		plugin := storagev1.CSINodeDriver{
			Name: driver, NodeID: strconv.Itoa(droplets[name]), TopologyKeys: []string{"region"}, Allocatable: &storagev1.VolumeNodeResources{Count: &most},
		}
		_, err := l.api.StorageV1().CSINodes().Create(l.Context(), &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{plugin}},
		}, metav1.CreateOptions{})
		l.must(err)
		names = append(names, name)
	}
	return names
}

// attachAndDetach does with volumes what the attach-detach controller does, on all machines at once.
func (l *lab) attachAndDetach(volumes []corev1.PersistentVolume, nodes []string) {
	l.Helper()
	attachments := l.api.StorageV1().VolumeAttachments()
	for i, v := range volumes {
		_, err := attachments.Create(l.Context(), &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "crowd-" + v.Name},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: driver, NodeName: nodes[i%len(nodes)], Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.Name},
			},
		}, metav1.CreateOptions{})
		l.must(err)
	}
	l.await("all to be attached", func() error {
		list, err := attachments.List(l.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		attached := 0
		for _, a := range list.Items {
			if a.Status.Attached {
				attached++
			}
		}
		if attached < len(volumes) {
			return fmt.Errorf("%d of %d are", attached, len(volumes))
		}
		return nil
	})
	l.must(attachments.DeleteCollection(l.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	l.await("all to be detached", func() error {
		list, err := attachments.List(l.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
}
