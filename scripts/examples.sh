#!/usr/bin/env bash
# Runs examples with the wheel in dist/, each in a virtual environment of its own that holds what its first lines ask for.
#   bash scripts/examples.sh                     the examples that need no other framework; scripts/bridge.sh runs the others
#   bash scripts/examples.sh own_environment     these
set -euo pipefail
cd "$(dirname "$0")/.."
names=("$@")
[ $# -gt 0 ] || names=(own_environment eval_api_model own_questions evaluate_on_a_cluster gymnasium_env)
wheel=$(ls "$PWD"/dist/palestra-*.whl)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for name in "${names[@]}"; do
  example=$PWD/examples/$name.py
  venv=$folder/$name
  extras=$(sed -n 's/^# dependencies = \["palestra\(\[[a-z,]*\]\)\{0,1\}".*/\1/p' "$example")
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --constraint constraints.txt uv
  case $extras in *train*) "$venv/bin/pip" install --quiet --no-compile torch==2.13.0 ;; esac
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --constraint constraints.txt "palestra$extras @ file://$wheel"
  smoke=()
  ! grep -q '"--smoke"' "$example" || smoke=(--smoke)
  began=$SECONDS
  (cd "$folder" && OMP_NUM_THREADS=1 "$venv/bin/python" "$example" "${smoke[@]}")
  echo "example $name took $((SECONDS - began)) s"
done
