// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// ConditionOpen is the condition of a Service: False while the firewall does not open all that the Service asks for, with
// the reason of the Event and its words, and absent otherwise. An Event is gone after an hour, and the port still closed.
// It MUST not be changed.
const ConditionOpen = "cloud.mooring.dev/FirewallOpen"

// settle writes the condition of each Service that has another than it must have. What could not be written is written
// after the next round: nothing depends on it.
func (c *Controller) settle(ctx context.Context, round *scene) {
	services, err := c.services.List(labels.Everything())
	if err != nil {
		return
	}
	wanted := round.closed()
	for _, s := range services {
		if c.namespace != "" && s.Namespace != c.namespace {
			continue
		}
		want, closed := wanted[s.UID]
		var now metav1.Condition
		for _, condition := range s.Status.Conditions {
			if condition.Type == ConditionOpen {
				now = condition
			}
		}
		if now.Status == want.Status && now.Reason == want.Reason && now.Message == want.Message {
			continue
		}
		err := c.patch(ctx, s, want, closed)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			c.log.V(1).Info("The condition of a Service could not be written", "service", s.Namespace+"/"+s.Name, "error", err.Error())
		}
	}
}

// closed are the conditions of Services of which something stays closed.
func (s *scene) closed() map[types.UID]metav1.Condition {
	out := map[types.UID]metav1.Condition{}
	for _, n := range s.notes {
		if n.About.UID == "" {
			continue
		}
		c, more := out[n.About.UID]
		if !more {
			c = metav1.Condition{Type: ConditionOpen, Status: metav1.ConditionFalse, Reason: n.Reason}
		}
		c.Message = strings.TrimPrefix(c.Message+"; "+n.Message, "; ")
		out[n.About.UID] = c
	}
	return out
}

// patch writes the condition of a Service, or takes it away.
func (c *Controller) patch(ctx context.Context, s *corev1.Service, condition metav1.Condition, closed bool) error {
	var change any = map[string]string{"$patch": "delete", "type": ConditionOpen}
	if closed {
		condition.LastTransitionTime, condition.ObservedGeneration = metav1.NewTime(c.clock.Now()), s.Generation
		change = condition
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.UID}, "status": map[string]any{"conditions": []any{change}},
	})
	if err != nil {
		return fmt.Errorf("encoding a condition: %w", err)
	}
	services := c.client.CoreV1().Services(s.Namespace)
	if _, err = services.Patch(ctx, s.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("writing the condition of service %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}
