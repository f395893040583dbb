{{- /*
SPDX-FileCopyrightText: The Mooring Authors
SPDX-License-Identifier: Apache-2.0

Parts of calico-node-sync. Each takes the component's values.
*/ -}}

{{- /* Refuses contradictions, which the schema can only call a wrong number of items. */ -}}
{{- define "calicoNodeSync.check" -}}
{{- $endpoints := join "," .etcd.endpoints -}}
{{- if and (eq .datastore "kubernetes") (or .etcd.endpoints .etcd.configMap) -}}
{{- fail "calicoNodeSync.datastore is kubernetes, but calicoNodeSync.etcd names an etcd: remove one of them, since guessing wrong would clean the wrong datastore" -}}
{{- end -}}
{{- if and .etcd.endpoints .etcd.configMap -}}
{{- fail "calicoNodeSync.etcd.endpoints and calicoNodeSync.etcd.configMap both name an etcd: remove one of them" -}}
{{- end -}}
{{- if and (contains "http://" $endpoints) (contains "https://" $endpoints) -}}
{{- fail "calicoNodeSync.etcd.endpoints mixes http and https: use one of them for all" -}}
{{- end -}}
{{- if ne (empty .etcd.certKey) (empty .etcd.keyKey) -}}
{{- fail "calicoNodeSync.etcd: only one of certKey and keyKey is set: a client certificate needs both" -}}
{{- end -}}
{{- if and .journal.folder.existingClaim (ne .journal.mode "folder") -}}
{{- fail (printf "calicoNodeSync.journal.folder.existingClaim is set, but calicoNodeSync.journal.mode is %s: set it to folder, or remove the claim" .journal.mode) -}}
{{- end -}}
{{- if and (eq .journal.mode "folder") (not .journal.folder.existingClaim) (gt (int .replicas) 1) (ne .journal.folder.accessMode "ReadWriteMany") -}}
{{- fail (printf "calicoNodeSync.journal.folder.accessMode is %s, which one machine can mount, and there are %d replicas: use ReadWriteMany, or set calicoNodeSync.replicas to 1" .journal.folder.accessMode (int .replicas)) -}}
{{- end -}}
{{- end }}

{{- define "calicoNodeSync.extraArgs" -}}
{{- include "mooring.extraArgs" (dict "path" "calicoNodeSync.extraArgs" "args" .extraArgs "own" (dict
  "mode" "set calicoNodeSync.mode"
  "dry-run" "set calicoNodeSync.mode to report"
  "grace-period" "set calicoNodeSync.gracePeriod"
  "datastore-type" "set calicoNodeSync.datastore"
  "journal" "set calicoNodeSync.journal.mode"
  "journal-dir" "set calicoNodeSync.journal.mode to folder"
  "journal-retention" "set calicoNodeSync.journal.retention"
  "journal-max-entries" "set calicoNodeSync.journal.maxEntries"
  "events-deployment" "the Role allows this Deployment only"
  "metrics-cert-path" "set calicoNodeSync.metrics.certificateSecret"
  "metrics-secure" "the Service and the ServiceMonitor expect https"
  "metrics-bind-address" "the Service and the NetworkPolicy expect port 8443"
  "health-probe-bind-address" "the probes and the NetworkPolicy expect port 8081"
  "leader-elect" "there are several replicas, also while one is replaced"
  "leader-election-id" "the Role allows one Lease"
  "leader-election-namespace" "the Role allows the Lease in this namespace only"
)) }}
{{- end }}

{{- /* "true" if etcd's certificates may be needed: a ConfigMap decides that itself. */ -}}
{{- define "calicoNodeSync.etcdSecret" -}}
{{- if eq .datastore "etcdv3" -}}
{{- if or .etcd.configMap (hasPrefix "https:" (first .etcd.endpoints)) -}}true{{- end -}}
{{- end -}}
{{- end }}

{{- define "calicoNodeSync.datastoreEnv" -}}
- name: DATASTORE_TYPE
  value: {{ .datastore }}
{{- if eq .datastore "etcdv3" }}
{{- if .etcd.configMap }}
{{- $configMap := .etcd.configMap }}
# Required: without endpoints the pod does not start, and says so.
- name: ETCD_ENDPOINTS
  valueFrom:
    configMapKeyRef:
      name: {{ $configMap }}
      key: etcd_endpoints
# Empty or absent for an etcd without TLS; otherwise the paths below /calico-secrets.
{{- range $variable, $key := dict "ETCD_CA_CERT_FILE" "etcd_ca" "ETCD_CERT_FILE" "etcd_cert" "ETCD_KEY_FILE" "etcd_key" }}
- name: {{ $variable }}
  valueFrom:
    configMapKeyRef:
      name: {{ $configMap }}
      key: {{ $key }}
      optional: true
{{- end }}
{{- else }}
- name: ETCD_ENDPOINTS
  value: {{ join "," .etcd.endpoints | quote }}
{{- if include "calicoNodeSync.etcdSecret" . }}
{{- range $variable, $key := dict "ETCD_CA_CERT_FILE" .etcd.caKey "ETCD_CERT_FILE" .etcd.certKey "ETCD_KEY_FILE" .etcd.keyKey }}
{{- if $key }}
- name: {{ $variable }}
  value: /calico-secrets/{{ $key }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "calicoNodeSync.journalArgs" -}}
- --journal={{ .journal.mode }}
{{- if eq .journal.mode "configmaps" }}
- --journal-retention={{ .journal.retention }}
- --journal-max-entries={{ int .journal.maxEntries }}
{{- else if eq .journal.mode "folder" }}
- --journal-dir=/journal
{{- end }}
{{- end }}

{{- define "calicoNodeSync.volumeMounts" -}}
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
{{- if eq .journal.mode "folder" }}
- name: journal
  mountPath: /journal
{{- end }}
{{- with .extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "calicoNodeSync.volumes" -}}
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
    defaultMode: 0440
{{- end }}
{{- if eq .journal.mode "folder" }}
- name: journal
  persistentVolumeClaim:
    claimName: {{ .journal.folder.existingClaim | default "calico-node-sync-journal" }}
{{- end }}
{{- with .extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
