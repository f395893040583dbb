// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package files reads a cluster from files, as `kubectl get -o json` or people write them, for commands that need no cluster.
package files

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Names are the files, "-" for standard input and "" for none. Errors name the flag that each of them has in every command.
type Names struct {
	// Topology has the flag --filename, Nodes --nodes, Peers --bgppeers, Configuration --bgpconfiguration, Status --status.
	Topology, Nodes, Peers, Configuration, Status string
}

// AddTo adds the flags of a plan: those of all files.
func (f *Names) AddTo(flags *pflag.FlagSet) {
	flags.StringVarP(&f.Topology, "filename", "f", "", "File with the RouteReflectorTopology, YAML or JSON. Further ones in it are the cluster's other topologies.")
	flags.StringVar(&f.Nodes, "nodes", "", "File with the Nodes, a List as \"kubectl get nodes -o json\" prints it, or YAML.")
	flags.StringVar(&f.Peers, "bgppeers", "", "File with the existing BGPPeers. Without it: none.")
	flags.StringVar(&f.Configuration, "bgpconfiguration", "", "File with BGPConfiguration default. Without it: none, so that the mesh is on.")
	flags.StringVar(&f.Status, "status", "", "File with CalicoNodeStatuses, which decide whether the first step waits. Without it sessions are unknown.")
}

// Reader reads files.
type Reader struct {
	// Stdin is what the name "-" stands for; it can be read once.
	Stdin io.Reader
	// Now is when what the files say was true.
	Now time.Time
}

// stdin is an error if standard input is to be read for two flags.
func (f Names) stdin() error {
	all := []string{f.Topology, f.Nodes, f.Peers, f.Configuration, f.Status}
	if len(slices.DeleteFunc(all, func(s string) bool { return s != "-" })) > 1 {
		return errors.New(`standard input ("-") can be read for only one of the flags`)
	}
	return nil
}

// World reads all files for a plan; Topology and Nodes are needed, and standard input is one of them at most. told are sentences about what
// was assumed. An error is one sentence that names the flag, the file and what is wrong in it.
func (r Reader) World(f Names) (w routereflector.World, told []string, err error) {
	if err := f.stdin(); err != nil {
		return w, nil, err
	}
	topologies, err := read[v1alpha1.RouteReflectorTopology](r, "--filename", f.Topology, "RouteReflectorTopology", true)
	if err != nil {
		return w, nil, err
	}
	for i := range topologies {
		v1alpha1.SetDefaults(&topologies[i])
	}
	if topologies[0].Name == "" {
		return w, nil, fmt.Errorf("--filename %s: the RouteReflectorTopology has no metadata.name", f.Topology)
	}
	w, told, err = r.Cluster(f)
	w.Topology, w.Others = topologies[0], topologies[1:]
	return w, told, err
}

// Cluster reads all files but that of the topology; Nodes is needed. It is [Reader.World] without a topology.
func (r Reader) Cluster(f Names) (w routereflector.World, told []string, err error) {
	w = routereflector.World{Now: r.Now, DatastoreReady: true}
	if err := f.stdin(); err != nil {
		return w, nil, err
	}
	configurations, err := read[calicov3.BGPConfiguration](r, "--bgpconfiguration", f.Configuration, "BGPConfiguration", false)
	if err != nil {
		return w, nil, err
	}
	configuration := calico.DefaultOf(configurations)
	w.Mesh = routereflector.MeshFrom(configuration)
	if told, err = r.nodes(f, &w, routereflector.ASNumberFrom(configuration)); err != nil {
		return w, nil, err
	}
	return w, told, r.sessions(f, &w)
}

// nodes reads the Nodes.
func (r Reader) nodes(f Names, w *routereflector.World, as uint32) (told []string, err error) {
	nodes, err := read[corev1.Node](r, "--nodes", f.Nodes, "Node", true)
	if err != nil {
		return nil, err
	}
	addresses, conditions := false, false
	for i := range nodes {
		n := routereflector.NodeFrom(&nodes[i], 0, as)
		addresses = addresses || n.IPv4.IsValid() || n.IPv6.IsValid()
		conditions = conditions || len(nodes[i].Status.Conditions) > 0
		w.Nodes = append(w.Nodes, n)
	}
	for i := range w.Nodes {
		if !addresses {
			internalAddresses(&w.Nodes[i], nodes[i].Status.Addresses)
		}
		if !conditions {
			w.Nodes[i].Ready = corev1.ConditionTrue
		}
	}
	told = append(told, "which pods run on the nodes is not read, so all count as free of workloads")
	if !addresses {
		told = append(told, "no Node has an address by Calico (annotation "+routereflector.IPv4Annotation+"); their InternalIP is taken instead")
	}
	if !conditions {
		told = append(told, "no Node has conditions; all are taken as Ready")
	}
	return told, nil
}

