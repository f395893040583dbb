{{- /*
SPDX-FileCopyrightText: The Mooring Authors
SPDX-License-Identifier: Apache-2.0

Parts of etcd-storage-operator. Each takes the component's values.
*/ -}}

{{- define "etcdStorageOperator.extraArgs" -}}
{{- include "mooring.extraArgs" (dict "path" "etcdStorageOperator.extraArgs" "args" .extraArgs "own" (dict
  "mode" "set etcdStorageOperator.mode"
  "namespace" "it is the release's"
  "etcd-core-url" "set etcdStorageOperator.core.urls"
  "etcd-core-ca-configmap" "set etcdStorageOperator.core.caConfigMap"
  "etcd-core-certs-secret" "set etcdStorageOperator.core.certsSecret"
  "etcd-core-ca-secret" "set etcdStorageOperator.core.certsSecret"
  "etcd-core-admin-secret" "set etcdStorageOperator.core.adminSecret"
  "core-tenant-users" "set etcdStorageOperator.core.tenantUsers"
  "default-quota-bytes" "set etcdStorageOperator.defaultQuotaBytes"
  "core-overcommit-percent" "set etcdStorageOperator.coreOvercommitPercent"
  "etcd-proxy-image" "set etcdStorageOperator.proxyImage"
  "metrics-cert-path" "set etcdStorageOperator.metrics.certificateSecret"
  "metrics-secure" "the Service and the ServiceMonitor expect https"
  "metrics-bind-address" "the Service and the NetworkPolicy expect port 8443"
  "health-probe-bind-address" "the probes and the NetworkPolicy expect port 8081"
  "leader-elect" "there are several replicas, also while one is replaced"
  "leader-election-id" "the Role allows one Lease"
  "leader-election-namespace" "the Role allows the Lease in this namespace only"
)) }}
{{- end }}

{{- /* etcdStorageOperator.check NAMESPACE: the operator reads and writes every Secret of its namespace, so nothing else may live there. */ -}}
{{- define "etcdStorageOperator.check" -}}
{{- if has . (list "kube-system" "default") }}
{{- fail (printf "etcdStorageOperator is not for namespace %s: it has rights on all Secrets of its namespace, where its proxies run. Give it a release of its own in a namespace of its own, such as kube-apiserver-storage" .) }}
{{- end }}
{{- end }}

{{- define "etcdStorageOperator.volumeMounts" -}}
{{- if .metrics.certificateSecret }}
- name: metrics-certificate
  mountPath: /metrics-certificate
  readOnly: true
{{- end }}
{{- with .extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "etcdStorageOperator.volumes" -}}
{{- with .metrics.certificateSecret }}
- name: metrics-certificate
  secret:
    secretName: {{ . }}
    # Readable through fsGroup by 65532, which does not own the file.
    defaultMode: 0440
{{- end }}
{{- with .extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
