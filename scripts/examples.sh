#!/usr/bin/env bash
# Runs examples with the wheel in dist/, each in a virtual environment of its own that holds what its first lines ask for.
#   bash scripts/examples.sh                     the examples that need no other framework; scripts/bridge.sh runs the others
#   bash scripts/examples.sh own_environment     these
#   bash scripts/examples.sh --dry …             writes no results
#
# An example without torch is run as its first lines say: uv run --find-links dist FILE. The others have pinned versions, and the CPU
# build of torch where the folder PIP_FIND_LINKS has one. SLIME=FOLDER runs slime's example with a checkout of slime.
set -euo pipefail
cd "$(dirname "$0")/.."
dry=()
[ "${1:-}" != --dry ] || { dry=(--dry); shift; }
names=("$@")
[ $# -gt 0 ] || names=(own_environment eval_api_model gymnasium_env evaluate_on_a_cluster own_questions train_with_slime)
wheel=$(ls "$PWD"/dist/palestra-*.whl)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
  python3 -m venv "$folder/uv"
  "$folder/uv/bin/pip" install --quiet --constraint constraints.txt uv
  uv=$folder/uv/bin/uv
fi
root=$PWD
links=()
[ -z "${PIP_FIND_LINKS:-}" ] || links=(--find-links "$PIP_FIND_LINKS")

# shellcheck disable=SC2016 # no expansion is meant
needs() {  # the requirements in the first lines of the example $1, one per line
  python3 -c 'import re, sys, tomllib
block = re.search(r"(?ms)^# /// script$(.*?)^# ///$", open(sys.argv[1]).read())[1]
print("\n".join(tomllib.loads(block.replace("\n# ", "\n"))["dependencies"]))' "$1"
}

for name in "${names[@]}"; do
  example=$root/examples/$name.py
  arguments=()
  ! grep -q '"--smoke"' "$example" || arguments=(--smoke)
  if [ "$name" = train_with_slime ] && [ -z "${SLIME:-}" ]; then
    arguments=(train.jsonl)  # slime is on GitHub only: without it, the example writes the data set
  fi
  mkdir "$folder/$name"
  mapfile -t packages < <(needs "$example")
  case ${packages[*]} in
    *hf]* | *train]* | *torch*)
      venv=$folder/venv-$name
      "$uv" venv --quiet --python "$(command -v python3)" "$venv"
      "$uv" pip install --quiet --python "$venv/bin/python" --constraint constraints.txt --find-links dist "${links[@]}" \
        --reinstall-package palestra "${packages[@]}" "palestra @ file://$wheel" torch==2.13.0
      start=("$venv/bin/python")
      ;;
    *) start=("$uv" run --quiet --python "$(command -v python3)" --isolated --reinstall-package palestra --find-links "$root/dist") ;;
  esac
  began=$SECONDS
  (cd "$folder/$name" && PYTHONPATH=${SLIME:-} OMP_NUM_THREADS=1 "${start[@]}" "$example" "${arguments[@]}")
  python3 scripts/example_result.py "${dry[@]}" "examples/$name.py" $((SECONDS - began)) "${arguments[@]}"
done
