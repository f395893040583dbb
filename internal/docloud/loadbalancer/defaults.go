// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Effective returns a Service with the cluster's defaults for annotations that it does not carry; the Service itself if there are none. Nothing else of
// it is copied, so that it MUST NOT be changed. What is written on a Service is compared with the Service itself, never with this.
func (c Cluster) Effective(service *corev1.Service) *corev1.Service {
	if len(c.Defaults) == 0 {
		return service
	}
	effective := *service
	effective.Annotations = c.Defaults.Over(service.Annotations)
	return &effective
}

// blame is [Blame] for each of them.
func (p Problems) blame(service, effective *corev1.Service) Problems {
	for _, problem := range p {
		_ = Blame(problem, service, effective)
	}
	return p
}

// Blame says of an error about an annotation whose value is the cluster's default that it is. It returns the error.
func Blame(err error, service, effective *corev1.Service) error {
	if wrong, ok := errors.AsType[*annotation.Error](err); ok {
		wrong.Default = wrong.Default || annotation.IsDefault(wrong.Annotation, service.Annotations, effective.Annotations)
	}
	return err
}
