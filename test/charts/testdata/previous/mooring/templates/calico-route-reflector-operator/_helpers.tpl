{{- /*
SPDX-FileCopyrightText: The Mooring Authors
SPDX-License-Identifier: Apache-2.0

Parts of calico-route-reflector-operator. Each takes the component's values.
*/ -}}

{{- define "calicoRouteReflectorOperator.extraArgs" -}}
{{- include "mooring.extraArgs" (dict "path" "calicoRouteReflectorOperator.extraArgs" "args" .extraArgs "own" (dict
  "metrics-cert-path" "set calicoRouteReflectorOperator.metrics.certificateSecret"
  "metrics-secure" "the Service and the ServiceMonitor expect https"
  "metrics-bind-address" "the Service and the NetworkPolicy expect port 8443"
  "health-probe-bind-address" "the probes and the NetworkPolicy expect port 8081"
  "leader-elect" "there are several replicas, also while one is replaced"
  "leader-election-id" "the Role allows one Lease"
  "leader-election-namespace" "the Role allows the Lease in this namespace only"
)) }}
{{- end }}
