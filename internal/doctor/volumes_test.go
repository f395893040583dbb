// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

const (
	ourDriver   = "mooring/digitalocean-csi-driver:v1"
	theirDriver = "docker.io/digitalocean/do-csi-plugin:v4.16.0"
	theRule     = "/etc/udev/rules.d/99-digitalocean-automount.rules"
)

func controllerOf(where, image string, changes ...func(*doctor.Workload)) doctor.Workload {
	w := deployment(where, image, changes...)
	w.Kind = "StatefulSet"
	return w
}

// nodePlugin is one as our manifest has it.
func nodePlugin(where, image string, changes ...func(*doctor.Workload)) doctor.Workload {
	w := deployment(where, image, args("--remove-automount-rule="+theRule))
	w.Kind, w.UdevRules = "DaemonSet", true
	for _, change := range changes {
		change(&w)
	}
	return w
}

func drivers(workloads ...doctor.Workload) doctor.VolumeEvidence {
	return doctor.VolumeEvidence{Workloads: workloads}
}

// installed is our driver as its manifests make it.
func installed(machines ...doctor.VolumeMachine) doctor.VolumeEvidence {
	e := drivers(controllerOf("kube-system/csi-do-controller", ourDriver), nodePlugin("kube-system/csi-do-node", ourDriver))
	e.Machines = machines
	return e
}

func machineOf(name string, changes ...func(*doctor.VolumeMachine)) doctor.VolumeMachine {
	m := doctor.VolumeMachine{Name: name, Ready: true, Droplet: "7", Registered: true, ID: "7", Keys: []string{"region"}, Region: "nyc1", CloudRegion: "nyc1"}
	for _, change := range changes {
		change(&m)
	}
	return m
}

func withClasses(classes ...doctor.VolumeClass) doctor.VolumeEvidence {
	return doctor.VolumeEvidence{Classes: classes}
}

