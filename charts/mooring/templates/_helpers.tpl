{{- /*
SPDX-FileCopyrightText: The Mooring Authors
SPDX-License-Identifier: Apache-2.0

What all components share. Each has a folder alongside this file and a key in values.yaml. Objects have the component's name rather than the
release's: a second release in the same cluster is then refused by Helm, instead of a second controller working on the same data.
*/ -}}

{{- /* mooring.selectorLabels NAME: what selects a component's pods, the same as in config/. It can never be changed in a Deployment. */ -}}
{{- define "mooring.selectorLabels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: mooring
{{- end }}

{{- /* mooring.labels (dict "root" $ "name" NAME): the labels of every object of a component. */ -}}
{{- define "mooring.labels" -}}
{{ include "mooring.selectorLabels" .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* mooring.image (dict "root" $ "image" VALUES): by digest if there is one, otherwise by tag; with the registry of all, unless it names its own. */ -}}
{{- define "mooring.image" -}}
{{- $repository := .image.repository }}
{{- if not (contains "/" $repository) }}{{ $repository = printf "%s/%s" .root.Values.global.imageRegistry $repository }}{{ end }}
{{- with .image -}}
{{- if .digest }}{{ $repository }}@{{ .digest }}{{ else }}{{ $repository }}:{{ .tag | default $.root.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* mooring.pullSecrets $: the names of the Secrets with which images are pulled, each once, with a comma between them. */ -}}
{{- define "mooring.pullSecrets" -}}
{{- $names := list }}
{{- range concat (.Values.imagePullSecrets | default list) (((.Values.global).imagePullSecrets) | default list) }}{{ $names = append $names .name }}{{ end }}
{{- $names | uniq | join "," }}
{{- end }}

{{- /* mooring.podSecurityContext and mooring.securityContext: the restricted Pod Security Standard. Not values: nothing of ours needs more. */ -}}
{{- define "mooring.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "mooring.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* mooring.spread (dict "name" NAME "alone" BOOL): pods of a component on different machines (unless none shares one anyway) and zones, as far as there are any. */ -}}
{{- define "mooring.spread" -}}
{{- $name := .name }}
{{- range .alone | ternary (list "topology.kubernetes.io/zone") (list "kubernetes.io/hostname" "topology.kubernetes.io/zone") }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      app.kubernetes.io/name: {{ $name }}
{{- end }}
{{- end }}

{{- /* mooring.spreadOf (dict "name" NAME "values" VALUES "alone" BOOL): the pods' spread that the values name, or the chart's own. */ -}}
{{- define "mooring.spreadOf" -}}
{{- with .values.topologySpreadConstraints }}{{ toYaml . }}{{ else }}{{ include "mooring.spread" (dict "name" .name "alone" (.alone | default false)) }}{{ end }}
{{- end }}

{{- /* mooring.logLevel VALUES: the flag -v, where there is one to set. */ -}}
{{- define "mooring.logLevel" -}}
{{- with .logLevel }}- -v={{ int . }}{{ end }}
{{- end }}

{{- /* mooring.serviceAccount (dict "root" $ "name" NAME "labels" NAME "values" VALUES): the account that RBAC and policies name, which is why its name is not a value. */ -}}
{{- define "mooring.serviceAccount" -}}
{{- if (.values.serviceAccount).create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "mooring.labels" (dict "root" .root "name" .labels) | nindent 4 }}
  {{- with .values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# The Deployment asks for the token where it is used; other pods with this account get none.
automountServiceAccountToken: false
{{- end }}
{{- end }}

{{- /* mooring.podDisruptionBudget (dict "root" $ "name" NAME "selector" LABELS "values" VALUES) */ -}}
{{- define "mooring.podDisruptionBudget" -}}
{{- if not .values.podDisruptionBudget }}
{{- fail (printf "podDisruptionBudget of %s is missing: these are the values of an earlier version of the chart: use --reset-then-reuse-values instead of --reuse-values" .name) }}
{{- end }}
{{- if .values.podDisruptionBudget.enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "mooring.labels" (dict "root" .root "name" .name) | nindent 4 }}
spec:
  maxUnavailable: {{ .values.podDisruptionBudget.maxUnavailable }}
  # A pod that is not ready helps nobody; it must not keep a machine from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- .selector | nindent 6 }}
{{- end }}
{{- end }}

{{- /*
mooring.extraArgs (dict "path" PATH "args" LIST "own" DICT): further flags, and a refusal of those that have a value of their own or that the
chart depends on, with the sentence that own gives: of two contradicting ones the later would win in silence.
*/ -}}
{{- define "mooring.extraArgs" -}}
{{- range .args }}
{{- $flag := splitList "=" . | first | trimPrefix "-" | trimPrefix "-" }}
{{- with get $.own $flag }}{{ fail (printf "%s: --%s is not for here: %s" $.path $flag .) }}{{ end }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- /* mooring.egress (dict "cidrs" LIST "ports" LIST): an egress rule over TCP, to anywhere if there are no networks. */ -}}
{{- define "mooring.egress" -}}
- ports:
    {{- range .ports }}
    - protocol: TCP
      port: {{ . }}
    {{- end }}
  {{- with .cidrs }}
  to:
    {{- range . }}
    - ipBlock:
        cidr: {{ . }}
    {{- end }}
  {{- end }}
{{- end }}
