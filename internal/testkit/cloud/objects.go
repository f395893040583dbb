// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// NodeName is a name that no other World uses.
func (w *World) NodeName(suffix any) string { return fmt.Sprintf("%s-%v", w.Name, suffix) }

// Droplet creates a droplet.
func (w *World) Droplet(spec digitalocean.DropletSpec) digitalocean.Droplet {
	w.T.Helper()
	d := must.Get(w.Account.CreateDroplet(spec)).Or(w.T)
	return d
}

// DeleteDroplet deletes a droplet by its ID.
func (w *World) DeleteDroplet(id int) {
	w.T.Helper()
	must.Do(w.T, w.Account.DeleteDroplet(fmt.Sprint(id)))
}

// SetDropletStatus switches a droplet off or on.
func (w *World) SetDropletStatus(id int, status string) {
	w.T.Helper()
	must.Do(w.T, w.Account.SetDropletStatus(fmt.Sprint(id), status))
}

// Address is the first IPv4 address of a droplet that is private or public.
func Address(d digitalocean.Droplet, kind string) string {
	for _, n := range d.Networks.V4 {
		if n.Type == kind {
			return n.IPAddress
		}
	}
	return ""
}

// Register creates a Node as a kubelet does.
func (w *World) Register(name string, change ...func(*corev1.Node)) *corev1.Node {
	w.T.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{Label: w.Name}}}
	for _, c := range change {
		c(node)
	}
	node = must.Get(w.Client.CoreV1().Nodes().Create(w.T.Context(), node, metav1.CreateOptions{})).Or(w.T)
	w.T.Cleanup(func() { _ = w.Client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return node
}

// RunsOn has Register give a Node the provider ID of a droplet.
func RunsOn(d digitalocean.Droplet) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.ProviderID = providerid.Format(d.ID) }
}

// HasAddresses has Register give a Node the addresses of a droplet.
func HasAddresses(d digitalocean.Droplet) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Addresses = Addresses(d) }
}

// Addresses are those of a droplet's Node.
func Addresses(d digitalocean.Droplet) []corev1.NodeAddress {
	addresses := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: d.Name}}
	for _, a := range d.Networks.V4 {
		kind := corev1.NodeInternalIP
		if a.Type == "public" {
			kind = corev1.NodeExternalIP
		}
		addresses = append(addresses, corev1.NodeAddress{Type: kind, Address: a.IPAddress})
	}
	return addresses
}

// Node returns a Node.
func (w *World) Node(name string) *corev1.Node {
	w.T.Helper()
	node := must.Get(w.Client.CoreV1().Nodes().Get(w.T.Context(), name, metav1.GetOptions{})).Or(w.T)
	return node
}

// HasNode reports whether a Node is there.
func (w *World) HasNode(name string) bool {
	w.T.Helper()
	_, there := w.Nodes()[name]
	return there
}

// Nodes are the World's Nodes by name.
func (w *World) Nodes() map[string]*corev1.Node {
	w.T.Helper()
	list, err := w.Client.CoreV1().Nodes().List(w.T.Context(), metav1.ListOptions{LabelSelector: Label + "=" + w.Name})
	must.Do(w.T, err)
	out := make(map[string]*corev1.Node, len(list.Items))
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

// PatchNode changes a Node by a merge patch, with a subresource if there is one.
func (w *World) PatchNode(name, body string, subresource ...string) {
	w.T.Helper()
	nodes, options := w.Client.CoreV1().Nodes(), metav1.PatchOptions{}
	must.Get(nodes.Patch(w.T.Context(), name, types.MergePatchType, []byte(body), options, subresource...)).Or(w.T)
}

// SetReady sets the condition Ready of a Node to True, or to Unknown as Kubernetes does when the kubelet is silent.
func (w *World) SetReady(name string, ready bool) {
	w.T.Helper()
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionUnknown}[ready]
	w.PatchNode(name, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status), "status")
}

// DeleteNode deletes a Node.
func (w *World) DeleteNode(name string) {
	w.T.Helper()
	must.Do(w.T, w.Client.CoreV1().Nodes().Delete(w.T.Context(), name, metav1.DeleteOptions{}))
}

// Port is a port of a Service.
func Port(number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: fmt.Sprint("p", number), Protocol: corev1.ProtocolTCP, Port: number}
}

// CreateService creates a Service in the World's namespace, or in another that change sets. The simulated API server
// allocates no node ports: they are set here.
func (w *World) CreateService(
	name string, kind corev1.ServiceType, annotations map[string]string, ports []corev1.ServicePort, change ...func(*corev1.Service),
) *corev1.Service {
	w.T.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: w.Name, Labels: map[string]string{Label: w.Name}, Annotations: maps.Clone(annotations),
		},
		Spec: corev1.ServiceSpec{Type: kind, Ports: ports},
	}
	for i := range s.Spec.Ports {
		if !w.real && kind != corev1.ServiceTypeClusterIP {
			w.ports++
			s.Spec.Ports[i].NodePort = w.ports
		}
	}
	for _, c := range change {
		c(s)
	}
	s = must.Get(w.Client.CoreV1().Services(s.Namespace).Create(w.T.Context(), s, metav1.CreateOptions{})).Or(w.T)
	return s
}

// Service returns a Service of the World's namespace.
func (w *World) Service(name string) *corev1.Service {
	w.T.Helper()
	s := must.Get(w.Client.CoreV1().Services(w.Name).Get(w.T.Context(), name, metav1.GetOptions{})).Or(w.T)
	return s
}

// PatchService changes a Service by a merge patch.
func (w *World) PatchService(name string, body map[string]any) {
	w.T.Helper()
	services, options := w.Client.CoreV1().Services(w.Name), metav1.PatchOptions{}
	must.Get(services.Patch(w.T.Context(), name, types.MergePatchType, w.JSON(body), options)).Or(w.T)
}

// Annotate sets an annotation of a Service; nil removes it.
func (w *World) Annotate(name, annotation string, value any) {
	w.T.Helper()
	w.PatchService(name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: value}}})
}

// DeleteService deletes a Service.
func (w *World) DeleteService(name string) {
	w.T.Helper()
	must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(w.T.Context(), name, metav1.DeleteOptions{}))
}
