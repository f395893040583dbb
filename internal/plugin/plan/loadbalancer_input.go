// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// machineInput is the object of the machine form. Its JSON form is a contract with programs.
type machineInput struct {
	Region       string            `json:"region"`
	ClusterID    string            `json:"clusterID"`
	VPCID        string            `json:"vpcID"`
	DefaultType  string            `json:"defaultType"`
	Defaults     map[string]string `json:"defaults"`
	Certificates []named[string]   `json:"certificates"`
	Droplets     []named[int]      `json:"droplets"`
	Nodes        []json.RawMessage `json:"nodes"`
	Services     []json.RawMessage `json:"services"`
}

// named is something of the account with an ID and a name.
type named[ID any] struct {
	ID   ID     `json:"id"`
	Name string `json:"name"`
}

// readMachineInput reads the machine form's object, with its Services as they are. Keys that nobody knows are passed over, and
// named on notes.
func readMachineInput(r io.Reader, notes io.Writer) (loadbalancer.Input, []json.RawMessage, error) {
	var in loadbalancer.Input
	m, err := readObject[machineInput](r, notes)
	if err != nil {
		return in, nil, err
	}
	in.Cluster = loadbalancer.Cluster{ID: m.ClusterID, Region: m.Region, VPC: m.VPCID, DefaultType: m.DefaultType}
	if err := observe.CheckDefaultType("defaultType", m.DefaultType); err != nil { // the controller goes on too
		fmt.Fprintf(notes, "note: %v; %s is used\n", err, annotation.DefaultType)
	}
	if in.Cluster.Defaults, err = checkedDefaults("defaults", m.Defaults); err != nil {
		return in, nil, err
	}
	for _, c := range m.Certificates {
		in.Certificates = append(in.Certificates, loadbalancer.Certificate{ID: c.ID, Name: c.Name})
	}
	for _, d := range m.Droplets {
		in.Droplets = append(in.Droplets, instance.Droplet{ID: d.ID, Name: d.Name})
	}
	for i, raw := range m.Nodes {
		node := &corev1.Node{}
		if err := decodeObject(raw, "Node", node); err != nil {
			return in, nil, fmt.Errorf("nodes[%d] of standard input: %w", i, err)
		}
		in.Nodes = append(in.Nodes, node)
	}
	return in, m.Services, nil
}

// serviceAt decodes one of the Services of a machine form, of which the others are answered all the same if it cannot be read.
func serviceAt(i int, raw json.RawMessage) (*corev1.Service, error) {
	service := &corev1.Service{}
	if err := decodeObject(raw, "Service", service); err != nil {
		var object metav1.PartialObjectMetadata
		_ = json.Unmarshal(raw, &object) // what is wrong with it is told already
		service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: object.Name}}
		return service, fmt.Errorf("services[%d] of standard input: %w", i, err)
	}
	return service, nil
}

// checkedDefaults are defaults for annotations as the controller takes them.
func checkedDefaults(where string, values map[string]string) (annotation.Defaults, error) {
	d, _, err := annotation.NewDefaults(values)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return d, nil
}

// decodeObject decodes one object, which must be of the kind if it says of which it is.
func decodeObject(raw json.RawMessage, kind string, into any) error {
	var meta struct {
		Kind string `json:"kind"`
	}
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return fmt.Errorf("it is null, it must be a %s", kind)
	}
	if err := json.Unmarshal(raw, &meta); err != nil {
		return fmt.Errorf("it must be a %s: %w", kind, observe.Readable(err))
	}
	if meta.Kind != "" && meta.Kind != kind {
		return fmt.Errorf("it is a %s, it must be a %s", meta.Kind, kind)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("it is not a valid %s: %w", kind, observe.Readable(err))
	}
	return nil
}

// read reads what the flags of the human form name.
func (f *loadBalancerFlags) read(stdin io.Reader) (loadbalancer.Input, []*corev1.Service, error) {
	in := loadbalancer.Input{Cluster: f.cluster}
	switch {
	case f.nodes == "":
		return in, nil, errors.New("give the cluster's nodes with --nodes FILE, as printed by: kubectl get nodes -o yaml")
	case f.nodes == "-" && f.services == "-":
		return in, nil, errors.New("standard input can be read once: give a file for -f or for --nodes")
	}
	var err error
	if in.Cluster.Defaults, err = observe.ReadDefaults(f.defaults, f.cluster.DefaultType); err != nil {
		return in, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(f.certificates)) {
		in.Certificates = append(in.Certificates, loadbalancer.Certificate{ID: f.certificates[name], Name: name})
	}
	for _, name := range slices.Sorted(maps.Keys(f.droplets)) {
		id, err := strconv.Atoi(f.droplets[name])
		if err != nil || id <= 0 {
			return in, nil, fmt.Errorf("--droplet is %s=%s, it must be the name and the number of a droplet", name, f.droplets[name])
		}
		in.Droplets = append(in.Droplets, instance.Droplet{ID: id, Name: name})
	}
	if in.Nodes, err = readObjects[corev1.Node](f.nodes, "Node", stdin); err != nil {
		return in, nil, err
	}
	services, err := readObjects[corev1.Service](f.services, "Service", stdin)
	return in, services, err
}

// readObjects reads the objects of a kind from a file with YAML or JSON documents. There must be one at least.
func readObjects[T any](path, kind string, stdin io.Reader) ([]*T, error) {
	where, r, err := observe.OpenInput(path, stdin)
	if err != nil {
		return nil, fmt.Errorf("reading %ss: %w", kind, errors.Unwrap(err))
	}
	defer r.Close()
	var objects []*T
	err = observe.Documents(where, r, func(document []byte) error {
		found, err := decodeDocument[T](document, kind)
		objects = append(objects, found...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("there is no %s in %s", kind, where)
	}
	return objects, nil
}

// decodeDocument returns the objects of a kind in one document, which is such an object, a List, or something else that is skipped.
func decodeDocument[T any](document []byte, kind string) ([]*T, error) {
	data, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, fmt.Errorf("it is neither YAML nor JSON: %w", err)
	}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil, nil
	}
	var meta struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, fmt.Errorf("it is not a Kubernetes object: %w", observe.Readable(err))
	}
	switch meta.Kind {
	case "":
		return nil, errors.New("it is not a Kubernetes object: it has no kind")
	case kind:
		object := new(T)
		if err := decodeObject(data, kind, object); err != nil {
			return nil, err
		}
		return []*T{object}, nil
	case "List", kind + "List":
		return decodeItems[T](meta.Items, kind, meta.Kind == kind+"List")
	}
	return nil, nil
}

// decodeItems decodes the objects of a kind in a List; in a list of that kind the items may leave it out.
func decodeItems[T any](items []json.RawMessage, kind string, all bool) ([]*T, error) {
	var objects []*T
	for i, item := range items {
		var meta struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(item, &meta); err != nil {
			return nil, fmt.Errorf("item %d is not a Kubernetes object: %w", i+1, observe.Readable(err))
		}
		if meta.Kind != kind && !(all && meta.Kind == "") {
			continue
		}
		object := new(T)
		if err := decodeObject(item, kind, object); err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
