# Tests against a real Kubernetes control plane (docs/evidence/cluster.md). Included by the Makefile.

.PHONY: test-cluster
test-cluster: $(VENV)/.dev cluster-tools ## Manifests, KServe, operator and Prometheus on a real API server; writes docs/evidence/cluster.md
	@tests/debian.sh etcd prometheus-alertmanager
	$(BIN)/pytest --numprocesses 0 -p no:cacheprovider lab/cluster $(ARGS)