// shipped is a class as the manifests have it, read from an API server.
func shipped(name string, changes ...func(*doctor.VolumeClass)) doctor.VolumeClass {
	c := doctor.VolumeClass{Name: name, Provisioner: "dobs.csi.digitalocean.com", Reclaim: "Delete", Binding: "Immediate", Expands: true}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func byDefault(c *doctor.VolumeClass) { c.Default = true }

func TestVolumes(t *testing.T) {
	t.Parallel()
	selects := func(w *doctor.Workload) { w.Selects = true }
	const node = "DaemonSet kube-system/csi-do-node"
	for name, c := range map[string]struct {
		e    doctor.VolumeEvidence
		want []string
	}{
		"a cluster without volumes": {drivers(deployment("a/b", "nginx")), nil},
		"ours, well":                {installed(machineOf("w1"), machineOf("w2")), nil},
		"csi-digitalocean, well": {drivers(controllerOf("kube-system/csi-do-controller", theirDriver), nodePlugin("kube-system/csi-do-node", theirDriver, args(), func(w *doctor.Workload) {
			w.Init = []string{"rm", "-f", theRule}
		})), nil},
		"two controllers and two node plugins": {
			drivers(controllerOf("kube-system/csi-do-controller", "mirror/any:v4"), controllerOf("volumes/csi-do-controller", ourDriver), nodePlugin("kube-system/csi-do-node", theirDriver),
				nodePlugin("volumes/csi-do-node", ourDriver)),
			[]string{
				"problem volume-drivers: 2 controllers run driver dobs.csi.digitalocean.com: StatefulSet kube-system/csi-do-controller and StatefulSet volumes/csi-do-controller",
				"problem volume-drivers: 2 node plugins run driver dobs.csi.digitalocean.com: DaemonSet kube-system/csi-do-node and DaemonSet volumes/csi-do-node",
			},
		},
		"the old one is scaled to 0": {drivers(controllerOf("kube-system/csi-do-controller", theirDriver, pods(0, 0)), controllerOf("volumes/csi-do-controller", ourDriver)), nil},
		"two under two names": {
			drivers(controllerOf("kube-system/csi-do-controller", theirDriver), controllerOf("volumes/csi-do-controller", ourDriver, args("--driver-name=other.example.com"))), nil,
		},
		"node plugins for some machines each": {
			drivers(nodePlugin("a/csi-do-node", theirDriver, selects), nodePlugin("b/csi-do-node", ourDriver, selects)),
			[]string{"warning volume-drivers: 2 node plugins run driver dobs.csi.digitalocean.com: DaemonSet a/csi-do-node and DaemonSet b/csi-do-node"},
		},
		"the udev rule stays": {
			drivers(nodePlugin("kube-system/csi-do-node", ourDriver, args())),
			[]string{"warning automount-rule: " + node + " does not remove the udev rule 99-digitalocean-automount.rules"},
		},
		"the udev rule of the container is removed": {
			drivers(nodePlugin("kube-system/csi-do-node", ourDriver, func(w *doctor.Workload) { w.UdevRules = false })),
			[]string{"warning automount-rule: " + node + " is to remove the udev rule 99-digitalocean-automount.rules, and does not mount the machine's /etc/udev/rules.d"},
		},
		"machines that are not what they seem": {
			installed(
				machineOf("another", func(m *doctor.VolumeMachine) { m.ID = "8" }), machineOf("absent", func(m *doctor.VolumeMachine) { m.Registered = false }),
				machineOf("off", func(m *doctor.VolumeMachine) { m.Registered, m.Ready = false, false }), machineOf("keyless", func(m *doctor.VolumeMachine) { m.Keys = nil }),
				machineOf("unlabeled", func(m *doctor.VolumeMachine) { m.Region = "" }), machineOf("elsewhere", func(m *doctor.VolumeMachine) { m.CloudRegion = "ams3" }),
			),
			[]string{
				"problem volume-topology: 1 Node registered the driver with another droplet's ID: another (droplet 7, registered as 8)",
				"problem volume-topology: 1 Node registered the driver without the topology key region: keyless",
				"problem volume-topology: 1 Node without the label region: unlabeled",
				"warning volume-topology: 1 Node ready without the driver in the CSINode: absent",
				"warning volume-topology: 1 Node with a label region that differs from topology.kubernetes.io/region: elsewhere (nyc1 and ams3)",
			},
		},
		"without a node plugin no machine is to have it": {withMachines(machineOf("absent", func(m *doctor.VolumeMachine) { m.Registered = false })), nil},
		"the classes of the manifests": {
			withClasses(shipped("do-block-storage", byDefault), shipped("do-block-storage-xfs", func(c *doctor.VolumeClass) { c.Parameters = map[string]string{"fstype": "xfs"} })), nil,
		},
		"classes that differ": {
			withClasses(shipped("do-block-storage", func(c *doctor.VolumeClass) { c.Parameters = map[string]string{"fstype": "xfs"} }),
				shipped("do-block-storage-retain", func(c *doctor.VolumeClass) { c.Expands, c.Binding = false, "WaitForFirstConsumer" }), shipped("mine")),
			[]string{
				"warning volume-classes: StorageClass do-block-storage differs from the one of the driver's manifests: parameter fstype is xfs, not unset",
				"warning volume-classes: StorageClass do-block-storage-retain differs from the one of the driver's manifests: reclaimPolicy is Delete, not Retain, " +
					"volumeBindingMode is WaitForFirstConsumer, not Immediate, allowVolumeExpansion is false, not true",
			},
		},
		"two defaults": {
			withClasses(shipped("do-block-storage", byDefault), doctor.VolumeClass{Name: "local", Provisioner: "other", Default: true}),
			[]string{"warning volume-classes: 2 StorageClasses are the default: do-block-storage, local"},
		},
		"two defaults of others": {withClasses(doctor.VolumeClass{Name: "a", Default: true}, doctor.VolumeClass{Name: "b", Default: true}), nil},
		"two defaults of snapshots": {
			doctor.VolumeEvidence{Snapshots: []string{"b", "a"}},
			[]string{"problem volume-classes: 2 VolumeSnapshotClasses of driver dobs.csi.digitalocean.com are the default: a, b"},
		},
		"what was not read": {
			doctor.VolumeEvidence{Unread: []finding.Side{{Name: "StatefulSets", Problem: "forbidden"}, {Name: "StorageClasses", Problem: "no"}}},
			[]string{"warning volume-drivers: not read: StatefulSets: forbidden", "warning volume-drivers: not read: StorageClasses: no"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, said(doctor.Volumes(c.e))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func withMachines(machines ...doctor.VolumeMachine) doctor.VolumeEvidence {
	return doctor.VolumeEvidence{Machines: machines}
}

// Whatever the order in which it was read, the findings are equal; and what is scaled to 0 is no driver.
func TestVolumesInAnyOrder(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		var e doctor.VolumeEvidence
		images := rapid.SampledFrom([]string{ourDriver, theirDriver, "nginx"})
		for i := range rapid.IntRange(0, 4).Draw(t, "workloads") {
			kind := rapid.SampledFrom([]func(string, string, ...func(*doctor.Workload)) doctor.Workload{controllerOf, nodePlugin, deployment}).Draw(t, "kind")
			w := kind("n/"+string(rune('a'+i)), images.Draw(t, "image"), pods(rapid.IntRange(0, 2).Draw(t, "wanted"), 1))
			w.Selects, w.UdevRules = rapid.Bool().Draw(t, "selects"), rapid.Bool().Draw(t, "rules")
			e.Workloads = append(e.Workloads, w)
		}
		for i := range rapid.IntRange(0, 8).Draw(t, "machines") {
			e.Machines = append(e.Machines, machineOf(string(rune('a'+i)), func(m *doctor.VolumeMachine) {
				m.Ready, m.Registered = rapid.Bool().Draw(t, "ready"), rapid.Bool().Draw(t, "registered")
				m.ID, m.Region = rapid.SampledFrom([]string{"7", "8"}).Draw(t, "ID"), rapid.SampledFrom([]string{"", "nyc1"}).Draw(t, "region")
			}))
			e.Classes = append(e.Classes, shipped("do-block-storage"+string(rune('a'+i)), func(c *doctor.VolumeClass) { c.Default = rapid.Bool().Draw(t, "default") }))
		}
		found := doctor.Volumes(e)
		random := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "order")))
		random.Shuffle(len(e.Workloads), func(i, j int) { e.Workloads[i], e.Workloads[j] = e.Workloads[j], e.Workloads[i] })
		random.Shuffle(len(e.Machines), func(i, j int) { e.Machines[i], e.Machines[j] = e.Machines[j], e.Machines[i] })
		random.Shuffle(len(e.Classes), func(i, j int) { e.Classes[i], e.Classes[j] = e.Classes[j], e.Classes[i] })
		if diff := cmp.Diff(found, doctor.Volumes(e)); diff != "" {
			t.Fatalf("the order matters: %s", diff)
		}
		for i := range e.Workloads {
			e.Workloads[i].Wanted = 0
		}
		if slices.ContainsFunc(doctor.Volumes(e), func(f finding.Finding) bool { return f.Check != "volume-classes" }) {
			t.Fatalf("what is scaled to 0 is judged: %v", said(doctor.Volumes(e)))
		}
	})
}
