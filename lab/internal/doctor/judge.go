// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// Facts are what was seen on the machine.
type Facts struct {
	// OS and Arch are Go's names of them.
	OS, Arch string
	// GoVersion is that of the go command, empty if there is none; GoWanted is the one that go.mod asks for, such as "1.26".
	GoVersion, GoWanted string
	// CPUs is the number of processors; MemoryBytes what is available; DiskBytes what is free for the lab's folder, wanted at least DiskWanted.
	CPUs                               int
	MemoryBytes, DiskBytes, DiskWanted uint64
	MemoryKnown, DiskKnown, GoIsUsable bool
	// PortsError says why a port on 127.0.0.1 cannot be held, nil if it can.
	PortsError error
	// NetworkError says why a network of namespaces cannot be made, nil if it can.
	NetworkError error
	// RealNodesError says why machines cannot be real, nil if they can.
	RealNodesError error
	// Templates is the folder of confd's templates; TemplatesError says why there is none, and how to get it.
	Templates      string
	TemplatesError error
	// Compiler, Bird, Make and Git are the paths of these programs, empty if missing. Bird is bird 1.6, with bird6 alongside it.
	Compiler, Bird, Make, Git string
	// Root reports that the user is root.
	Root bool
}

// Verdict is how good a finding is.
type Verdict string

// Verdicts. Only Bad keeps a lab from running.
const (
	Good Verdict = "ok"
	Lack Verdict = "missing"
	Bad  Verdict = "needed"
)

// Finding is one line of the diagnosis.
type Finding struct {
	Subject string
	Verdict Verdict
	// Seen is what there is.
	Seen string
	// Cost is what its lack costs and what to do about it; empty when Good.
	Cost string
}

// memoryWanted is what a lab of a few nodes takes at its peak, and then some.
const memoryWanted = 1 << 30

// Judge says what the facts mean. Its order is fixed.
func Judge(f Facts) []Finding {
	return []Finding{
		system(f), goCommand(f), memory(f), disk(f), ports(f),
		optional("make", f.Make, "the Makefile cannot be used; install make"),
		optional("git", f.Git, "builds carry no version; install git"),
		optional("C compiler", f.Compiler, "`go test -race` is not possible; install gcc or clang to have it"),
		namespaces(f), realNodes(f),
		optional("bird", f.Bird, "no `lab up --network bgp`, so that the operator's logic is tested with simulated statuses only; "+
			"install bird 1.6, which is Debian's package bird, not bird2"),
		templates(f),
	}
}

// Healthy reports whether a lab can run.
func Healthy(findings []Finding) bool {
	for _, finding := range findings {
		if finding.Verdict == Bad {
			return false
		}
	}
	return true
}

func system(f Facts) Finding {
	finding := Finding{Subject: "system", Verdict: Good, Seen: fmt.Sprintf("%s/%s, %d CPUs", f.OS, f.Arch, f.CPUs)}
	if f.OS != "linux" {
		finding.Verdict, finding.Cost = Bad, "the lab needs Linux: parent-death signals, /proc and shared ports"
	} else if f.CPUs < 2 {
		finding.Verdict, finding.Cost = Lack, "with one CPU starts and tests take about twice as long"
	}
	return finding
}

func goCommand(f Facts) Finding {
	switch {
	case f.GoVersion == "":
		return Finding{"go", Lack, "not found", "nothing can be built; a lab that is built already runs all the same. Install Go " + f.GoWanted}
	case !f.GoIsUsable:
		return Finding{"go", Lack, f.GoVersion, "it is older than go.mod asks for; install Go " + f.GoWanted}
	default:
		return Finding{"go", Good, f.GoVersion, ""}
	}
}

func memory(f Facts) Finding {
	if !f.MemoryKnown {
		return Finding{"memory", Lack, "unknown", "it could not be read from /proc/meminfo"}
	}
	finding := Finding{"memory", Good, fmt.Sprintf("%d MiB available", f.MemoryBytes>>20), ""}
	if f.MemoryBytes < memoryWanted {
		finding.Verdict, finding.Cost = Lack, fmt.Sprintf("a lab takes up to %d MiB; processes may be killed and restarted", memoryWanted>>20)
	}
	return finding
}

func disk(f Facts) Finding {
	if !f.DiskKnown {
		return Finding{"disk", Lack, "unknown", "the free space of the lab's folder could not be read"}
	}
	finding := Finding{"disk", Good, fmt.Sprintf("%d MiB free", f.DiskBytes>>20), ""}
	if f.DiskBytes < f.DiskWanted {
		finding.Verdict = Bad
		finding.Cost = fmt.Sprintf("a lab asks for %d MiB; free some space or choose another folder with --dir", f.DiskWanted>>20)
	}
	return finding
}

func ports(f Facts) Finding {
	if f.PortsError != nil {
		return Finding{"ports", Bad, f.PortsError.Error(), "the lab listens on 127.0.0.1 with SO_REUSEPORT and cannot do without"}
	}
	return Finding{"ports", Good, "ports on 127.0.0.1 can be held", ""}
}

func namespaces(f Facts) Finding {
	if f.NetworkError != nil {
		return Finding{"namespaces", Lack, f.NetworkError.Error(),
			"control plane and nodes run on loopback, without pods' networks and routes: no `lab up --network bgp`"}
	}
	how := "user and network namespaces can be made without root"
	if f.Root {
		how = "network namespaces can be made, as root"
	}
	return Finding{"namespaces", Good, how, ""}
}

func realNodes(f Facts) Finding {
	if f.RealNodesError != nil {
		return Finding{"real machines", Lack, f.RealNodesError.Error(), "no `lab up --real-nodes`: machines are simulated, pods only seem to run, and Services lead nowhere"}
	}
	return Finding{"real machines", Good, "machines can run kubelet and containerd, as root", ""}
}

func templates(f Facts) Finding {
	if f.TemplatesError != nil {
		return Finding{"confd", Lack, f.TemplatesError.Error(), "no `lab up --network bgp`: Calico's own templates make bird's configuration"}
	}
	return Finding{"confd", Good, f.Templates, ""}
}

func optional(subject, path, cost string) Finding {
	if path == "" {
		return Finding{subject, Lack, "not found", cost}
	}
	return Finding{subject, Good, path, ""}
}
