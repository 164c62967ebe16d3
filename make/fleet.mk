# The rules on the engines that people have (docs/scale.md). Included by the Makefile.

.PHONY: test-fleet bench-fleet
test-fleet: $(VENV)/.dev fleet-tools ## The rules on Prometheus, VictoriaMetrics, Thanos and Mimir, live: a quarter of an hour; ARGS="-k thanos" for one
	@tests/debian.sh prometheus prometheus-alertmanager
	$(BIN)/pytest --numprocesses 0 -p no:cacheprovider lab/fleet $(ARGS)

bench-fleet: $(VENV)/.dev fleet-tools ## What a fleet costs each engine: an hour; ARGS=--record writes docs/scale.md
	@tests/debian.sh prometheus
	$(LABORATORY) bench.fleet_cost $(ARGS)
