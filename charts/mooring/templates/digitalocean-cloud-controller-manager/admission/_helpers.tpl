{{- /*
SPDX-FileCopyrightText: The Mooring Authors
SPDX-License-Identifier: Apache-2.0

Parts of the admission server. Each takes the values of digitaloceanCloudControllerManager.
*/ -}}

{{- define "digitaloceanAdmission.name" -}}digitalocean-cloud-controller-manager-admission-server{{- end }}

{{- /* What selects the pods: the upstream project's label, as it can never be changed in a Deployment. */ -}}
{{- define "digitaloceanAdmission.selectorLabels" -}}
app: {{ include "digitaloceanAdmission.name" . }}
{{- end }}

{{- define "digitaloceanAdmission.certificateSecret" -}}
{{- .admission.server.certificates.secret | default (printf "%s-serving-certs" (include "digitaloceanAdmission.name" .)) }}
{{- end }}

{{- /* Refuses what contradicts itself: the webhook's authority comes from one place. */ -}}
{{- define "digitaloceanAdmission.check" -}}
{{- with .admission.server.certificates -}}
{{- if and .certManager .caBundle -}}
{{- fail "digitaloceanCloudControllerManager.admission.server.certificates: caBundle is written by cert-manager: set one of certManager and caBundle" -}}
{{- end -}}
{{- if and (not .certManager) (not .caBundle) -}}
{{- fail "digitaloceanCloudControllerManager.admission.server.certificates: set certManager, or caBundle to the authority (PEM) of the certificate in the Secret: without it the API server cannot ask" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "digitaloceanAdmission.extraArgs" -}}
{{- include "mooring.extraArgs" (dict "path" "digitaloceanCloudControllerManager.admission.server.extraArgs" "args" .admission.server.extraArgs "own" (dict
  "ask-digitalocean" "set digitaloceanCloudControllerManager.admission.server.askDigitalOcean"
  "token-file" "set digitaloceanCloudControllerManager.token"
  "cert-dir" "the Secret is mounted there"
  "webhook-bind-address" "the Service expects port 9443"
  "health-probe-bind-address" "the probes expect port 8081"
  "metrics-bind-address" "the Service expects port 8080"
)) }}
{{- end }}

{{- define "digitaloceanAdmission.env" -}}
{{- if and .admission.server.askDigitalOcean (eq .token.from "environment") }}
- name: DO_ACCESS_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .token.secret }}
      key: {{ .token.key }}
      # Without a token it judges by itself and does not ask DigitalOcean.
      optional: true
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
{{- range .admission.server.extraEnv }}
{{- if has .name (list "DO_ACCESS_TOKEN" "DO_ACCESS_TOKEN_FILE" "DO_CLUSTER_ID" "DO_CLUSTER_VPC_ID" "REGION" "DEFAULT_LB_TYPE" "DO_LOAD_BALANCER_DEFAULTS") }}
{{- fail (printf "digitaloceanCloudControllerManager.admission.server.extraEnv: %s is not for here: it is the cloud controller manager's value" .name) }}
{{- end }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}
