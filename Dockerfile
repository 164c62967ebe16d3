# The Python that tests and benchmarks run on.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# Filled from outside, so that the image has no pip.
RUN python -m venv --without-pip /opt/specdec-exporter
COPY requirements.lock ./
RUN pip --python /opt/specdec-exporter install --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
RUN pip --python /opt/specdec-exporter install --no-deps .

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="specdec-exporter" \
      org.opencontainers.image.description="Prometheus exporter for vLLM's speculative decoding" \
      org.opencontainers.image.licenses="Apache-2.0"
# The base comes without bytecode of the standard library. With a read-only root nobody could add it, and every start and
# every health check would compile anew what it imports: four times the CPU.
RUN python -m compileall -q -x '/(ensurepip|idlelib|lib2to3|site-packages|tkinter|turtledemo)/' /usr/local/lib/python3.*
COPY --from=build /opt/specdec-exporter /opt/specdec-exporter
ENV PATH=/opt/specdec-exporter/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1
# By number: Kubernetes' runAsNonRoot cannot tell what a name is.
USER 65532:65532
EXPOSE 10409
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s CMD ["specdec-exporter", "healthcheck"]
ENTRYPOINT ["specdec-exporter"]
