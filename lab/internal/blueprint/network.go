// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

// systemPath is where the programs of a system are, those of its administrator included: Debian has bird in /usr/sbin, which is not on everybody's.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// bgpNetwork describes the process that holds the machines' network namespaces and BGP speakers. Its paths were found when the lab was asked for,
// because the process inherits nothing by which it could find them.
func (d draft) bgpNetwork() Process {
	p := Process{
		Name: BGPNetwork,
		Args: []string{
			BGPNetwork,
			"--network-dir=" + d.BGPNetwork(),
			"--kubeconfig=" + d.Kubeconfig(),
			"--machines=" + d.MachinesFile(),
			"--templates=" + d.BGPTemplates,
			"--bird=" + d.Bird,
			"--bird6=" + d.Bird6,
			"--ready-file=" + d.ReadyFile(BGPNetwork),
		},
		Env: []string{"PATH=" + systemPath},
		// After the machines, whose addresses it waits for, and ended before them.
		DependsOn: d.existing(APIServer, CalicoEtcd, Nodes),
		Ready:     Readiness{File: d.ReadyFile(BGPNetwork)},
	}
	if d.BIRDTemplates == PatchedTemplates {
		p.Args = append(p.Args, "--patch-templates")
	}
	if d.Datastore == DatastoreEtcd {
		p.Args = append(p.Args, "--calico-datastore="+d.Datastore)
		p.Env = append(p.Env, d.calicoEtcdEnv()...)
	}
	return p
}
