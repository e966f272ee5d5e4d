# Trains on a machine with NVIDIA GPUs. Build it in the root of a checkout, after `bash scripts/build.sh`:
#   docker build --file deploy/container/gpu.Dockerfile --tag palestra-gpu .
#   docker run --rm --gpus all --shm-size 16g --volume "$PWD/runs:/home/palestra/runs" palestra-gpu train gpu/gem-game-qwen3-4b
# It has not been built: nothing of Palestra has run on a GPU yet.
FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04

RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap=0.9.* libseccomp2=2.5.* python3-pip=24.* python3-venv=3.12.* \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/palestra
ENV PATH=/opt/palestra/bin:$PATH

COPY constraints.txt dist/*.whl /tmp/wheel/
RUN wheel="$(echo /tmp/wheel/*.whl)" \
    && pip install --no-cache-dir --constraint /tmp/wheel/constraints.txt "${wheel}[train,track,sandbox,serve,cluster]" \
    && rm -rf /tmp/wheel

RUN useradd --create-home --uid 10001 palestra
USER palestra
WORKDIR /home/palestra
ENTRYPOINT ["palestra"]
CMD ["doctor"]
