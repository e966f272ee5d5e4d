#!/usr/bin/env bash
# Builds the venvs of the peers that the benchmarks measure against, beside this file. They are never dependencies.
set -euo pipefail
cd "$(dirname "$0")"
python3 -m venv .venv-gem
# GEM's own requirements pull in a trainer; its environments need only these.
.venv-gem/bin/pip install --quiet --no-deps gem-llm==0.1.0
.venv-gem/bin/pip install --quiet pylatexenc requests numpy gymnasium reasoning-gym==0.1.25 nltk pandas
.venv-gem/bin/python -c "import gem; print('gem is ready')"
python3 -m venv .venv-trl
# pip for torch, since it alone knows of the machine's own CPU build, where there is one.
.venv-trl/bin/pip install --quiet torch==2.13.0
.venv-trl/bin/pip install --quiet trl==1.16.0 transformers datasets
.venv-trl/bin/python -c "import trl; print('trl is ready')"
