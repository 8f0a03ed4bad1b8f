{{- define "cw.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "cw.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "cw.labels" -}}
{{ include "cw.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* What drivers rest on stays when the operator is uninstalled: running ones finish their work. */}}
{{- define "cw.keep" -}}
helm.sh/resource-policy: keep
{{- end -}}

{{/*
Those of watch.namespaces that objects can be made in, as JSON. One that is being deleted takes no new objects, one that is missing
and that this chart does not make takes none at all, and one object that is refused would end the whole installation.
Without a cluster to ask (helm template), each counts as one that takes them.
*/}}
{{- define "cw.preparedNamespaces" -}}
{{- $prepared := list -}}
{{- $asks := lookup "v1" "Namespace" "" "default" -}}
{{- range .Values.watch.namespaces -}}
{{- $there := lookup "v1" "Namespace" "" . -}}
{{- $isMissing := and $asks (not $there) (not $.Values.workloads.createNamespaces) -}}
{{- if not (or $isMissing (dig "metadata" "deletionTimestamp" "" $there)) -}}{{- $prepared = append $prepared . -}}{{- end -}}
{{- end -}}
{{- $prepared | toJson -}}
{{- end -}}

{{- define "cw.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "cw.fullname" .) -}}
{{- else -}}
{{- required "serviceAccount.create is false: give serviceAccount.name" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* An image's reference, of (list image-values chart name-of-these-values image). */}}
{{- define "cw.image" -}}
{{- $image := index . 0 -}}
{{- $chart := index . 1 -}}
{{- $missing := printf "%[1]s.repository is empty: no registry has this project's images. Push the image to a registry of yours, and give its name: --set %[1]s.repository=registry.example.com/checkpointed-writes/%[2]s" (index . 2) (index . 3) -}}
{{- $repository := required $missing $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository ($image.tag | default $chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "cw.settingsSecretName" -}}
{{- .Values.settings.existingSecret | default (printf "%s-settings" (include "cw.fullname" .)) -}}
{{- end -}}

{{- define "cw.recordKeysSecretName" -}}
{{- .Values.recordKeys.existingSecret | default (printf "%s-record-keys" (include "cw.fullname" .)) -}}
{{- end -}}

{{- define "cw.storageSecretName" -}}
{{- if .Values.workloads.storageSecretName -}}
{{- .Values.workloads.storageSecretName -}}
{{- else if or .Values.workloads.storage .Values.workloads.kafka -}}
checkpointed-write-storage
{{- end -}}
{{- end -}}

{{/* Whether one namespace alone is watched: what names no namespaces is its. */}}
{{- define "cw.isOnly" -}}
{{- if and (not .Values.watch.allNamespaces) (eq (len .Values.watch.namespaces) 1) -}}true{{- end -}}
{{- end -}}

{{/* The settings that a namespace's drivers get, as JSON, of (list root namespace). */}}
{{- define "cw.storageOf" -}}
{{- $root := index . 0 -}}
{{- $namespace := index . 1 -}}
{{- $settings := dict "storage" (include "cw.granted" (list $root $namespace $root.Values.workloads.storage) | fromJsonArray) -}}
{{- with $root.Values.workloads.kafka -}}
{{- $_ := set $settings "kafka" (include "cw.granted" (list $root $namespace .) | fromJsonArray) -}}
{{- end -}}
{{- $settings | toJson -}}
{{- end -}}

{{/* Those of some entries that are granted to a namespace, as JSON, of (list root namespace entries). */}}
{{- define "cw.granted" -}}
{{- $root := index . 0 -}}
{{- $namespace := index . 1 -}}
{{- $granted := list -}}
{{- range index . 2 -}}
{{- $isGranted := and (not .namespaces) (include "cw.isOnly" $root) -}}
{{- range .namespaces -}}
{{- if regexMatch (printf "^%s$" (replace "*" ".*" .)) $namespace -}}{{- $isGranted = true -}}{{- end -}}
{{- end -}}
{{- if $isGranted -}}{{- $granted = append $granted (omit . "namespaces" "overwrites") -}}{{- end -}}
{{- end -}}
{{- $granted | toJson -}}
{{- end -}}

{{/* Several namespaces are watched: what names none of them would be nobody's. */}}
{{- define "cw.refuseUngranted" -}}
{{- if not (include "cw.isOnly" .) -}}
{{- range concat .Values.settings.storage .Values.workloads.storage -}}
{{- if not .namespaces -}}
{{- fail (printf "storage entry %s: several namespaces are watched; name those that may use it, e.g. namespaces: [team-a, etl-*]" .prefix) -}}
{{- end -}}
{{- end -}}
{{- range .Values.workloads.kafka -}}
{{- if not .namespaces -}}
{{- fail (printf "workloads.kafka, the entry of %s: several namespaces are watched; name those that may use it, e.g. namespaces: [team-a, etl-*]" (join "," .bootstrap_servers)) -}}
{{- end -}}
{{- end -}}
{{- range $kind := list "catalogs" "namespaces" -}}
{{- range $name, $entry := get $.Values.settings $kind -}}
{{- if not $entry.grants -}}
{{- fail (printf "settings.%s.%s: several namespaces are watched; name those that may use it, e.g. grants: [{namespaces: [team-a], tables: [\"sales.*\"]}]" $kind $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The operator's configuration file; operator/checkpoint_operator/config.py reads it. */}}
{{- define "cw.config" -}}
{{- if .Values.watch.allNamespaces -}}
allNamespaces: true
{{- else if .Values.watch.namespaces -}}
namespaces: {{ .Values.watch.namespaces | toJson }}
{{- else -}}
{{- fail "watch.namespaces: name a namespace, or say watch.allNamespaces: true" -}}
{{- end }}
workloads:
  image: {{ include "cw.image" (list .Values.workloads.image .Chart "workloads.image" "spark") | quote }}
  imagePullPolicy: {{ .Values.workloads.image.pullPolicy }}
  serviceAccountName: {{ .Values.workloads.serviceAccount.name }}
  {{- with include "cw.storageSecretName" . }}
  storageSecretName: {{ . }}
  {{- end }}
  allowed: {{ .Values.workloads.allowed | toJson }}
ownNamespace: {{ .Release.Namespace }}
{{- with .Values.clusterName }}
clusterName: {{ . }}
{{- end }}
recordKeys:
  secretName: {{ include "cw.recordKeysSecretName" . }}
  renewAfterDays: {{ .Values.recordKeys.renewAfterDays | int }}
  acceptUnsigned: {{ .Values.recordKeys.acceptUnsigned }}
commitWorkers: {{ .Values.commitWorkers | int }}
recordMemory: {{ .Values.recordMemory }}
writesMemoryPerNamespace: {{ .Values.writesMemoryPerNamespace }}
driversPerNamespace: {{ .Values.driversPerNamespace | int }}
verify: {{ .Values.verify }}
allowLocalPaths: {{ .Values.allowLocalPaths }}
retentionDays: {{ .Values.retentionDays | int }}
resyncSeconds: {{ .Values.resyncSeconds | int }}
healthPort: 8080
metricsPort: 9090
logLevel: {{ .Values.logLevel }}
{{- end -}}

{{- define "cw.settings" -}}
{{- pick .Values.settings "catalogs" "namespaces" "storage" | toYaml -}}
{{- end -}}

{{/* The rest is shared by the operator's pod and the one of `helm test`. */}}
{{- define "cw.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "cw.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "cw.arguments" -}}
- --config
- /etc/checkpointed-writes/operator.yaml
- --settings
- /etc/checkpointed-writes/settings/settings.yaml
{{- end -}}

{{- define "cw.volumeMounts" -}}
- name: configuration
  mountPath: /etc/checkpointed-writes
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "cw.volumes" -}}
- name: configuration
  projected:
    defaultMode: 0440
    sources:
      - configMap:
          name: {{ include "cw.fullname" . }}
          items: [{key: operator.yaml, path: operator.yaml}]
      - secret:
          name: {{ include "cw.settingsSecretName" . }}
          items: [{key: settings.yaml, path: settings/settings.yaml}]
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
