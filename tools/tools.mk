# Linters of the field, built from the Go modules that tools/*/go.mod pin (tools/README.md says why each).
# A stamp is named by what its tools were built from: builds are kept, also from a restored cache, until a pin changes.

GO ?= go
go_build = $(GO) -C tools/$(1) build -mod=readonly -trimpath -buildvcs=false -p 2 -ldflags='-s -w'
pin = $(TOOLS)/go/$(1)-$(shell cat tools/tools.mk tools/$(1)/go.mod tools/$(1)/go.sum | cksum | cut -d' ' -f1)
stamp = @mkdir -p $(@D) && rm -f $(@D)/$(1)-* && touch $@

PROMETHEUS_TOOLS := $(call pin,prometheus)
THANOS_TOOLS := $(call pin,thanos)
JSONNET_TOOLS := $(call pin,jsonnet)
GO_TOOLS := promtool3 prometheus3 thanos jsonnetfmt jsonnet-lint

.PHONY: tools
ifneq ($(shell command -v $(GO)),)
tools: $(PROMETHEUS_TOOLS) $(THANOS_TOOLS) $(JSONNET_TOOLS) ## Build the pinned Go linters into .tools/bin; without Go, say what is left out
else
tools:
	@echo "make tools: no '$(GO)' command here, so $(GO_TOOLS) are not built and their lints are left out" >&2
endif

# All service discoveries together are half of the build, and nothing here discovers. The web UI is not in the module.
$(PROMETHEUS_TOOLS):
	$(call go_build,prometheus) -tags remove_all_sd -o $(TOOLS)/bin/promtool3 github.com/prometheus/prometheus/cmd/promtool
	$(call go_build,prometheus) -tags remove_all_sd -o $(TOOLS)/bin/prometheus3 github.com/prometheus/prometheus/cmd/prometheus
	$(call stamp,prometheus)

$(THANOS_TOOLS):
	$(call go_build,thanos) -o $(TOOLS)/bin/thanos github.com/thanos-io/thanos/cmd/thanos
	$(call stamp,thanos)

$(JSONNET_TOOLS):
	$(call go_build,jsonnet) -o $(TOOLS)/bin/ github.com/google/go-jsonnet/cmd/jsonnetfmt github.com/google/go-jsonnet/cmd/jsonnet-lint
	$(call stamp,jsonnet)
