// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// claim explains a PersistentVolumeClaim by what Kubernetes and DigitalOcean say of its volume.
func (e *explainCommand) claim(ctx context.Context, name string) (explain.Explanation, error) {
	c, namespace, err := e.env.inNamespace()
	if err != nil {
		return explain.Explanation{}, err
	}
	claim, err := c.typed.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return explain.Explanation{}, fmt.Errorf("there is no PersistentVolumeClaim %q in namespace %s; -n names another namespace", name, namespace)
	case err != nil:
		return explain.Explanation{}, fmt.Errorf("reading PersistentVolumeClaim %s/%s: %w", namespace, name, err)
	}
	w, err := readVolumes(ctx, e.env, e.clock)
	if err != nil {
		return explain.Explanation{}, err
	}
	report := volumes.Compare(w)
	evidence := explain.ClaimEvidence{Namespace: namespace, Name: name, NotRead: report.NotRead}
	if claim.Spec.StorageClassName != nil {
		evidence.Class = *claim.Spec.StorageClassName
	}
	if evidence.Row = rowOf(report.Volumes, namespace+"/"+name, claim.Spec.VolumeName); evidence.Row != nil {
		evidence.Machine = evidence.Row.Machine
	} else {
		evidence.Driver = claim.Annotations[provisionerAnnotation]
	}
	if evidence.Machine != "" {
		evidence.OutOfService = outOfService(ctx, c, evidence.Machine)
	}
	evidence.Events, evidence.EventsRead = c.eventsAbout(ctx, "PersistentVolumeClaim", namespace, name)
	if evidence.Row != nil {
		for _, pod := range evidence.Row.Pods {
			more, side := c.eventsAbout(ctx, "Pod", namespace, pod[len(namespace)+1:])
			evidence.Events = append(evidence.Events, more...)
			if side != (explain.Side{}) {
				evidence.EventsRead = side
			}
		}
	}
	evidence.Now = e.clock.Now()
	return explain.Claim(evidence), nil
}

// rowOf is the row of a claim that is bound to that volume, or to none: a PersistentVolume of an earlier claim of the same name is not its volume.
func rowOf(rows []volumes.Row, claim, volume string) *volumes.Row {
	var bound *volumes.Row
	for i, r := range rows {
		switch {
		case r.Claim != claim:
		case r.Volume == volume, r.Volume == "":
			return &rows[i]
		case volume == "" && r.State != volumes.Released:
			bound = &rows[i] // since the claim was read
		}
	}
	return bound
}

// claimNames completes names; whatever goes wrong completes to nothing.
func claimNames(ctx context.Context, env *Env) []string {
	c, namespace, err := env.inNamespace()
	if err != nil {
		return nil
	}
	list, err := c.typed.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}
