// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
)

// cluster is the API server of a lab, with Calico's kubernetes datastore.
type cluster struct {
	client.WithWatch
	calico *calico.BGPKubernetes
}

func connect(ctx context.Context, kubeconfig string) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.QPS, config.Burst = -1, -1
	bgp, err := calico.OpenBGP(ctx, config)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	bgp.AddToScheme(scheme)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &cluster{WithWatch: c, calico: bgp}, nil
}

// served is how long the API server may take to serve a new kind.
const served = 30 * time.Second

// install has the API server serve RouteReflectorTopology, if it does not yet. crds is the folder of the CRDs.
func (c *cluster) install(ctx context.Context, crds string) error {
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf(
			"there are no CRDs in %s; name the folder config/crd/bases of the repository with --crds",
			crds,
		)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		if err := c.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("installing %s: %w", file, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, served)
	defer cancel()
	return until(ctx, func() (bool, error) {
		return c.List(ctx, &v1alpha1.RouteReflectorTopologyList{}) == nil, nil
	})
}

// topology returns the topology of all scenarios, nil if there is none.
func (c *cluster) topology(ctx context.Context) (*v1alpha1.RouteReflectorTopology, error) {
	t := &v1alpha1.RouteReflectorTopology{}
	err := c.Get(ctx, client.ObjectKey{Name: topologyName}, t)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading RouteReflectorTopology %s: %w", topologyName, err)
	}
	return t, nil
}

// write gives the topology a spec, and creates it if there is none. It returns it as it was written.
func (c *cluster) write(
	ctx context.Context,
	spec v1alpha1.RouteReflectorTopologySpec,
) (*v1alpha1.RouteReflectorTopology, error) {
	for {
		t, err := c.topology(ctx)
		if err != nil {
			return nil, err
		}
		if t == nil {
			t = &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: topologyName}, Spec: spec}
			err = c.Create(ctx, t)
		} else {
			t.Spec = spec
			err = c.Update(ctx, t)
		}
		if apierrors.IsConflict(err) {
			continue // the operator reported meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("writing RouteReflectorTopology %s: %w", topologyName, err)
		}
		return t, nil
	}
}

// remove deletes the topology. The operator's finalizer keeps it until all is undone.
func (c *cluster) remove(ctx context.Context) error {
	err := c.Delete(ctx, &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: topologyName}})
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("deleting RouteReflectorTopology %s: %w", topologyName, err)
	}
	return nil
}

// reflectors lists the nodes that are the topology's reflectors, sorted.
func (c *cluster) reflectors(ctx context.Context) ([]string, error) {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes, client.MatchingLabels{v1alpha1.ReflectorLabel: topologyName}); err != nil {
		return nil, fmt.Errorf("reading Nodes: %w", err)
	}
	var out []string
	for _, n := range nodes.Items {
		out = append(out, n.Name)
	}
	slices.Sort(out)
	return out, nil
}

// mostStanding is how many status requests of a topology may stand all the time, answered.
const mostStanding = 6

// questions lists the CalicoNodeStatuses of the topology, apart from answered ones that stand while there is a
// topology: of these no more than a few may be there.
func (c *cluster) questions(ctx context.Context) ([]string, error) {
	var topologies v1alpha1.RouteReflectorTopologyList
	if err := c.List(ctx, &topologies); err != nil {
		return nil, fmt.Errorf("reading RouteReflectorTopologies: %w", err)
	}
	var statuses calicov3.CalicoNodeStatusList
	if err := c.List(ctx, &statuses); err != nil {
		return nil, fmt.Errorf("reading CalicoNodeStatuses: %w", err)
	}
	var out []string
	standing := 0
	for i := range statuses.Items {
		s := &statuses.Items[i]
		calico.NormalizeBGP(s)
		if s.Labels[v1alpha1.TopologyLabel] != topologyName {
			continue
		}
		answered := !s.Status.LastUpdated.IsZero() &&
			!slices.Contains(s.Spec.Classes, calicov3.NodeStatusClassTypeRoutes)
		if answered && len(topologies.Items) > 0 && standing < mostStanding {
			standing++
			continue
		}
		out = append(out, s.Name)
	}
	return out, nil
}

// until polls until done says so or fails, or ctx ends.
func until(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
