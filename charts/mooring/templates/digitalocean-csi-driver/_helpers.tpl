{{- /*
SPDX-FileCopyrightText: The Mooring Authors
SPDX-License-Identifier: Apache-2.0

Parts of digitalocean-csi-driver.
*/ -}}

{{- /* Refuses another namespace: the names are csi-digitalocean's, and DigitalOcean's Secret is there. */ -}}
{{- define "digitaloceanCSIDriver.check" -}}
{{- if ne .Release.Namespace "kube-system" -}}
{{- fail (printf "digitaloceanCSIDriver is for the namespace kube-system, where its upstream project and DigitalOcean's Secret are, and not for %s: make it a release of its own with --namespace kube-system" .Release.Namespace) -}}
{{- end -}}
{{- end }}

{{- define "digitaloceanCSIDriver.extraArgs" -}}
{{- include "mooring.extraArgs" (dict "path" "digitaloceanCSIDriver.extraArgs" "args" .extraArgs "own" (dict
  "token" "set digitaloceanCSIDriver.token"
  "token-file" "set digitaloceanCSIDriver.token"
  "region" "set digitaloceanCSIDriver.region"
  "do-tag" "set digitaloceanCSIDriver.tag"
  "do-api-rate-limit" "set digitaloceanCSIDriver.apiRateLimitQPS"
  "volume-limit" "set digitaloceanCSIDriver.volumeLimit"
  "endpoint" "the sidecars expect the socket where it is"
  "driver-name" "the classes and PersistentVolumes have the name"
  "debug-addr" "the probes expect port 9910"
  "metrics-bind-address" "the container names port 9910"
)) }}
{{- end }}
