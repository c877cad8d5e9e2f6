# A server, a worker or any other verb of Anabranch:  docker build --tag anabranch .
# docs/how-to/deploy.md says how to run it; `compose.yaml` has a server on PostgreSQL.

# The image that it stands on, for both stages. A tag may lead to another image tomorrow: give its digest,
#   --build-arg PYTHON_IMAGE=python:3.13-slim@sha256:…
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
RUN python -m venv /opt/anabranch
COPY requirements/image.lock requirements/
RUN /opt/anabranch/bin/pip install --no-cache-dir --only-binary :all: --require-hashes --requirement requirements/image.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY examples examples
# Everything that this needs is there: nothing more is fetched, so there is nothing without a hash.
RUN /opt/anabranch/bin/pip install --no-cache-dir --no-index --no-deps --no-build-isolation .

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --create-home --home-dir /data anabranch
COPY --from=build /opt/anabranch /opt/anabranch
ENV PATH=/opt/anabranch/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ANABRANCH_STORE=/data/anabranch.db \
    ANABRANCH_SERVE_HOST=0.0.0.0
USER anabranch
WORKDIR /data
VOLUME /data
EXPOSE 8629
# A stop waits for running jobs: give it longer than the setting grace_seconds.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8629/api/v1/health', timeout=4)"]
ENTRYPOINT ["anabranch"]
CMD ["serve"]
