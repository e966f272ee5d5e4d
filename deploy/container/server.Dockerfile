# Serves environments. Build it in the root of a checkout, after `bash scripts/build.sh`:
#   docker build --file deploy/container/server.Dockerfile --tag palestra-server .
#   docker run --rm --publish 8443:8443 --volume palestra-token:/token palestra-server "game:*"
# The token is in the volume: docker run --rm --volume palestra-token:/token --entrypoint cat palestra-server /token/token
# The box for code does not start with Docker's own restrictions: it needs user namespaces and a /proc of its own. To use it, add
#   --security-opt seccomp=unconfined --security-opt systempaths=unconfined
# These options switch off Docker's filter of system calls and its masks over /proc. The box runs Debian's own Python.
# CI does not build this file. Debian's Docker has built it, on a base of our own: Debian 12 with Python 3.12.
FROM python:3.12-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap=0.8.* libseccomp2=2.5.* python3=3.11.* \
    && rm -rf /var/lib/apt/lists/*

COPY constraints.txt dist/*.whl /tmp/wheel/
RUN wheel="$(echo /tmp/wheel/*.whl)" \
    && pip install --no-cache-dir --constraint /tmp/wheel/constraints.txt "${wheel}[serve,sandbox,math]" \
    && rm -rf /tmp/wheel

RUN useradd --create-home --uid 10001 palestra && mkdir /token && chown palestra /token
USER palestra
WORKDIR /home/palestra
VOLUME /token
EXPOSE 8443
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 8443), 3).close()"]
ENTRYPOINT ["palestra", "serve", "--host", "0.0.0.0", "--port", "8443", "--token-file", "/token/token"]
CMD ["game:*"]
