# The image, built and run (docs/image.md). Included by the Makefile.

.PHONY: test-image
test-image: $(VENV)/.dev ## The image built twice and run as Kubernetes does, without a container daemon; needs root
	@tests/debian.sh buildah mmdebstrap runc umoci
	$(BIN)/pytest -p no:cacheprovider tests/image
