#!/usr/bin/env bash
# Builds the venvs of the peers that the benchmarks measure against, beside this file. They are never dependencies.
set -euo pipefail
cd "$(dirname "$0")"
python3 -m venv .venv-gem
# GEM's own requirements pull in a trainer; its environments need only these.
.venv-gem/bin/pip install --quiet --no-deps gem-llm==0.1.0
.venv-gem/bin/pip install --quiet pylatexenc requests numpy gymnasium reasoning-gym==0.1.25 nltk pandas
.venv-gem/bin/python -c "import gem; print('gem is ready')"
