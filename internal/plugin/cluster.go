// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// listPage is how many objects one answer of the API server holds.
const listPage = 500

// cluster reads the cluster of the kubeconfig. It writes nothing but the annotations of a confirmation that a person has given, or of a request.
type cluster struct {
	config  *rest.Config
	typed   kubernetes.Interface
	dynamic dynamic.Interface
	// namespaces are those of the components: what is written there is believed.
	namespaces []string
}

// cluster makes the clients; nothing is asked yet.
func (e *Env) cluster() (*cluster, error) {
	config, err := e.Kube.RESTConfig()
	if err != nil {
		return nil, err
	}
	c := &cluster{config: config, namespaces: e.namespaces}
	if c.typed, err = kubernetes.NewForConfig(config); err == nil {
		c.dynamic, err = dynamic.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return c, nil
}

func (c *cluster) nodes(ctx context.Context) ([]corev1.Node, error) {
	var out []corev1.Node
	options := metav1.ListOptions{Limit: listPage}
	for {
		page, err := c.typed.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing Nodes: %w", err)
		}
		out = append(out, page.Items...)
		if options.Continue = page.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

// topologies lists the RouteReflectorTopologies; served reports whether the cluster has the kind at all.
func (c *cluster) topologies(ctx context.Context) (list []v1alpha1.RouteReflectorTopology, served bool, err error) {
	resource := v1alpha1.GroupVersion.WithResource("routereflectortopologies")
	options := metav1.ListOptions{Limit: listPage}
	for {
		page, err := c.dynamic.Resource(resource).List(ctx, options)
		if apierrors.IsNotFound(err) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("listing RouteReflectorTopologies: %w", err)
		}
		for i := range page.Items {
			var t v1alpha1.RouteReflectorTopology
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(page.Items[i].Object, &t); err != nil {
				return nil, true, fmt.Errorf("decoding RouteReflectorTopology %s: %w", page.Items[i].GetName(), err)
			}
			list = append(list, t)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return list, true, nil
		}
	}
}
