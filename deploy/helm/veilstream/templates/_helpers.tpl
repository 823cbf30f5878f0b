{{- define "veilstream.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* 52 characters: the controller adds its own to the names of pods and revisions, and 63 is the end of a label. */}}
{{- define "veilstream.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "veilstream.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "veilstream.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "veilstream.selector" -}}
app.kubernetes.io/name: {{ include "veilstream.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "veilstream.labels" -}}
{{ include "veilstream.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "veilstream.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "veilstream.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "veilstream.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "veilstream.tokenSecret" -}}
{{- .Values.http.token.existingSecret | default (printf "%s-http" (include "veilstream.fullname" .)) -}}
{{- end -}}

{{/* The pipeline of the values, with what belongs to the pod. */}}
{{- define "veilstream.pipeline" -}}
{{- $pipeline := deepCopy .Values.pipeline -}}
{{- $source := $pipeline.source.kafka -}}
{{- $sink := $pipeline.sink.kafka -}}
{{- $id := $sink.transactional_id | default (printf "%s.${INSTANCE}" .Release.Namespace) -}}
{{- if not (contains "${INSTANCE}" $id) -}}
{{- fail "pipeline.sink.kafka.transactional_id must contain ${INSTANCE}: pods with one id stop each other" -}}
{{- end -}}
{{- $_ := set $sink "transactional_id" $id -}}
{{- $properties := $source.properties | default dict -}}
{{- $session := trimSuffix "s" .Values.sessionTimeout | atoi | mul 1000 | toString -}}
{{- $ours := dict "client.id" "${INSTANCE}" -}}
{{- /* By the new group protocol the brokers decide. */ -}}
{{- if ne (default "range" $source.rebalance) "consumer" -}}{{- $_ := set $ours "session.timeout.ms" $session -}}{{- end -}}
{{- if eq .Values.membership "static" -}}{{- $_ := set $ours "group.instance.id" "${INSTANCE}" -}}{{- end -}}
{{- $_ := set $source "properties" (merge (dict) $properties $ours) -}}
{{- $token := printf "${file:/run/secrets/veilstream/%s}" .Values.http.token.key -}}
{{- $_ := set $pipeline "http" (dict "listen" (printf "%s:%v" .Values.http.listen .Values.http.port) "token" $token) -}}
{{- toYaml $pipeline -}}
{{- end -}}
