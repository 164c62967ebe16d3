# The rules on the engines that people have (docs/scale.md). Included by the Makefile.

.PHONY: test-fleet
test-fleet: $(VENV)/.dev fleet-tools ## The rules on Prometheus, VictoriaMetrics, Thanos and Mimir, live: a quarter of an hour; ARGS="-k thanos" for one
	@tests/debian.sh prometheus prometheus-alertmanager
	$(BIN)/pytest --numprocesses 0 -p no:cacheprovider tests/fleet $(ARGS)
