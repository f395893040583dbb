// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

//go:embed manifests/snapshot-controller.yaml
var snapshotController []byte

const (
	namespace = "kube-system"
	// plugin is the name of the driver's container in both workloads.
	plugin = "csi-do-plugin"
	// authorityMap and authorityFolder are what the controller trusts the simulator by.
	authorityMap, authorityFolder = "lab-digitalocean-ca", "/etc/lab-digitalocean-ca"
	// diskFacts is where the node plugin sees what the kernel of a droplet knows of its disks.
	diskFacts = "/lab-disks"
)

// Site is what the driver's manifest does not know of a lab.
type Site struct {
	// Manifest is the file with the driver's objects, and Kinds the folder with the custom resources of snapshots.
	Manifest, Kinds string
	// APIURL is where pods reach DigitalOcean's API, CAFile what proves it, and TokenFile has the account's token.
	APIURL, CAFile, TokenFile string
	// Sysfs is the folder that describes disks, see package disks.
	Sysfs string
}

// Objects are all that a cluster needs for volumes, in the order in which they are to be applied.
func Objects(s Site) ([]*unstructured.Unstructured, error) {
	kinds, err := filepath.Glob(filepath.Join(s.Kinds, "*.yaml"))
	if err == nil && len(kinds) == 0 {
		err = fmt.Errorf("there are no custom resources of snapshots in %s; run `make real-nodes`", s.Kinds)
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(kinds)
	var all []*unstructured.Unstructured
	for _, file := range append(kinds, s.Manifest) {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the objects of volumes: %w", err)
		}
		objects, err := Decode(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, objects...)
	}
	more, err := s.own()
	if err != nil {
		return nil, err
	}
	// What pods need is there before them.
	all = append(more, all...)
	for _, o := range all {
		if err := s.Adapt(o); err != nil {
			return nil, fmt.Errorf("adapting %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return all, nil
}

// own are the account's token, what proves the simulator, and the controller of snapshots.
func (s Site) own() ([]*unstructured.Unstructured, error) {
	token, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("reading the token of the simulated cloud: %w", err)
	}
	authority, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of the simulated cloud: %w", err)
	}
	objects, err := Decode(snapshotController)
	if err != nil {
		return nil, err
	}
	named := func(kind, name, field string, values map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}, field: values,
		}}
	}
	return append([]*unstructured.Unstructured{
		named("Secret", "digitalocean", "stringData", map[string]any{"access-token": strings.TrimSpace(string(token))}),
		named("ConfigMap", authorityMap, "data", map[string]any{"ca.crt": string(authority)}),
	}, objects...), nil
}

// Adapt changes in an object what is another thing in a lab: the images; where the controller reaches DigitalOcean; which folder describes disks; and the
// folder of udev's rules, of which one is deleted, as a machine of the lab has that of this machine. All else is as released.
func (s Site) Adapt(o *unstructured.Unstructured) error {
	kind := o.GetKind()
	if kind != "StatefulSet" && kind != "DaemonSet" && kind != "Deployment" {
		return nil
	}
	pod, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil {
		return err
	}
	containers, _, err := unstructured.NestedSlice(pod, "containers")
	if err != nil {
		return err
	}
	for _, c := range containers {
		container, ok := c.(map[string]any)
		if !ok {
			return errors.New("a container is not an object")
		}
		s.adaptContainer(container, kind == "DaemonSet")
	}
	pod["containers"] = containers
	switch kind {
	case "StatefulSet":
		add(pod, "volumes", map[string]any{"name": authorityMap, "configMap": map[string]any{"name": authorityMap}})
	case "DaemonSet":
		add(pod, "volumes", map[string]any{"name": "lab-disks", "hostPath": map[string]any{"path": s.Sysfs, "type": "DirectoryOrCreate"}})
		for _, v := range pod["volumes"].([]any) {
			if volume, ok := v.(map[string]any); ok && volume["name"] == "udev-rules-dir" {
				volume["hostPath"] = map[string]any{"path": "/var/lib/udev-rules.d", "type": "DirectoryOrCreate"}
			}
		}
	}
	return unstructured.SetNestedMap(o.Object, pod, "spec", "template", "spec")
}

func (s Site) adaptContainer(c map[string]any, node bool) {
	name, _ := c["name"].(string)
	switch {
	case name == plugin:
		c["image"] = Image(blueprint.CSIDriver)
	case slices.Contains(Sidecars(), name):
		c["image"] = Image(name)
	}
	if name != plugin {
		return
	}
	if node {
		add(c, "args", "--device-sysfs="+diskFacts)
		add(c, "volumeMounts", map[string]any{"name": "lab-disks", "mountPath": diskFacts, "readOnly": true})
		return
	}
	add(c, "args", "--url="+s.APIURL, "--action-poll-interval=250ms")
	add(c, "env", map[string]any{"name": "SSL_CERT_FILE", "value": authorityFolder + "/ca.crt"})
	add(c, "volumeMounts", map[string]any{"name": authorityMap, "mountPath": authorityFolder, "readOnly": true})
}

func add(object map[string]any, field string, values ...any) {
	list, _ := object[field].([]any)
	object[field] = append(list, values...)
}

// Decode reads documents of YAML.
func Decode(content []byte) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var all []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parsing a manifest: %w", err)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}
