{{- /*
SPDX-FileCopyrightText: The Mooring Authors
SPDX-License-Identifier: Apache-2.0

Parts of digitalocean-cloud-controller-manager. Each takes the component's values, but for check, which takes the root.
*/ -}}

{{- define "digitaloceanCloudControllerManager.name" -}}digitalocean-cloud-controller-manager{{- end }}

{{- /* What selects the pods: the upstream project's label, as it can never be changed in a Deployment, and the chart may be installed over one. */ -}}
{{- define "digitaloceanCloudControllerManager.selectorLabels" -}}
app: {{ include "digitaloceanCloudControllerManager.name" . }}
{{- end }}

{{- /* Refuses another namespace: the Leases, the Secret and the names are the upstream project's, and the others of our namespaces enforce the restricted standard. */ -}}
{{- define "digitaloceanCloudControllerManager.check" -}}
{{- if ne .Release.Namespace "kube-system" -}}
{{- fail (printf "digitaloceanCloudControllerManager is for the namespace kube-system, where its Leases and DigitalOcean's Secret are, and not for %s: make it a release of its own with --namespace kube-system" .Release.Namespace) -}}
{{- end -}}
{{- end }}

{{- define "digitaloceanCloudControllerManager.extraArgs" -}}
{{- include "mooring.extraArgs" (dict "path" "digitaloceanCloudControllerManager.extraArgs" "args" .extraArgs "own" (dict
  "mode" "set digitaloceanCloudControllerManager.mode"
  "token-file" "set digitaloceanCloudControllerManager.token"
  "require-cluster-tag" "set digitaloceanCloudControllerManager.requireClusterTag"
  "out-of-service-taint" "set digitaloceanCloudControllerManager.outOfService.enabled, which gives the rights that it needs"
  "out-of-service-grace-period" "set digitaloceanCloudControllerManager.outOfService.gracePeriod"
  "volume-startup-taint" "set digitaloceanCloudControllerManager.volumeStartupTaint, which gives the rights that it needs"
  "leader-elect" "there are several replicas, also while one is replaced"
  "leader-elect-resource-name" "the Role allows one Lease"
  "leader-elect-resource-namespace" "the Role allows the Lease in kube-system only"
  "leader-elect-resource-lock" "the Role allows Leases only"
  "secure-port" "the probes and the Service expect port 10258"
  "cloud-provider" "the program serves digitalocean only"
  "use-service-account-credentials" "the ClusterRole does not allow accounts to be made"
)) }}
{{- end }}

{{- /* Variables of the cluster, those that are set; then the extra ones, of which none may be one of these. */ -}}
{{- define "digitaloceanCloudControllerManager.env" -}}
{{- if eq .token.from "environment" }}
- name: DO_ACCESS_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .token.secret }}
      key: {{ .token.key }}
{{- end }}
{{- with .clusterID }}
- name: DO_CLUSTER_ID
  value: {{ . | quote }}
{{- end }}
{{- with .vpcID }}
- name: DO_CLUSTER_VPC_ID
  value: {{ . | quote }}
{{- end }}
{{- with .region }}
- name: REGION
  value: {{ . | quote }}
{{- end }}
{{- with .defaultLoadBalancerType }}
- name: DEFAULT_LB_TYPE
  value: {{ . }}
{{- end }}
{{- with .loadBalancerDefaults }}
- name: DO_LOAD_BALANCER_DEFAULTS
  value: {{ toYaml . | quote }}
{{- end }}
{{- with .apiRateLimitQPS }}
- name: DO_API_RATE_LIMIT_QPS
  value: {{ . | quote }}
{{- end }}
{{- with .firewall }}
{{- if ne (empty .name) (empty .tags) }}
{{- fail "digitaloceanCloudControllerManager.firewall: set name and tags to let a firewall be managed, or neither" }}
{{- end }}
{{- with .name }}
- name: PUBLIC_ACCESS_FIREWALL_NAME
  value: {{ . | quote }}
{{- end }}
{{- with .tags }}
- name: PUBLIC_ACCESS_FIREWALL_TAGS
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}
{{- with .nodeLabelsFromTags }}
{{- $pairs := list }}
{{- $labels := dict }}
{{- range $tag := keys . | sortAlpha }}
{{- $label := get $.nodeLabelsFromTags $tag }}
{{- if regexMatch "(^|\\.)(kubernetes|k8s)\\.io/" $label }}
{{- fail (printf "digitaloceanCloudControllerManager.nodeLabelsFromTags: label %s is Kubernetes' own: give one that is not under kubernetes.io or k8s.io" $label) }}
{{- end }}
{{- if hasKey $labels $label }}
{{- fail (printf "digitaloceanCloudControllerManager.nodeLabelsFromTags: label %s is made of two tags, %s and %s" $label (get $labels $label) $tag) }}
{{- end }}
{{- $_ := set $labels $label $tag }}
{{- $pairs = append $pairs (printf "%s=%s" $tag $label) }}
{{- end }}
- name: DO_NODE_LABELS_FROM_TAGS
  value: {{ join "," $pairs | quote }}
{{- end }}
{{- $own := dict
  "DO_ACCESS_TOKEN" "token"
  "DO_ACCESS_TOKEN_FILE" "token"
  "DO_CLUSTER_ID" "clusterID"
  "DO_CLUSTER_VPC_ID" "vpcID"
  "REGION" "region"
  "DEFAULT_LB_TYPE" "defaultLoadBalancerType"
  "DO_LOAD_BALANCER_DEFAULTS" "loadBalancerDefaults"
  "DO_API_RATE_LIMIT_QPS" "apiRateLimitQPS"
  "PUBLIC_ACCESS_FIREWALL_NAME" "firewall.name"
  "PUBLIC_ACCESS_FIREWALL_TAGS" "firewall.tags"
  "DO_NODE_LABELS_FROM_TAGS" "nodeLabelsFromTags"
-}}
{{- range .extraEnv }}
{{- if hasKey $own .name }}
{{- fail (printf "digitaloceanCloudControllerManager.extraEnv: %s is not for here: set digitaloceanCloudControllerManager.%s" .name (get $own .name)) }}
{{- end }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}
