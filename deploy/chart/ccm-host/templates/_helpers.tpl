{{- define "ccm-host.name" -}}
{{ .Values.fullnameOverride | default .Release.Name }}
{{- end }}

{{- define "ccm-host.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{- /* The host's image: that of the values, else that of this version, by its digest if this chart is released. */}}
{{- define "ccm-host.hostImage" -}}
{{- $image := deepCopy .Values.image }}
{{- if not (or $image.tag $image.digest) }}{{ $_ := set $image "digest" (index .Chart.Annotations "cloudprovider.ccm/image-digest") }}{{ end }}
{{- include "ccm-host.image" (set $image "tag" ($image.tag | default .Chart.AppVersion)) }}
{{- end }}

{{- define "ccm-host.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "ccm-host.name" .) }}
{{- end }}

{{- define "ccm-host.selector" -}}
app.kubernetes.io/name: cloud-controller-manager{{ if .Values.shadow }}-shadow{{ end }}
app.kubernetes.io/instance: {{ include "ccm-host.name" . }}
{{- end }}

{{- define "ccm-host.labels" -}}
{{ include "ccm-host.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Name, labels and annotations of an object. */}}
{{- define "ccm-host.metadata" -}}
labels:
  {{- include "ccm-host.labels" . | nindent 2 }}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ccm-host.subjects" -}}
- kind: ServiceAccount
  name: {{ include "ccm-host.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- /* Who writes for the controllers of an account, by its name: the account itself, or the host. */}}
{{- define "ccm-host.writer" -}}
{{- if .own }}
- kind: ServiceAccount
  name: {{ .account }}
  namespace: kube-system
{{- else }}
{{- include "ccm-host.subjects" .root }}
{{- end }}
{{- end }}

{{- /* What these controllers write. */}}
{{- define "ccm-host.writes" -}}
{{- $lifecycle := has "cloud-node-lifecycle" . }}
{{- if or (has "cloud-node" .) $lifecycle (has "nodeipam" .) }}
# cloud-node: provider ID, labels, taints. cloud-node-lifecycle: the taint of an instance that is shut down. node-ipam: pod CIDRs.
- apiGroups: [""]
  resources: [nodes]
  verbs: [patch]
{{- end }}
{{- if $lifecycle }}
# cloud-node-lifecycle: nodes whose instance is gone.
- apiGroups: [""]
  resources: [nodes]
  verbs: [delete]
{{- end }}
{{- if or (has "cloud-node" .) $lifecycle (has "route" .) }}
# cloud-node: addresses. cloud-node-lifecycle: why a node stays. node-route: NetworkUnavailable.
- apiGroups: [""]
  resources: [nodes/status]
  verbs: [patch]
{{- end }}
{{- if has "service" . }}
# service-lb: Services are written through their status only: finalizer, status, a provider's annotations.
- apiGroups: [""]
  resources: [services/status]
  verbs: [patch]
{{- end }}
{{- end }}

{{- /* Where the sidecar of this name listens. An emptyDir is open to all, so the provider makes a folder in it that is not. */}}
{{- define "ccm-host.socket" -}}
unix:///run/cloudprovider/{{ . }}/private/ccm.sock
{{- end }}

{{- /* The user of a sidecar, if it is another one than the host's. */}}
{{- define "ccm-host.peers" -}}
{{- $own := (.Values.securityContext).runAsUser | default (.Values.podSecurityContext).runAsUser | int64 }}
{{- $peers := list }}
{{- range .Values.providers }}
{{- with (.securityContext).runAsUser }}
{{- if ne (int64 .) $own }}{{ $peers = append $peers (int64 . | toString) }}{{ end }}
{{- end }}
{{- end }}
{{- $peers | uniq | sortAlpha | join "," }}
{{- end }}

{{- /* Environment variables for whoever calls the apiserver, as JSON. */}}
{{- define "ccm-host.apiServer" -}}
{{- $env := list }}
{{- with .Values.apiServer.host }}{{ $env = append $env (dict "name" "KUBERNETES_SERVICE_HOST" "value" (toString .)) }}{{ end }}
{{- with .Values.apiServer.port }}{{ $env = append $env (dict "name" "KUBERNETES_SERVICE_PORT" "value" (int64 . | toString)) }}{{ end }}
{{- toJson $env }}
{{- end }}

{{- /* The ServiceAccount of a provider, and the Secret with its token. */}}
{{- define "ccm-host.account" -}}
{{ include "ccm-host.name" .root }}-{{ .provider }}
{{- end }}

{{- /* Rules that the values give; in shadow mode only what reads. */}}
{{- define "ccm-host.grantedRules" -}}
{{- $granted := list }}
{{- range .rules }}
{{- $verbs := .verbs }}
{{- if $.shadow }}
{{- $verbs = list }}
{{- range .verbs }}{{ if has . (list "get" "list" "watch") }}{{ $verbs = append $verbs . }}{{ end }}{{ end }}
{{- end }}
{{- if $verbs }}{{ $granted = append $granted (set (deepCopy .) "verbs" $verbs) }}{{ end }}
{{- end }}
{{- with $granted }}{{ toYaml . }}{{ end }}
{{- end }}

{{- /* The security of a sidecar: key by key its own, else the host's. No `merge`, which takes false for nothing said. */}}
{{- define "ccm-host.sidecarSecurity" -}}
{{- $security := deepCopy .host }}
{{- range $key, $value := .own }}{{ $_ := set $security $key $value }}{{ end }}
{{- toYaml $security }}
{{- end }}

{{- /* The host's flags by name, as JSON: those of the values, and extraArgs, which win. The rights are made from these as well. */}}
{{- define "ccm-host.flags" -}}
{{- $flags := dict
  "v" .Values.logVerbosity
  "logging-format" .Values.logFormat
  "secure-port" .Values.securePort
  "controllers" (join "," .Values.controllers)
  "cluster-name" .Values.cluster.name
  "configure-cloud-routes" (kindIs "invalid" .Values.routes.enabled | ternary true .Values.routes.enabled)
  "leader-elect" .Values.leaderElection.enabled
}}
{{- if .Values.nodeIpam.enabled }}
{{- $_ := set $flags "controllers" (printf "%s,nodeipam" $flags.controllers | trimPrefix ",") }}
{{- $_ := set $flags "allocate-node-cidrs" true }}
{{- end }}
{{- with .Values.sshKeys.secret }}
{{- $_ := set $flags "controllers" (printf "%s,ssh-keys" $flags.controllers | trimPrefix ",") }}
{{- $_ := set $flags "ssh-keys-secret" . }}
{{- end }}
{{- with .Values.webhooks }}{{ $_ := set $flags "webhooks" (join "," .) }}{{ end }}
{{- if or (get $flags "webhooks") (get .Values.extraArgs "webhooks") }}
{{- $_ := set $flags "webhook-secure-port" 10260 }}
{{- $_ := set $flags "webhook-certificate-secret" (printf "%s/%s-webhook" $.Release.Namespace (include "ccm-host.name" $)) }}
{{- $_ := set $flags "webhook-configuration" (include "ccm-host.name" $) }}
{{- end }}
{{- with .Values.cluster.cidrs }}{{ $_ := set $flags "cluster-cidr" (join "," .) }}{{ end }}
{{- if .Values.leaderElection.enabled }}
{{- $_ := set $flags "leader-elect-resource-name" .Values.leaderElection.resourceName }}
{{- $_ := set $flags "leader-elect-resource-namespace" .Values.leaderElection.resourceNamespace }}
{{- end }}
{{- if .Values.useServiceAccountCredentials }}{{ $_ := set $flags "use-service-account-credentials" true }}{{ end }}
{{- if not .Values.delegatedAuth.enabled }}{{ $_ := set $flags "authentication-skip-lookup" true }}{{ end }}
{{- with include "ccm-host.peers" . }}{{ $_ := set $flags "allowed-peer-uids" . }}{{ end }}
{{- $endpoints := list }}
{{- $tls := list }}
{{- range $name, $provider := .Values.providers }}
{{- if $provider.endpoint }}
{{- $endpoints = append $endpoints (printf "%s=%s" $name $provider.endpoint) }}
{{- $tls = append $tls (printf "%s=/run/cloudprovider-tls/%s" $name $name) }}
{{- else }}
{{- $endpoints = append $endpoints (printf "%s=%s" $name (include "ccm-host.socket" $name)) }}
{{- end }}
{{- end }}
{{- $_ := set $flags "provider" $endpoints }}
{{- with $tls }}{{ $_ := set $flags "provider-tls-dir" . }}{{ end }}
{{- range $name, $value := .Values.extraArgs }}{{ $_ := set $flags $name $value }}{{ end }}
{{- /* The flags of a host that acts may be among the values: one that only compares needs none of these. */}}
{{- if .Values.shadow }}
{{- $flags = omit $flags "use-service-account-credentials" "webhooks" "webhook-secure-port" "webhook-certificate-secret" "webhook-configuration" }}
{{- $_ := set $flags "shadow" true }}
{{- $_ := set $flags "leader-elect" false }}
{{- end }}
{{- toJson $flags }}
{{- end }}

{{- /* Fails for values that are well formed and cannot work: the host would not start, or would silently do without. */}}
{{- define "ccm-host.refusals" -}}
{{- $flags := include "ccm-host.flags" . | fromJson }}
{{- $controllers := include "ccm-host.controllers" . | fromJsonArray }}
{{- if hasKey .Values.extraArgs "shadow" }}
{{- fail "extraArgs.shadow leaves the rights to write, the election and the labels as they are: set shadow=true, or leave it out" }}
{{- end }}
{{- if and .Values.podDisruptionBudget.enabled (eq .Values.kind "DaemonSet") }}
{{- fail "podDisruptionBudget.enabled=true has no effect on a DaemonSet but to refuse evictions, and a drain leaves its pods alone: set kind=Deployment, or podDisruptionBudget.enabled=false" }}
{{- end }}
{{- $openPaths := get .Values.extraArgs "authorization-always-allow-paths" }}
{{- $open := kindIs "slice" $openPaths | ternary $openPaths (list $openPaths) | join "," | splitList "," }}
{{- if $openPaths }}
{{- range $probe, $path := dict "livenessProbe" "/livez" "readinessProbe" "/readyz" }}
{{- if and (index $.Values $probe).enabled (not (or (has $path $open) (has "/*" $open))) }}
{{- fail (printf "extraArgs.authorization-always-allow-paths without %s makes the %s ask the apiserver, and fail whenever that does not answer: add %s" $path $probe $path) }}
{{- end }}
{{- end }}
{{- end }}
{{- if not (or (eq (include "ccm-host.elects" $flags) "true") .Values.shadow) }}
{{- if or (eq .Values.kind "DaemonSet") (gt (int .Values.replicaCount) 1) (ne (.Values.updateStrategy.type | default "Recreate") "Recreate") .Values.updateStrategy.rollingUpdate }}
{{- fail "without leader election all replicas act at the same time: set kind=Deployment and replicaCount=1 and no updateStrategy but Recreate, or leaderElection.enabled=true" }}
{{- end }}
{{- end }}
{{- $rolling := .Values.updateStrategy.rollingUpdate | default dict }}
{{- $daemonSet := eq .Values.kind "DaemonSet" }}
{{- $surge := get $rolling "maxSurge" | toString | default ($daemonSet | ternary "0" "25%") }}
{{- $away := get $rolling "maxUnavailable" | toString | default ($daemonSet | ternary "1" "25%") }}
{{- if hasSuffix "%" $away }}{{ $away = div (mul (trimSuffix "%" $away | int) (.Values.replicaCount | int)) 100 }}{{ end }}
{{- $rolls := or $rolling (eq (.Values.updateStrategy.type | default "") "RollingUpdate") }}
{{- $waits := and (not (has $surge (list "0" "0%"))) (or $daemonSet (eq (int $away) 0)) }}
{{- if and .Values.hostNetwork $rolls $waits (not .Values.shadow) }}
{{- fail "updateStrategy waits for ever: two pods on one node would want one port, so a new one starts only where an old one has ended: set updateStrategy.rollingUpdate to {maxSurge: 0, maxUnavailable: 1} or more, or leave updateStrategy out" }}
{{- end }}
{{- if and .Values.podDisruptionBudget.enabled (has (.Values.podDisruptionBudget.maxUnavailable | toString) (list "0" "0%")) }}
{{- fail "podDisruptionBudget.maxUnavailable=0 lets no drain of a node end: set 1 or more" }}
{{- end }}
{{- range $family := list "IPv4" "IPv6" }}
{{- $its := 0 }}
{{- $cidrs := get $flags "cluster-cidr" | toString }}
{{- range splitList "," $cidrs }}{{ if and . (eq (contains ":" .) (eq $family "IPv6")) }}{{ $its = add $its 1 }}{{ end }}{{ end }}
{{- if gt (int $its) 1 }}
{{- fail (printf "cluster.cidrs has two networks of %s: %s" $family $cidrs) }}
{{- end }}
{{- end }}
{{- $monitored := or .Values.metrics.service.enabled .Values.metrics.serviceMonitor.enabled }}
{{- if and $monitored (not .Values.delegatedAuth.enabled) (not (or (has "/metrics" $open) (has "/*" $open))) }}
{{- fail "metrics cannot be read with delegatedAuth.enabled=false, which leaves nobody whom the host would believe: set delegatedAuth.enabled=true" }}
{{- end }}
{{- if and $monitored (not (get $flags "secure-port" | int)) }}
{{- fail "metrics are served at a port that is known beforehand: set securePort" }}
{{- end }}
{{- if and (get $flags "webhooks") (not (get $flags "webhook-secure-port" | int)) }}
{{- fail "webhooks are served at a port that is known beforehand: set extraArgs.webhook-secure-port, or leave it out" }}
{{- end }}
{{- $noCidrs := empty (get $flags "cluster-cidr") }}
{{- if and .Values.routes.enabled $noCidrs }}
{{- fail "routes.enabled=true has no effect without the networks of the pods: set cluster.cidrs" }}
{{- end }}
{{- if and (has "nodeipam" $controllers) $noCidrs (ne (get $flags "cidr-allocator-type" | toString) "CloudAllocator") }}
{{- fail "nodeIpam.enabled=true has nothing to allocate from: set cluster.cidrs, or extraArgs.cidr-allocator-type=CloudAllocator for a provider that allocates pod CIDRs" }}
{{- end }}
{{- $webhook := "persistent-volume-label" }}
{{- $names := list $webhook (printf "%s-controller" $webhook) }}
{{- $named := eq (include "ccm-host.turnsOn" (dict "list" (get $flags "webhooks" | default list) "names" $names "optIn" true)) "true" }}
{{- if and $named (not .Values.shadow) (not (has $webhook $controllers)) }}
{{- fail "webhooks has persistent-volume-label, which does nothing without its controller: add persistent-volume-label to controllers" }}
{{- end }}
{{- end }}

{{- define "ccm-host.args" -}}
{{- range $name, $value := include "ccm-host.flags" . | fromJson }}
{{- range $one := kindIs "slice" $value | ternary $value (list $value) }}
{{- /* JSON knows no whole numbers, and a large one would be written as 1e+06. */}}
{{- if and (kindIs "float64" $one) (eq (toString $one | float64) (floor $one)) }}{{ $one = int64 $one }}{{ end }}
- {{ printf "--%s=%v" $name $one | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* "true" unless these flags turn leader election off, in any spelling that the host reads. */}}
{{- define "ccm-host.elects" -}}
{{- ne (include "ccm-host.isOff" (get . "leader-elect")) "true" }}
{{- end }}

{{- /* "true" if this flag turns something on, in any spelling that the host reads. */}}
{{- define "ccm-host.isOn" -}}
{{- has (toString . | lower) (list "true" "t" "1") }}
{{- end }}

{{- define "ccm-host.isOff" -}}
{{- has (toString . | lower) (list "false" "f" "0") }}
{{- end }}

{{- /* "true" if this list, in the syntax of --controllers, turns on what has these names: the first item that names it decides, else "*", unless it is `optIn`. */}}
{{- define "ccm-host.turnsOn" -}}
{{- $items := kindIs "slice" .list | ternary .list (list .list) | join "," | splitList "," }}
{{- $on := and (has "*" $items) (not .optIn) }}
{{- $decided := false }}
{{- $names := .names }}
{{- range $item := $items }}
{{- if and (not $decided) (has (trimPrefix "-" (trim $item)) $names) }}
{{- $decided = true }}
{{- $on = not (hasPrefix "-" (trim $item)) }}
{{- end }}
{{- end }}
{{- $on }}
{{- end }}

{{- /* The controllers that these flags turn on, by their short names. */}}
{{- define "ccm-host.controllers" -}}
{{- $flags := include "ccm-host.flags" . | fromJson }}
{{- $list := get $flags "controllers" }}
{{- $aliases := dict
  "cloud-node" (list "cloud-node" "cloud-node-controller")
  "cloud-node-lifecycle" (list "cloud-node-lifecycle" "cloud-node-lifecycle-controller")
  "service" (list "service" "service-lb-controller" "service-controller")
  "nodeipam" (list "nodeipam" "node-ipam-controller")
  "route" (list "route" "node-route-controller" "route-controller")
  "ssh-keys" (list "ssh-keys" "ssh-keys-controller")
  "kubelet-serving-csr" (list "kubelet-serving-csr" "kubelet-serving-csr-controller")
  "persistent-volume-label" (list "persistent-volume-label" "persistent-volume-label-controller")
}}
{{- $enabled := list }}
{{- range $name, $names := $aliases }}
{{- $optIn := has $name (list "nodeipam" "ssh-keys" "kubelet-serving-csr" "persistent-volume-label") }}
{{- if eq (include "ccm-host.turnsOn" (dict "list" $list "names" $names "optIn" $optIn)) "true" }}{{ $enabled = append $enabled $name }}{{ end }}
{{- end }}
{{- if ne (include "ccm-host.isOn" (get $flags "allocate-node-cidrs")) "true" }}{{ $enabled = without $enabled "nodeipam" }}{{ end }}
{{- if not (get $flags "ssh-keys-secret") }}{{ $enabled = without $enabled "ssh-keys" }}{{ end }}
{{- if or (eq (include "ccm-host.isOff" (get $flags "configure-cloud-routes")) "true") (empty (get $flags "cluster-cidr")) }}
{{- $enabled = without $enabled "route" }}
{{- end }}
{{- toJson $enabled }}
{{- end }}
