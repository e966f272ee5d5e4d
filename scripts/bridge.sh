#!/usr/bin/env bash
# Runs the contract tests of one bridge against the released package, in a virtual environment of its own.
#   bash scripts/bridge.sh trl
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
venv=.ci/bridges/$name
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --constraint constraints.txt uv
"$venv/bin/pip" install --quiet torch==2.13.0  # pip, since it alone knows of the machine's own CPU build, where there is one
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --constraint constraints.txt --requirement "constraints/$name.txt" \
  --group dev --editable ".[train]"
OMP_NUM_THREADS=1 "$venv/bin/pytest" -q --timeout 900 -m bridges "tests/integrations/test_$name.py"
