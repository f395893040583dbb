// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podagent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Find implements kubeletapi.Logs: the logs of a container's runs, the oldest first.
func (a *Agent) Find(namespace, pod, container string) ([]string, error) {
	known := a.known(namespace, pod)
	if known == nil {
		return nil, fmt.Errorf("pod %s/%s is not known to the node agents of the lab", namespace, pod)
	}
	folder := filepath.Join(a.Dir, string(known.UID), containersFolder, filepath.Base(container))
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("container %q of pod %s/%s has not run yet", container, namespace, pod)
	}
	var runs []int
	for _, entry := range entries {
		if run, err := strconv.Atoi(strings.TrimSuffix(entry.Name(), ".log")); err == nil && strings.HasSuffix(entry.Name(), ".log") {
			runs = append(runs, run)
		}
	}
	slices.Sort(runs)
	var out []string
	for _, run := range runs {
		out = append(out, logFile(filepath.Join(a.Dir, string(known.UID)), filepath.Base(container), int32(run))) //nolint:gosec // a count of restarts
	}
	return out, nil
}

// Runs implements kubeletapi.Logs.
func (a *Agent) Runs(namespace, pod, container string) bool {
	known := a.known(namespace, pod)
	if known == nil {
		return false
	}
	return slices.ContainsFunc(append(slices.Clone(known.Status.InitContainerStatuses), known.Status.ContainerStatuses...), func(s corev1.ContainerStatus) bool {
		return s.Name == container && s.State.Running != nil
	})
}

// known is the pod as the watch has told of it; nil if there is none.
func (a *Agent) known(namespace, name string) *corev1.Pod {
	obj, exists, err := a.pods.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	pod, _ := obj.(*corev1.Pod)
	return pod
}
