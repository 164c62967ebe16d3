# Linters of the field, built from the Go modules that tools/*/go.mod pin (tools/README.md says why each).
# A stamp is named by what its tools were built from: builds are kept, also from a restored cache, until a pin changes.

GO ?= go
go_build = $(GO) -C tools/$(1) build -mod=readonly -trimpath -buildvcs=false -p 2 -ldflags='-s -w'
# pin: the module's folder, and the stamp's name if it is another one.
pin = $(TOOLS)/go/$(or $(2),$(1))-$(shell cat make/tools.mk $(wildcard tools/$(1)/*.go) tools/$(1)/go.mod tools/$(1)/go.sum | cksum | cut -d' ' -f1)
stamp = @mkdir -p $(@D) && rm -f $(@D)/$(1)-* && touch $@

PROMETHEUS_TOOLS := $(call pin,prometheus)
THANOS_TOOLS := $(call pin,thanos)
MIMIR_TOOLS := $(call pin,mimir)
JSONNET_TOOLS := $(call pin,jsonnet)
ALERTMANAGER_TOOLS := $(call pin,alertmanager)
OPERATOR_SCHEMAS := $(call pin,operator)
PINT_TOOLS := $(call pin,pint)
KUSTOMIZE_TOOLS := $(call pin,kustomize)
GRAFANA_TOOLS := $(call pin,grafana)
KSERVE_SCHEMAS := $(call pin,kserve)
HELM_TOOLS := $(call pin,helm)
ALLOY_TOOLS := $(call pin,alloy)
OTELCOL_TOOLS := $(call pin,otelcol)

.PHONY: tools nightly-tools
tools: $(PROMETHEUS_TOOLS) $(ALERTMANAGER_TOOLS) $(PINT_TOOLS) $(JSONNET_TOOLS) $(KUSTOMIZE_TOOLS) $(ALLOY_TOOLS) $(OPERATOR_SCHEMAS) $(KSERVE_SCHEMAS) ## Build the pinned Go linters into .tools/bin; needs Go

# 15 minutes of one core.
nightly-tools: tools $(THANOS_TOOLS) $(MIMIR_TOOLS) $(GRAFANA_TOOLS) $(HELM_TOOLS) $(OTELCOL_TOOLS) ## Also those that only `make ci-nightly` runs
test-nightly: nightly-tools

# All service discoveries together are half of the build, and nothing here discovers. The web UI is not in the module.
$(PROMETHEUS_TOOLS):
	$(call go_build,prometheus) -tags remove_all_sd -o $(TOOLS)/bin/promtool3 github.com/prometheus/prometheus/cmd/promtool
	$(call go_build,prometheus) -tags remove_all_sd -o $(TOOLS)/bin/prometheus3 github.com/prometheus/prometheus/cmd/prometheus
	$(call stamp,prometheus)

# Its own tag: Thanos hands labels on without copying them, which goes wrong with the layout that Prometheus has by default.
$(THANOS_TOOLS):
	$(call go_build,thanos) -tags slicelabels -o $(TOOLS)/bin/thanos github.com/thanos-io/thanos/cmd/thanos
	$(call stamp,thanos)

$(MIMIR_TOOLS):
	$(call go_build,mimir) -o $(TOOLS)/bin/mimirtool github.com/grafana/mimir/cmd/mimirtool
	$(call stamp,mimir)

# The engines that only `make test-fleet` starts, in builds of their own.
MIMIR_SERVER := $(call pin,mimir,mimirserver)
VICTORIAMETRICS_TOOLS := $(call pin,victoriametrics)

.PHONY: fleet-tools
fleet-tools: $(PROMETHEUS_TOOLS) $(THANOS_TOOLS) $(MIMIR_TOOLS) $(MIMIR_SERVER) $(VICTORIAMETRICS_TOOLS) ## Build the engines of `make test-fleet`; needs Go

$(MIMIR_SERVER):
	$(call go_build,mimir) -o $(TOOLS)/bin/mimir github.com/grafana/mimir/cmd/mimir
	$(call stamp,mimirserver)

# Named apart from Debian's, which are the floor. Without cgo, as their releases are built for a machine without glibc.
$(VICTORIAMETRICS_TOOLS): export CGO_ENABLED = 0
$(VICTORIAMETRICS_TOOLS):
	$(foreach program,victoria-metrics vmalert,$(call go_build,victoriametrics) -o $(TOOLS)/bin/$(program)-current github.com/VictoriaMetrics/VictoriaMetrics/app/$(program) &&) true
	$(call stamp,victoriametrics)

$(PINT_TOOLS):
	$(call go_build,pint) -o $(TOOLS)/bin/pint github.com/cloudflare/pint/cmd/pint
	$(call stamp,pint)

# Named apart from Debian's, which are the floor.
$(ALERTMANAGER_TOOLS):
	$(call go_build,alertmanager) -o $(TOOLS)/bin/alertmanager-current github.com/prometheus/alertmanager/cmd/alertmanager
	$(call go_build,alertmanager) -o $(TOOLS)/bin/amtool-current github.com/prometheus/alertmanager/cmd/amtool
	$(call stamp,alertmanager)

# Nothing is built: the module holds the schemas of the operator's objects.
$(OPERATOR_SCHEMAS): operator_module = github.com/prometheus-operator/prometheus-operator
$(OPERATOR_SCHEMAS):
	$(GO) -C tools/operator mod download $(operator_module)
	install -D -m 644 -t $(TOOLS)/crd $$($(GO) -C tools/operator list -m -f '{{.Dir}}' $(operator_module))/example/prometheus-operator-crd/*.yaml
	$(call stamp,operator)

$(KSERVE_SCHEMAS): kserve_module = github.com/kserve/kserve
$(KSERVE_SCHEMAS):
	$(GO) -C tools/kserve mod download $(kserve_module)
	install -D -m 644 -t $(TOOLS)/crd $$($(GO) -C tools/kserve list -m -f '{{.Dir}}' $(kserve_module))/config/crd/full/serving.kserve.io_inferenceservices.yaml
	$(call stamp,kserve)

$(KUSTOMIZE_TOOLS):
	$(call go_build,kustomize) -o $(TOOLS)/bin/kustomize sigs.k8s.io/kustomize/kustomize/v5
	$(call stamp,kustomize)

$(GRAFANA_TOOLS):
	$(call go_build,grafana) -o $(TOOLS)/bin/dashboard-linter github.com/grafana/dashboard-linter
	$(call stamp,grafana)

# `jsonnet` is named apart from Debian's, which is the floor.
$(JSONNET_TOOLS):
	$(call go_build,jsonnet) -o $(TOOLS)/bin/jsonnet-current github.com/google/go-jsonnet/cmd/jsonnet
	$(call go_build,jsonnet) -o $(TOOLS)/bin/ github.com/google/go-jsonnet/cmd/jsonnetfmt github.com/google/go-jsonnet/cmd/jsonnet-lint
	$(call stamp,jsonnet)

chart: $(HELM_TOOLS)
$(HELM_TOOLS):
	$(call go_build,helm) -o $(TOOLS)/bin/helm helm.sh/helm/v3/cmd/helm
	$(call stamp,helm)

# Small programs of our own around the field's modules: each has its main.go beside its go.mod.
$(ALLOY_TOOLS):
	$(call go_build,alloy) -o $(TOOLS)/bin/alloyfmt .
	$(call stamp,alloy)

$(OTELCOL_TOOLS):
	$(call go_build,otelcol) -tags remove_all_sd,enable_kubernetes_sd -o $(TOOLS)/bin/otelcol .
	$(call stamp,otelcol)

# A cluster without nodes, for `make test-cluster` only: 20 minutes of two cores once.
KUBERNETES := $(call pin,kubernetes)
KSERVE := $(call pin,kserve,controllers)
OPERATOR := $(call pin,operator,promoperator)
DISCOVERING := $(call pin,prometheus,discovering)

.PHONY: cluster-tools
cluster-tools: $(KUBERNETES) $(KSERVE) $(OPERATOR) $(DISCOVERING) $(KSERVE_SCHEMAS) $(OPERATOR_SCHEMAS) $(KUSTOMIZE_TOOLS) $(HELM_TOOLS) ## Build Kubernetes, KServe, the operator into .tools/bin; needs Go

# The version that `/version` tells clients; helm and the chart's `kubeVersion` ask for it.
$(KUBERNETES): version = $(shell $(GO) -C tools/kubernetes list -m -f '{{.Version}}' k8s.io/kubernetes)
$(KUBERNETES): flags = $(foreach part,gitVersion=$(version) gitMajor=$(word 1,$(subst ., ,$(version:v%=%))) gitMinor=$(word 2,$(subst ., ,$(version))),-X k8s.io/component-base/version.$(part))
$(KUBERNETES):
	$(GO) -C tools/kubernetes build -mod=readonly -trimpath -buildvcs=false -p 2 -ldflags='-s -w $(flags)' -o $(TOOLS)/bin/ k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kubectl
	$(call stamp,kubernetes)

$(KSERVE):
	$(call go_build,kserve) -o $(TOOLS)/bin/kserve-manager github.com/kserve/kserve/cmd/manager
	$(call go_build,kserve) -o $(TOOLS)/bin/kserve-llmisvc github.com/kserve/kserve/cmd/llmisvc
	$(call stamp,controllers)

$(OPERATOR):
	$(call go_build,operator) -o $(TOOLS)/bin/prometheus-operator github.com/prometheus-operator/prometheus-operator/cmd/operator
	$(call stamp,promoperator)

$(DISCOVERING):
	$(call go_build,prometheus) -tags remove_all_sd,enable_kubernetes_sd -o $(TOOLS)/bin/prometheus3-sd github.com/prometheus/prometheus/cmd/prometheus
	$(call stamp,discovering)

AUDIT := $(TOOLS)/audit-$(shell cksum < tools/audit/requirements.lock | cut -d' ' -f1)

$(AUDIT)/.installed: tools/audit/requirements.lock
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

LOCKED := requirements.lock requirements-build.lock requirements-dev.lock tools/release/requirements.lock tools/audit/requirements.lock

# `--strict`: a package that the service does not know is no clean package.
.PHONY: audit
audit: $(AUDIT)/.installed ## Known vulnerabilities of the locked packages; asks PyPI's JSON API, or OSV with SERVICE=osv
	$(AUDIT)/bin/python -m pip_audit --strict --require-hashes --disable-pip --progress-spinner off --vulnerability-service $(or $(SERVICE),pypi) $(LOCKED:%=-r %)
