{{- /*
SPDX-FileCopyrightText: The Mooring Authors
SPDX-License-Identifier: Apache-2.0

Parts of calico-route-reflector-operator. Each takes the component's values.
*/ -}}

{{- /* Refuses contradictions, which the schema can only call a wrong number of items. */ -}}
{{- define "calicoRouteReflectorOperator.check" -}}
{{- if not .etcd -}}
{{- fail "calicoRouteReflectorOperator.etcd is missing: these are the values of an earlier version of the chart: use --reset-then-reuse-values instead of --reuse-values" -}}
{{- end -}}
{{- if not .ports -}}
{{- fail "calicoRouteReflectorOperator.ports is missing: these are the values of an earlier version of the chart: use --reset-then-reuse-values instead of --reuse-values" -}}
{{- end -}}
{{- if eq (int .ports.metrics) (int .ports.health) -}}
{{- fail (printf "calicoRouteReflectorOperator.ports: metrics and health are both %d: give them two ports" (int .ports.health)) -}}
{{- end -}}
{{- $endpoints := join "," .etcd.endpoints -}}
{{- if and (eq .datastore "kubernetes") (or .etcd.endpoints .etcd.configMap) -}}
{{- fail "calicoRouteReflectorOperator.datastore is kubernetes, but calicoRouteReflectorOperator.etcd names an etcd: set datastore to etcdv3, or remove the etcd" -}}
{{- end -}}
{{- if and .etcd.endpoints .etcd.configMap -}}
{{- fail "calicoRouteReflectorOperator.etcd.endpoints and calicoRouteReflectorOperator.etcd.configMap both name an etcd: remove one of them" -}}
{{- end -}}
{{- if and (contains "http://" $endpoints) (contains "https://" $endpoints) -}}
{{- fail "calicoRouteReflectorOperator.etcd.endpoints mixes http and https: use one of them for all" -}}
{{- end -}}
{{- if ne (empty .etcd.certKey) (empty .etcd.keyKey) -}}
{{- fail "calicoRouteReflectorOperator.etcd: only one of certKey and keyKey is set: a client certificate needs both" -}}
{{- end -}}
{{- end }}

{{- /* Refuses a namespace whose pods may not be on their machine's network, as far as there is a cluster to ask. */ -}}
{{- define "calicoRouteReflectorOperator.checkNamespace" -}}
{{- $level := dig "metadata" "labels" "pod-security.kubernetes.io/enforce" "privileged" (lookup "v1" "Namespace" "" .Release.Namespace) -}}
{{- if and .Values.calicoRouteReflectorOperator.hostNetwork (ne $level "privileged") -}}
{{- fail (printf "namespace %s enforces the Pod Security Standard %s, under which no pod may be on its machine's network: kubectl label namespace %s --overwrite pod-security.kubernetes.io/enforce=privileged, or set calicoRouteReflectorOperator.hostNetwork to false and do without a repair when no route to a pod is left" .Release.Namespace $level .Release.Namespace) -}}
{{- end -}}
{{- end }}

{{- /* The affinity of the values; and on the machine's network two pods never share a machine, since they would share its ports. */ -}}
{{- define "calicoRouteReflectorOperator.affinity" -}}
{{- $affinity := deepCopy .affinity -}}
{{- if .hostNetwork -}}
{{- $labels := include "mooring.selectorLabels" "calico-route-reflector-operator" | fromYaml -}}
{{- $apart := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) -}}
{{- $anti := deepCopy ($affinity.podAntiAffinity | default dict) -}}
{{- $required := $anti.requiredDuringSchedulingIgnoredDuringExecution | default list -}}
{{- $_ := set $anti "requiredDuringSchedulingIgnoredDuringExecution" (append $required $apart) -}}
{{- $_ := set $affinity "podAntiAffinity" $anti -}}
{{- end -}}
{{- with $affinity -}}{{ toYaml . }}{{- end -}}
{{- end }}

{{- define "calicoRouteReflectorOperator.extraArgs" -}}
{{- include "mooring.extraArgs" (dict "path" "calicoRouteReflectorOperator.extraArgs" "args" .extraArgs "own" (dict
  "mode" "set calicoRouteReflectorOperator.mode"
  "datastore-type" "set calicoRouteReflectorOperator.datastore"
  "metrics-cert-path" "set calicoRouteReflectorOperator.metrics.certificateSecret"
  "metrics-secure" "the Service and the ServiceMonitor expect https"
  "metrics-bind-address" "set calicoRouteReflectorOperator.ports.metrics"
  "health-probe-bind-address" "set calicoRouteReflectorOperator.ports.health"
  "leader-elect" "there are several replicas, also while one is replaced"
  "leader-election-id" "the Role allows one Lease"
  "leader-election-namespace" "the Role allows the Lease in this namespace only"
)) }}
{{- end }}

{{- define "calicoRouteReflectorOperator.volumeMounts" -}}
{{- if include "calicoNodeSync.etcdSecret" . }}
- name: etcd-certs
  mountPath: /calico-secrets
  readOnly: true
{{- end }}
{{- if .metrics.certificateSecret }}
- name: metrics-certificate
  mountPath: /metrics-certificate
  readOnly: true
{{- end }}
{{- with .extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "calicoRouteReflectorOperator.volumes" -}}
{{- if include "calicoNodeSync.etcdSecret" . }}
- name: etcd-certs
  secret:
    secretName: {{ .etcd.secret }}
    # Readable through fsGroup by 65532, which does not own the files.
    defaultMode: 0440
    # An etcd without TLS has no certificates. With TLS, files that are missing stop the start with a message that names them.
    optional: true
{{- end }}
{{- if .metrics.certificateSecret }}
- name: metrics-certificate
  secret:
    secretName: {{ .metrics.certificateSecret }}
    # Readable through fsGroup by 65532, which does not own the file.
    defaultMode: 0440
{{- end }}
{{- with .extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
