{{- define "ratelimitd.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ratelimitd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
{{ include "ratelimitd.selector" . }}
{{- end -}}

{{- /* What instances have, and the pods of the migration do not. */ -}}
{{- define "ratelimitd.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "ratelimitd.secretName" -}}
{{- required "secretName is needed: the Secret with hash.key, peers.secret and callers.yaml, which the chart's README shows how to make" .Values.secretName -}}
{{- end -}}

{{- define "ratelimitd.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}

{{- define "ratelimitd.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "ratelimitd.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* How Cassandra is reached: of instances and of the migration. */ -}}
{{- define "ratelimitd.cassandra" -}}
{{- with .Values.cassandra -}}
- name: RATELIMITD_CASSANDRA_HOSTS
  value: {{ required "cassandra.hosts is needed: some nodes, such as {10.0.0.1,10.0.0.2}" (join "," .hosts) | quote }}
- name: RATELIMITD_CASSANDRA_KEYSPACE
  value: {{ .keyspace | quote }}
{{- with .datacenter }}
- name: RATELIMITD_CASSANDRA_DATACENTER
  value: {{ . | quote }}
{{- end }}
{{- with .replication }}
- name: RATELIMITD_CASSANDRA_REPLICATION
  value: {{ . | quote }}
{{- end }}
{{- if .username }}
- name: RATELIMITD_CASSANDRA_USERNAME
  value: {{ .username | quote }}
- name: RATELIMITD_CASSANDRA_PASSWORD_FILE
  value: /etc/ratelimitd/secret/cassandra-password
{{- end }}
{{- if and (or .caKey .certKey .privateKeyKey) (not .tls) }}
{{- fail "cassandra.caKey, certKey and privateKeyKey are of TLS: set cassandra.tls to true" }}
{{- end }}
{{- if ne (empty .certKey) (empty .privateKeyKey) }}
{{- fail "cassandra.certKey and cassandra.privateKeyKey belong together: set both, or none" }}
{{- end }}
{{- if .tls }}
- name: RATELIMITD_CASSANDRA_TLS
  value: "true"
{{- range $variable, $key := dict "CA" .caKey "CERT" .certKey "KEY" .privateKeyKey }}
{{- with $key }}
- name: RATELIMITD_CASSANDRA_TLS_{{ $variable }}
  value: {{ printf "/etc/ratelimitd/secret/%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* A setting of any flag, from its name and value. */ -}}
{{- define "ratelimitd.setting" -}}
- name: RATELIMITD_{{ .flag | replace "-" "_" | upper }}
  value: {{ kindIs "float64" .value | ternary (.value | int64) .value | toString | quote }}
{{- end -}}

{{- /* Environment variables that are no flags. */ -}}
{{- define "ratelimitd.env" -}}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- /* Where pods run, and what they may read: of instances and of the migration. */ -}}
{{- define "ratelimitd.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # else RATELIMITD_PORT and the like of the Service are taken for settings
securityContext: {{- include "ratelimitd.podSecurityContext" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "ratelimitd.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "ratelimitd.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- /* Names under which callers ask for the Service, where nobody is asked who they are. */ -}}
{{- define "ratelimitd.allowedHosts" -}}
{{- $name := include "ratelimitd.fullname" . -}}
{{- $space := printf "%s.%s" $name .Release.Namespace -}}
{{- list $name $space (printf "%s.svc" $space) (printf "%s.svc.cluster.local" $space) | join "," -}}
{{- end -}}

{{- define "ratelimitd.podIP" -}}
{{- if eq .Values.ipFamily "IPv6" }}[$(POD_IP)]{{ else }}$(POD_IP){{ end -}}
{{- end -}}
