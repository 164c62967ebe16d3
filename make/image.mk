# The image, built and run (docs/evidence/image.md). Included by the Makefile.

.PHONY: test-image
test-image: $(VENV)/.dev ## The image built twice and run as Kubernetes does, without a container daemon; needs root; RECORD=1 writes docs/evidence/image.md
	@tests/debian.sh buildah mmdebstrap runc umoci
	$(if $(RECORD),SPECDEC_IMAGE_RECORD=1) $(BIN)/pytest -s -p no:cacheprovider lab/image
