// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package birdtemplates

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// ConfigMap is the name of the ConfigMap with templates that Calico lets its users replace, and Folder is where
// calico-node reads them.
const (
	ConfigMap = "bird-templates"
	Folder    = "/etc/calico/confd/templates"
)

// Installation is what a cluster shows of the templates that its calico-node pods read.
type Installation struct {
	// Namespace is that of the DaemonSet calico-node, and of the ConfigMap that it mounts.
	Namespace string
	// Data is the ConfigMap's, nil if there is no ConfigMap. Changed is when it was last written.
	Data    map[string]string
	Changed time.Time
	Pods    []Pod
}

// Pod is one of calico-node's.
type Pod struct {
	Node    string
	Created time.Time
	// Mounts are the paths at which the pod mounts the ConfigMap or a file of it.
	Mounts []string
}

// Node is what is known of one node.
type Node struct {
	Name    string
	InForce bool
	// Why says why the patch is not in force, "" if it is.
	Why string
}

// Name is the ConfigMap as people call it.
func (i Installation) Name() string { return i.Namespace + "/" + ConfigMap }

// Hash identifies the ConfigMap's data, in twelve digits.
func (i Installation) Hash() string {
	h := sha256.New()
	for _, key := range sortedKeys(i.Data) {
		fmt.Fprintf(h, "%s\x00%s\x00", key, i.Data[key])
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// Nodes returns what is known of each node with a pod of calico-node, by name. A pod reads the templates as they were
// when it was created, since files of a ConfigMap that are mounted one by one do not change afterwards.
func (i Installation) Nodes() []Node {
	unusable := i.unusable()
	out := make([]Node, 0, len(i.Pods))
	for _, p := range i.Pods {
		n := Node{Name: p.Node, Why: unusable}
		if n.Why == "" {
			n.Why = i.unread(p)
		}
		n.InForce = n.Why == ""
		out = append(out, n)
	}
	slices.SortStableFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// unusable says why the ConfigMap puts the patch in force nowhere, "" if it may.
func (i Installation) unusable() string {
	if i.Data == nil {
		return "there is no ConfigMap " + i.Name()
	}
	for _, file := range Files() {
		text, ok := i.Data[file]
		if !ok {
			return fmt.Sprintf("the ConfigMap has no %s", file)
		}
		switch state, err := StateOf(file, text); {
		case err != nil:
			return err.Error()
		case state != Patched:
			return fmt.Sprintf("%s of the ConfigMap is %s", file, state)
		}
	}
	return ""
}

// unread says why a pod does not read the ConfigMap as it is, "" if it does.
func (i Installation) unread(p Pod) string {
	for _, file := range Files() {
		if !slices.Contains(p.Mounts, path.Join(Folder, file)) && !slices.Contains(p.Mounts, Folder) {
			return fmt.Sprintf("the pod does not mount %s of the ConfigMap", file)
		}
	}
	if p.Created.Before(i.Changed) {
		return "the pod is older than the last change of the ConfigMap"
	}
	return ""
}

// Summary is the most frequent cause, with the nodes that have it, of the nodes on which the patch is not in force;
// and how many these are.
func Summary(nodes []Node) (missing int, why string, names []string) {
	byWhy := map[string][]string{}
	for _, n := range nodes {
		if !n.InForce {
			missing++
			byWhy[n.Why] = append(byWhy[n.Why], n.Name)
		}
	}
	for _, cause := range sortedKeys(byWhy) {
		if len(byWhy[cause]) > len(names) {
			why, names = cause, byWhy[cause]
		}
	}
	return missing, why, names
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
