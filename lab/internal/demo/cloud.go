// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/mooring-dev/mooring/lab/internal/cloud"
	"github.com/mooring-dev/mooring/lab/internal/fleet"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

const (
	// service is the Service of the story, in the namespace of the lab's pods.
	service = "web"
	// taintUninitialized is on a Node until a cloud controller manager has been there.
	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// askForBalancer creates a Service that wants a load balancer; one of an earlier story will do.
func (s *Story) askForBalancer(ctx context.Context) error {
	s.chapter("A Service asks for a load balancer")
	s.begin = time.Now()
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service, Namespace: fleet.Namespace},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": fleet.SamplePod},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	_, err := s.api.CoreV1().Services(fleet.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating a Service: %w", err)
	}
	err = s.until(ctx, quickly, "a load balancer", func(ctx context.Context) (bool, error) {
		all, err := s.cloud.LoadBalancers(ctx)
		return len(all) > 0, err
	})
	if err != nil {
		return err
	}
	s.sayAt("digitalocean-cloud-controller-manager has ordered it; DigitalOcean takes a while to make it")
	return nil
}

// replace creates another droplet, while Kubernetes' pod garbage collection takes its time, and waits until its Node, and what Calico holds of it,
// is complete.
func (s *Story) replace(ctx context.Context) error {
	list, err := machines.Load(s.Layout.MachinesFile())
	if err != nil {
		return err
	}
	if _, there := list.Find(s.Newcomer); there {
		return nil // an earlier story has told this
	}
	s.chapter("Another takes its place")
	d, err := s.cloud.Create(ctx, s.Newcomer, list.EmptiestZone(), "", false)
	if err != nil {
		return err
	}
	s.sayAt("droplet %s created: it boots", d.Name)
	var node *corev1.Node
	err = s.until(ctx, quickly, "the Node of "+d.Name, func(ctx context.Context) (bool, error) {
		node, err = s.api.CoreV1().Nodes().Get(ctx, d.Name, metav1.GetOptions{})
		if err != nil {
			return false, ignoreNotFound(err)
		}
		return node.Spec.ProviderID != "" && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintUninitialized }), nil
	})
	if err != nil {
		return err
	}
	s.sayAt("its kubelet registered Node %s, and digitalocean-cloud-controller-manager initialized it:\n%s, %s, %s",
		node.Name, node.Spec.ProviderID, node.Labels[corev1.LabelInstanceTypeStable], strings.Join(addresses(node), ", "))
	return s.until(ctx, quickly, "the pods of "+d.Name, func(ctx context.Context) (bool, error) {
		pods, err := s.api.CoreV1().Pods(fleet.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + d.Name})
		if err != nil {
			return false, err
		}
		running := 0
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running >= s.PodsPerNode, nil
	})
}

// awaitAddress waits until the load balancer serves. A machine that is destroyed while DigitalOcean still makes it would be asked for as a
// target after it is gone, until Kubernetes knows: a refusal (422) that has nothing to do with the story.
func (s *Story) awaitAddress(ctx context.Context) error {
	err := s.until(ctx, quickly, "the address of the Service", func(ctx context.Context) (bool, error) {
		object, err := s.api.CoreV1().Services(fleet.Namespace).Get(ctx, service, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, ingress := range object.Status.LoadBalancer.Ingress {
			s.address = ingress.IP
		}
		return s.address != "", nil
	})
	if err != nil {
		return err
	}
	s.sayAt("Service %s/%s has the address %s", fleet.Namespace, service, s.address)
	return nil
}

// showTargets waits until the targets are the droplets of the machines that exist.
func (s *Story) showTargets(ctx context.Context) error {
	s.chapter("The load balancer")
	var targets []string
	err := s.until(ctx, quickly, "the targets of the load balancer", func(ctx context.Context) (bool, error) {
		droplets, err := s.cloud.Droplets(ctx)
		if err != nil {
			return false, err
		}
		all, err := s.cloud.LoadBalancers(ctx)
		if err != nil {
			return false, err
		}
		var wanted []string
		targets, wanted = nil, nil
		for _, d := range droplets {
			if d.Node {
				wanted = append(wanted, d.Name)
			}
			for _, lb := range all {
				if lb.IP == s.address && slices.Contains(lb.DropletIDs, d.ID) {
					targets = append(targets, d.Name)
				}
			}
		}
		return slices.Equal(targets, wanted), nil
	})
	if err != nil {
		return fmt.Errorf("%w: the load balancer has the targets %s", err, strings.Join(targets, ", "))
	}
	s.sayAt("its targets: %s", strings.Join(targets, ", "))
	return nil
}

// droplet returns the droplet of the victim.
func (s *Story) droplet(ctx context.Context) (cloud.Droplet, error) {
	list, err := s.cloud.Droplets(ctx)
	if err != nil {
		return cloud.Droplet{}, err
	}
	for _, d := range list {
		if d.Name == s.Victim {
			return d, nil
		}
	}
	return cloud.Droplet{}, errors.New("there is no droplet " + s.Victim + "; start again with `lab down --delete`")
}

func addresses(node *corev1.Node) []string {
	var texts []string
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeHostName {
			texts = append(texts, fmt.Sprintf("%s %s", a.Type, a.Address))
		}
	}
	return texts
}
