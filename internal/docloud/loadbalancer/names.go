// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// DefaultName is the name of a Service's load balancer that asks for none: "a" and the Service's UID without dashes, 32 characters at most.
// It MUST not be changed: the load balancers of existing clusters are found by it (k8s.io/cloud-provider, DefaultLoadBalancerName).
func DefaultName(service *corev1.Service) string {
	name := "a" + strings.ReplaceAll(string(service.UID), "-", "")
	return name[:min(len(name), 32)]
}

// NameOf is the name of a Service's load balancer: the annotation's, else the default one.
func NameOf(service *corev1.Service) string {
	return cmp.Or(service.Annotations[annotation.Name], DefaultName(service))
}
