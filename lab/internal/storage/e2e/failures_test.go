// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failure is what happens to a machine, and how it comes back.
type failure struct {
	name       string
	begin, end func(l *lab, machine string)
	// untouched leaves the taint to digitalocean-cloud-controller-manager; otherwise this test sets it.
	untouched bool
}

// cutOff is a machine that runs on and that nobody can reach.
func cutOff() failure {
	return failure{
		name:  "cut off",
		begin: func(l *lab, machine string) { l.run("node", "freeze", machine) },
		end:   func(l *lab, machine string) { l.run("node", "thaw", machine) },
	}
}

// switchedOff is a droplet that somebody has switched off.
func switchedOff() failure {
	return failure{
		name:  "switched off",
		begin: func(l *lab, machine string) { l.run("droplet", "power-off", machine) },
		end:   func(l *lab, machine string) { l.run("droplet", "power-on", machine) },
	}
}

// destroyed is a droplet that is deleted; another one takes its name. The taint goes with its Node.
func destroyed() failure {
	return failure{
		name:  "destroyed",
		begin: func(l *lab, machine string) { l.run("droplet", "delete", machine) },
		end:   func(l *lab, machine string) { l.run("droplet", "create", machine, "--real") },
		// The Node is deleted, and its taint with it.
		untouched: true,
	}
}

// failsOver lets a machine with a StatefulSet's counter fail: with the taint that says so, the counter goes on on the other machine, nothing that it has
// recorded is lost, and what the first machine still writes is neither recorded nor seen.
func (l *lab) failsOver(f failure) {
	l.Helper()
	const name = "counter"
	l.createSet(name, ext4Class)
	machine := l.awaitPod(name + "-0").Spec.NodeName
	l.awaitCount(name+"-0", machine)
	l.strike(f, name, machine)
	l.deleteSet(name)
	l.nothingLeft()
	for _, file := range l.must2(filepath.Glob(filepath.Join(l.records, name+"*"))) {
		l.must(os.Remove(file))
	}
}

// strike lets the machine of a counter fail once, and come back. It returns where the counter is now, and how long it
// took to count on there.
func (l *lab) strike(f failure, name, machine string) (now string, took time.Duration) {
	l.Helper()
	pod := name + "-0"
	before, _ := l.record(pod)
	began := time.Now()
	f.begin(l, machine)
	if !f.untouched {
		l.awaitNode(machine, false)
		l.outOfService(machine, true)
	} else if f.name != destroyed().name {
		l.awaitNode(machine, false)
		l.Logf("%s: the Node is not ready after %.1f s", f.name, time.Since(began).Seconds())
		l.awaitTaint(machine, true)
	}
	tainted := time.Since(began)
	l.await("a counter on another machine", func() error {
		if number, writer := l.record(pod); number <= before || strings.HasPrefix(writer, pod+"-"+machine) {
			return fmt.Errorf("the last number is %d by %s", number, writer)
		}
		return nil
	})
	took = time.Since(began)
	running := l.awaitPod(pod)
	now = running.Spec.NodeName
	l.awaitCount(pod, now)
	file := filepath.Join(l.mountOf(running, "data-"+pod), fileName)
	l.checkNumbers(file, pod)
	f.end(l, machine)
	l.awaitNode(machine, true)
	if f.untouched {
		l.awaitTaint(machine, false)
	} else {
		l.outOfService(machine, false)
	}
	l.awaitNoPods(machine, pod)
	l.awaitDriver()
	l.awaitCount(pod, now)
	l.checkNumbers(file, pod)
	l.Logf("%s: the machine was given up after %.1f s and the counter counts on after %.1f s", f.name, tainted.Seconds(), took.Seconds())
	return now, took
}

// awaitTaint waits until a machine is out of service, or in service again.
func (l *lab) awaitTaint(machine string, on bool) {
	l.Helper()
	l.await(fmt.Sprintf("machine %s to be out of service: %t", machine, on), func() error {
		node, err := l.api.CoreV1().Nodes().Get(l.Context(), machine, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		if is != on {
			return fmt.Errorf("its taints are %v", node.Spec.Taints)
		}
		return nil
	})
}

// awaitNoPods waits until nothing of a volume is mounted on a machine that is back.
func (l *lab) awaitNoPods(machine, pod string) {
	l.Helper()
	volume := l.volumeOf("data-" + pod).Name
	l.await("the old mount on "+machine+" to be gone", func() error {
		path, err := l.see(machine, "/var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/"+volume+"/mount")
		if err != nil {
			return err
		}
		found, err := filepath.Glob(path)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("there is %v", found)
		}
		return err
	})
}
