// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mooring-dev/mooring/lab/internal/realnode/cgroup"
	"github.com/mooring-dev/mooring/lab/internal/realnode/image"
)

// WantedInstances is how many inotify instances a user must be allowed: three kubelets and containerds take more than the kernel's default of 128, and
// containerd without one goes on without its CRI plugin.
const WantedInstances = 512

// Facts are what real machines need of this one.
type Facts struct {
	Root bool
	// Missing are programs of the system that are not installed, as Debian's packages.
	Missing []string
	// Unbuilt are programs that are not in the folder Bin.
	Bin     string
	Unbuilt []string
	// Instances is fs.inotify.max_user_instances.
	Instances int
	// Cgroups says why there are no control groups, nil if there are.
	Cgroups error
}

// Examine finds the facts, with the lab's programs in the folder bin.
func Examine(bin string) Facts {
	f := Facts{Root: os.Geteuid() == 0, Bin: bin, Cgroups: cgroup.Check(cgroup.Mount)}
	for program, debian := range map[string]string{"runc": "runc", "nft": "nftables"} {
		if !installed(program) {
			f.Missing = append(f.Missing, debian)
		}
	}
	for _, name := range Programs() {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			f.Unbuilt = append(f.Unbuilt, name)
		}
	}
	content, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err == nil {
		f.Instances, _ = strconv.Atoi(strings.TrimSpace(string(content)))
	}
	return f
}

// installed looks where a machine's programs look, which is not everybody's PATH.
func installed(program string) bool {
	for _, folder := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if path, err := exec.LookPath(filepath.Join(folder, program)); err == nil && path != "" {
			return true
		}
	}
	return false
}

// Programs are what `make real-nodes` builds, below the folder of the lab's own program.
func Programs() []string {
	programs := []string{
		"kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr", "cni/ptp", "cni/host-local", "cni/loopback",
	}
	return append(programs, image.Own()...)
}

// Judge returns, in one sentence with the cure, why there can be no real machines; nil if there can.
func Judge(f Facts) error {
	switch {
	case !f.Root:
		return fmt.Errorf("real machines need root, for control groups, mounts and device nodes; run the lab as root, or leave the machines simulated")
	case len(f.Missing) > 0:
		return fmt.Errorf("real machines need %s; run `apt-get install -y --no-install-recommends %s`",
			strings.Join(f.Missing, " and "), strings.Join(f.Missing, " "))
	case f.Cgroups != nil:
		return f.Cgroups
	case f.Instances < WantedInstances:
		return fmt.Errorf("fs.inotify.max_user_instances is %d, and kubelets and containerds need %d; run `sysctl -w fs.inotify.max_user_instances=1024`",
			f.Instances, WantedInstances)
	case len(f.Unbuilt) > 0:
		return fmt.Errorf("%s is not built in %s; run `make real-nodes`", f.Unbuilt[0], f.Bin)
	}
	return nil
}

// CheckDir returns, in one sentence with the cure, why real machines cannot have their folders in dir; nil if they can.
func CheckDir(dir string) error {
	for _, hidden := range []string{"/run", "/var/run", "/var/lib", "/var/log"} {
		if dir == hidden || strings.HasPrefix(dir, hidden+"/") {
			return fmt.Errorf("the lab's folder %s is in %s, in whose place real machines have their own; choose another folder with --dir", dir, hidden)
		}
	}
	return nil
}
