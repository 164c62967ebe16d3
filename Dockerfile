# The Python that tests and benchmarks run on, for every architecture. Dependabot moves tag and digest together.
ARG PYTHON_IMAGE=python:3.11.16-slim-bookworm@sha256:c425d915a89a6dcd3183b1797ad9bd8878caff5a417f6371c8df93c8ea8b727f

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_NO_COMPILE=1 \
    PIP_REQUIRE_VIRTUALENV=1
WORKDIR /src
# What builds stays in this stage: pip and the build backend, by their hashes. The environment of the image has no pip.
RUN python -m venv /opt/build && python -m venv --without-pip /opt/specdec-exporter
COPY requirements-build.lock requirements.lock ./
RUN /opt/build/bin/pip install --require-hashes -r requirements-build.lock \
    && /opt/build/bin/pip --python /opt/specdec-exporter install --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
ARG REVISION
RUN printf %s "$REVISION" > exporter/specdec_exporter/REVISION \
    && /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /opt/build/bin/pip --python /opt/specdec-exporter install --no-deps /wheel/*.whl
COPY deploy/image/root.py ./
RUN python root.py /root-of-image /opt/specdec-exporter

# No shell, no package manager, no setuid program: what is not there needs no update.
FROM scratch
ARG VERSION
ARG REVISION
ARG CREATED
LABEL org.opencontainers.image.title="specdec-exporter" \
      org.opencontainers.image.description="Prometheus exporter for vLLM's speculative decoding" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/specdec-exporter/specdec-exporter" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=build /root-of-image /
# MALLOC_MMAP_THRESHOLD_: a large answer gets pages of its own, which go back when it is freed. Without this, glibc learns to
# keep them, and a hostile predictor brings the process beyond the manifests' 128 MiB.
ENV PATH=/opt/specdec-exporter/bin \
    LANG=C.UTF-8 \
    MALLOC_MMAP_THRESHOLD_=65536 \
    PYTHONDONTWRITEBYTECODE=1
# By number: Kubernetes' runAsNonRoot cannot tell what a name is.
USER 65532:65532
EXPOSE 10409
# Images in the OCI format have no health check: docker and `buildah --format docker` keep it, Kubernetes has its own.
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s CMD ["specdec-exporter", "healthcheck"]
ENTRYPOINT ["specdec-exporter"]
