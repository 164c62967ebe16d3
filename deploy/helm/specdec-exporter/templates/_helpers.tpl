{{- define "specdec.name" -}}
{{- contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "specdec.namespace" -}}
{{- .Values.namespace | default .Release.Namespace -}}
{{- end -}}

{{- /* The labels of the part `component`, with the rest of its own. */ -}}
{{- define "specdec.labels" -}}
{{- $own := dict
  "app.kubernetes.io/name" .root.Chart.Name
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "app.kubernetes.io/component" .component
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_"))
-}}
{{- merge $own (.more | default dict) .root.Values.labels | toYaml -}}
{{- end -}}

{{- define "specdec.metadata" -}}
name: {{ .name }}
namespace: {{ .namespace | default (include "specdec.namespace" .root) }}
labels:
  {{- include "specdec.labels" . | nindent 2 }}
{{- end -}}

{{- /* A text as it stands within the quotes of JSON. */ -}}
{{- define "specdec.escaped" -}}
{{- $quoted := toJson . -}}
{{- substr 1 (sub (len $quoted) 1 | int) $quoted -}}
{{- end -}}

{{- /* JSON with the values in place of their markers. tools/chartfiles.py says what the markers mean. */ -}}
{{- define "specdec.filled" -}}
{{- $text := .text -}}
{{- range $name, $value := .root.Values.thresholds -}}
{{- $number := float64 $value -}}
{{- $text = $text | replace (printf "@@%s@@" $name) (printf "%.10g" $number) -}}
{{- $text = $text | replace (printf "@@100*%s@@" $name) (printf "%.10g" (mulf 100 $number)) -}}
{{- $text = $text | replace (printf "@@1-%s@@" $name) (printf "%.10g" (subf 1 $number)) -}}
{{- $text = $text | replace (printf "@@2*%s@@" $name) (printf "%.10g" (mulf 2 $number)) -}}
{{- end -}}
{{- /* An empty matcher is left out, with its comma or its braces. */ -}}
{{- $matchers := dict "@@selector@@" .root.Values.selector "inference_service!~\\\"@@scaleToZeroServices@@\\\"" "" -}}
{{- with .root.Values.scaleToZeroServices -}}
{{- $text = replace "@@scaleToZeroServices@@" (include "specdec.escaped" .) $text -}}
{{- end -}}
{{- range $marker, $matcher := $matchers -}}
{{- if not $matcher -}}
{{- $text = $text | replace (printf "{%s}" $marker) "" | replace (printf "%s, " $marker) "" | replace (printf ", %s" $marker) "" -}}
{{- end -}}
{{- end -}}
{{- range $name := list "selector" "grafanaURL" "runbookURL" "controlServices" "revisionLabel" "vllmServiceLabel" -}}
{{- $text = replace (printf "@@%s@@" $name) (include "specdec.escaped" (get $.root.Values $name)) $text -}}
{{- end -}}
{{- range $name := list "secretName" "slackChannel" "emailTo" "emailFrom" "emailSmarthost" "emailUsername" "webhookURL" -}}
{{- $text = replace (printf "@@%s@@" $name) (include "specdec.escaped" (get $.root.Values.alertmanagerConfig $name)) $text -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{- /* One of the files, parsed and filled, as JSON. */ -}}
{{- define "specdec.file" -}}
{{- $object := .root.Files.Get .file | fromYaml -}}
{{- with $object.Error -}}{{- fail (printf "%s: %s" $.file .) -}}{{- end -}}
{{- include "specdec.filled" (dict "root" .root "text" (toJson $object)) -}}
{{- end -}}

{{- define "specdec.image" -}}
{{- with .Values.exporter.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "specdec.account" -}}
{{- with .Values.exporter.serviceAccount -}}
{{- .name | default (.create | ternary (include "specdec.name" $) "default") -}}
{{- end -}}
{{- end -}}

{{- /* What selects the pods of the standalone exporter. */ -}}
{{- define "specdec.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: exporter
{{- end -}}
