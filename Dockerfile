# A server, a worker or any other verb of Anabranch:  docker build --tag anabranch .
# docs/how-to/deploy.md says how to run it; `compose.yaml` has a server on PostgreSQL.

FROM python:3.13-slim AS build
WORKDIR /build
RUN python -m venv /opt/anabranch
COPY requirements/runtime.lock requirements/
RUN /opt/anabranch/bin/pip install --no-cache-dir --require-hashes --requirement requirements/runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY examples examples
RUN /opt/anabranch/bin/pip install --no-cache-dir '.[postgres]'

FROM python:3.13-slim
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
