// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// VolumeDriver is the name of DigitalOcean's CSI driver, and of Mooring's in its place.
const VolumeDriver = "dobs.csi.digitalocean.com"

// automountRule is the udev rule of DigitalOcean's droplets that mounts a new volume for a moment (csi-digitalocean's node plugin deletes it at its start).
const automountRule = "99-digitalocean-automount.rules"

// automountFlag is the flag of digitalocean-csi-driver that removes the rule.
const automountFlag = "remove-automount-rule"

// VolumeEvidence is what was read of DigitalOcean's volumes in a cluster.
type VolumeEvidence struct {
	// Workloads are Deployments, StatefulSets and DaemonSets; those that are no volume driver do not matter.
	Workloads []Workload
	Machines  []VolumeMachine
	Classes   []VolumeClass
	// Snapshots are the names of the driver's VolumeSnapshotClasses that are the default.
	Snapshots []string
	// Unread are the sides that could not be read.
	Unread []finding.Side
}

// VolumeMachine is a Node whose machine is a droplet.
type VolumeMachine struct {
	Name  string
	Ready bool
	// Droplet is the ID that its provider ID names.
	Droplet string
	// Registered reports whether the driver is in its CSINode, with ID as the machine's and Keys as topology keys.
	Registered bool
	ID         string
	Keys       []string
	// Region is the driver's topology label, CloudRegion that of the cloud controller manager; empty if it is missing.
	Region, CloudRegion string
}

// VolumeClass is a StorageClass of any driver.
type VolumeClass struct {
	Name, Provisioner, Reclaim, Binding string
	Parameters                          map[string]string
	Expands, Default                    bool
}

// RegionKey is the topology key of the driver, which is a label of Nodes.
const RegionKey = "region"

// Volumes judges what DigitalOcean's volumes need to be attached and mounted. The names of the checks stand in JSON and MUST
// NOT change.
func Volumes(e VolumeEvidence) []finding.Finding {
	e.Workloads = sorted(e.Workloads)
	return finding.Make([]finding.Check[VolumeEvidence]{
		{Name: "volume-drivers", Find: drivers},
		{Name: "automount-rule", Find: automount},
		{Name: "volume-topology", Find: volumeTopology},
		{Name: "volume-classes", Find: classes},
	}, e)
}

// volumeDriver is the name under which a workload registers itself; empty if it runs no driver of DigitalOcean's volumes.
func (w Workload) volumeDriver() string {
	named := slices.Contains([]string{"csi-do-controller", "csi-do-node"}, w.Name) // with an image of a mirror
	if !named && !w.labeled(Driver) && !w.runs(Driver) && !w.runs("do-csi-plugin") {
		return ""
	}
	name, _ := w.flag("driver-name")
	return cmp.Or(name, VolumeDriver)
}

// plugins are the running drivers of that name: controllers, or node plugins.
func (e VolumeEvidence) plugins(driver string, onNodes bool) []Workload {
	return slices.DeleteFunc(running(e.Workloads), func(w Workload) bool { return w.volumeDriver() != driver || (w.Kind == "DaemonSet") != onNodes })
}