func internalAddresses(n *routereflector.Node, addresses []corev1.NodeAddress) {
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil || a.Type != corev1.NodeInternalIP {
			continue
		}
		if ip.Is4() && !n.IPv4.IsValid() {
			n.IPv4 = ip
		}
		if ip.Is6() && !n.IPv6.IsValid() {
			n.IPv6 = ip
		}
	}
}

// sessions reads the BGPPeers and what is known of sessions. A status counts whatever its age: the file is as old as it is.
func (r Reader) sessions(f Names, w *routereflector.World) error {
	peers, err := read[calicov3.BGPPeer](r, "--bgppeers", f.Peers, "BGPPeer", false)
	if err != nil {
		return err
	}
	if w.Peers, err = Peers(peers); err != nil {
		return fmt.Errorf("--bgppeers %s: %w", f.Peers, err)
	}
	statuses, err := read[calicov3.CalicoNodeStatus](r, "--status", f.Status, "CalicoNodeStatus", false)
	if err != nil {
		return err
	}
	for i := range statuses {
		if s, ok := routereflector.SightingFrom(&statuses[i]); ok {
			s.At = r.Now
			w.Sightings = append(w.Sightings, s)
		}
	}
	return nil
}

// Peers reads BGPPeers, in the form of either API group. The error names the BGPPeer and the field.
func Peers(list []calicov3.BGPPeer) ([]routereflector.Peer, error) {
	var out []routereflector.Peer
	for i := range list {
		calico.NormalizeBGP(&list[i]) // as Calico's own tools leave it in crd.projectcalico.org/v1
		p, err := routereflector.PeerFrom(&list[i], parseSelector)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func parseSelector(text string) (routereflector.Matcher, error) {
	return selector.Parse(text)
}

// read reads the objects of one kind from a file: a List, or documents one after the other. An empty name is an empty answer.
func read[T any](r Reader, flag, name, kind string, needed bool) ([]T, error) {
	if name == "" {
		return nil, nil
	}
	text, err := r.bytes(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	var out []T
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", flag, name, err)
		}
		if out, err = appendObjects(out, document, kind); err != nil {
			return nil, fmt.Errorf("%s %s: %w", flag, name, err)
		}
	}
	if needed && len(out) == 0 {
		return nil, fmt.Errorf("%s %s: there is no %s in it", flag, name, kind)
	}
	return out, nil
}

func (r Reader) bytes(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(r.Stdin)
	}
	return os.ReadFile(name)
}

// appendObjects appends the objects of the kind in a document, and in its items if it is a List. Objects of other kinds are skipped.
func appendObjects[T any](out []T, document []byte, kind string) ([]T, error) {
	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, fmt.Errorf("it is neither YAML nor JSON: %w", err)
	}
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("it holds no Kubernetes object: %w", err)
	}
	for _, item := range head.Items {
		if out, err = appendObject(out, item, kind, head.Kind == kind+"List"); err != nil {
			return nil, err
		}
	}
	if head.Items != nil {
		return out, nil
	}
	return appendObject(out, text, kind, false)
}

// appendObject appends one object if it is of the kind. implied says that it is of the kind if it says nothing.
func appendObject[T any](out []T, text []byte, kind string, implied bool) ([]T, error) {
	var head struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("it holds no Kubernetes object: %w", err)
	}
	if head.Kind != kind && (head.Kind != "" || !implied) {
		return out, nil
	}
	var object T
	strict := json.NewDecoder(bytes.NewReader(text))
	if kind == "RouteReflectorTopology" {
		// The one file that a person wrote: a field that is spelled wrong must not pass for absent.
		strict.DisallowUnknownFields()
	}
	if err := strict.Decode(&object); err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, head.Name, err)
	}
	return append(out, object), nil
}