// driverNames are the names under which drivers run.
func (e VolumeEvidence) driverNames() []string {
	var out []string
	for _, w := range running(e.Workloads) {
		if name := w.volumeDriver(); name != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// drivers finds two controllers or two node plugins under one name. It also has the sides that could not be read.
func drivers(e VolumeEvidence) []finding.Finding {
	out := finding.NotRead(e.Unread)
	for _, name := range e.driverNames() {
		controllers, nodes := e.plugins(name, false), e.plugins(name, true)
		out = append(out, several(name, "controllers", "both make, attach and detach the volumes of the same claims, and neither waits for the other's actions", controllers)...)
		out = append(out, several(name, "node plugins", "both register with kubelet, which asks the one that came last, and one removes the socket of the other", nodes)...)
		for _, w := range slices.Concat(controllers, nodes) {
			if w.Ready == 0 && !w.labeled(Driver) && !w.runs(Driver) { // of ours, there is a finding about its replicas
				out = append(out, finding.Problem.Say("%s: no pod of %s is ready", w, prose.Plural(w.Wanted, "pod")).At(w.String()).
					Because("volumes are not made, attached or mounted").
					Advise("see why: its pods are in namespace "+w.Namespace))
			}
		}
		if len(controllers) == 1 && len(nodes) == 1 && controllers[0].Ready > 0 && nodes[0].Ready > 0 {
			out = append(out, finding.OK.Say("one controller and one node plugin run driver %s: %s and %s", name, controllers[0], nodes[0]).At(controllers[0].String()))
		}
	}
	return out
}

// several is a finding if there is more than one plugin of a kind. Node plugins for some of the machines each may be meant.
func several(driver, kind, why string, plugins []Workload) []finding.Finding {
	if len(plugins) < 2 {
		return nil
	}
	selected := true
	for _, p := range plugins {
		selected = selected && p.Selects && p.Kind == "DaemonSet"
	}
	f := finding.Problem.Say("%d %s run driver %s: %s", len(plugins), kind, driver, names(plugins)).At(plugins[0].String()).
		Because(why).
		Advise("keep one, and delete the other: docs/components/digitalocean-csi-driver.md")
	if selected {
		f.Severity, f.Do = finding.Warning, "see that no machine is selected by both"
	}
	return []finding.Finding{f}
}

// automount finds node plugins that leave the udev rule where it is.
func automount(e VolumeEvidence) []finding.Finding {
	var out []finding.Finding
	for _, name := range e.driverNames() {
		for _, w := range e.plugins(name, true) {
			file, _ := w.flag(automountFlag)
			asks := strings.HasSuffix(file, automountRule) || slices.ContainsFunc(w.Init, func(a string) bool { return strings.Contains(a, automountRule) })
			if asks && w.UdevRules {
				out = append(out, finding.OK.Say("%s removes the udev rule %s", w.String(), automountRule).At(w.String()))
				continue
			}
			what := w.String() + " does not remove the udev rule " + automountRule
			if asks {
				what = w.String() + " is to remove the udev rule " + automountRule + ", and does not mount the machine's /etc/udev/rules.d"
			}
			out = append(out, finding.Warning.Say("%s", what).At(w.String()).
				Because("on machines that have the rule, a new volume is mounted for a moment and is busy, so that it is not formatted or mounted").
				Advise(fmt.Sprintf("set --%s=/etc/udev/rules.d/%s and mount that folder, as the manifests do, unless no machine has the rule", automountFlag, automountRule)))
		}
	}
	return out
}

// volumeTopology finds machines that the scheduler or the driver takes for others than they are.
func volumeTopology(e VolumeEvidence) []finding.Finding {
	if len(e.plugins(VolumeDriver, true)) == 0 {
		return nil
	}
	var absent, keyless, unlabeled, elsewhere, others []string
	for _, m := range e.Machines {
		switch {
		case !m.Registered && m.Ready:
			absent = append(absent, m.Name)
		case !m.Registered: // its kubelet does not run
		case m.ID != m.Droplet:
			others = append(others, fmt.Sprintf("%s (droplet %s, registered as %s)", m.Name, m.Droplet, m.ID))
		case !slices.Contains(m.Keys, RegionKey):
			keyless = append(keyless, m.Name)
		case m.Region == "":
			unlabeled = append(unlabeled, m.Name)
		case m.CloudRegion != "" && m.CloudRegion != m.Region:
			elsewhere = append(elsewhere, fmt.Sprintf("%s (%s and %s)", m.Name, m.Region, m.CloudRegion))
		}
	}
	const restart = "delete the node plugin's Pod there, so that it registers again"
	var out []finding.Finding
	add := func(severity finding.Severity, names []string, what, why, do string) {
		if len(names) > 0 {
			out = append(out, severity.Say("%s %s: %s", prose.Plural(len(names), "Node"), what, finding.Few(names)).At("CSINodes").
				Because(why).
				Advise(do))
		}
	}
	add(finding.Problem, others, "registered the driver with another droplet's ID", "volumes of Pods there are attached to the other droplet", "see why the metadata service answers so, and "+restart)
	add(finding.Warning, absent, "ready without the driver in the CSINode", "no Pod with a volume starts there", "see the log of the node plugin there, and its tolerations")
	add(finding.Problem, keyless, "registered the driver without the topology key "+RegionKey, "claims that wait for their first Pod get no volume for these machines", restart)
	add(finding.Problem, unlabeled, "without the label "+RegionKey, "the scheduler finds that volumes cannot be attached there (node affinity conflict)", restart)
	add(finding.Warning, elsewhere, "with a label "+RegionKey+" that differs from topology.kubernetes.io/region", "Pods are placed by the one and volumes made by the other", restart)
	if len(out) == 0 && len(e.Machines) > 0 {
		out = append(out, finding.OK.Say("Nodes that have the driver with their droplet's ID and region: %d", len(e.Machines)))
	}
	return out
}

// shippedClasses are the StorageClasses of the driver's manifests, which are csi-digitalocean's.
func shippedClasses() (out []VolumeClass) {
	xfs := map[string]string{"fstype": "xfs"}
	for _, c := range []VolumeClass{
		{Name: "do-block-storage", Reclaim: "Delete"}, {Name: "do-block-storage-retain", Reclaim: "Retain"},
		{Name: "do-block-storage-xfs", Reclaim: "Delete", Parameters: xfs}, {Name: "do-block-storage-xfs-retain", Reclaim: "Retain", Parameters: xfs},
	} {
		c.Provisioner, c.Binding, c.Expands = VolumeDriver, "Immediate", true
		out = append(out, c)
	}
	return out
}

// classes finds StorageClasses that are not what their names say, and more than one default.
func classes(e VolumeEvidence) []finding.Finding {
	var out []finding.Finding
	alike, defaults, ours := 0, []string{}, false
	for _, c := range e.Classes {
		ours = ours || c.Provisioner == VolumeDriver
		if c.Default {
			defaults = append(defaults, c.Name)
		}
	}
	for _, shipped := range shippedClasses() {
		at := slices.IndexFunc(e.Classes, func(c VolumeClass) bool { return c.Name == shipped.Name })
		if at < 0 {
			continue
		}
		differs := shipped.differs(e.Classes[at])
		if len(differs) == 0 {
			alike++
			continue
		}
		out = append(out, finding.Warning.Say("StorageClass %s differs from the one of the driver's manifests: %s", shipped.Name, strings.Join(differs, ", ")).At("StorageClass "+shipped.Name).
			Because("its claims get other volumes than its name says, and kubectl apply of the manifests is refused, since a class cannot be changed").
			Advise("give yours another name, delete this one and apply the manifests again: claims that have a volume keep it"))
	}
	if len(defaults) > 1 && ours {
		out = append(out, finding.Warning.Say("%d StorageClasses are the default: %s", len(defaults), finding.Few(defaults)).At("StorageClasses").
			Because("a claim without a class gets the newest of them, which changes with the next one").
			Advise("remove the annotation storageclass.kubernetes.io/is-default-class from all but one"))
	}
	if len(e.Snapshots) > 1 {
		out = append(out, finding.Problem.Say("%d VolumeSnapshotClasses of driver %s are the default: %s", len(e.Snapshots), VolumeDriver, finding.Few(e.Snapshots)).At("VolumeSnapshotClasses").
			Because("a VolumeSnapshot without a class is refused").
			Advise("remove the annotation snapshot.storage.kubernetes.io/is-default-class from all but one"))
	}
	if len(out) == 0 && alike > 0 {
		out = append(out, finding.OK.Say("StorageClasses that are those of the driver's manifests: %d", alike))
	}
	return out
}

// differs is how a class differs from the one that is shipped. What nobody set is what Kubernetes and the driver take for it.
func (shipped VolumeClass) differs(c VolumeClass) []string {
	var out []string
	say := func(what, is, was string) {
		if is != was {
			out = append(out, fmt.Sprintf("%s is %s, not %s", what, cmp.Or(is, "unset"), cmp.Or(was, "unset")))
		}
	}
	say("provisioner", c.Provisioner, shipped.Provisioner)
	say("reclaimPolicy", cmp.Or(c.Reclaim, "Delete"), shipped.Reclaim)
	say("volumeBindingMode", cmp.Or(c.Binding, "Immediate"), shipped.Binding)
	say("allowVolumeExpansion", fmt.Sprint(c.Expands), fmt.Sprint(shipped.Expands))
	both := map[string]string{}
	maps.Copy(both, c.Parameters)
	maps.Copy(both, shipped.Parameters)
	for _, k := range slices.Sorted(maps.Keys(both)) {
		say("parameter "+k, c.Parameters[k], shipped.Parameters[k])
	}
	return out
}
