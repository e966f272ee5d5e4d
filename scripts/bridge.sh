#!/usr/bin/env bash
# Runs the contract tests of bridges against the released packages, each in a virtual environment of its own, built from nothing.
#   bash scripts/bridge.sh trl verl        these bridges
#   bash scripts/bridge.sh light           the bridges of a group: light (no torch), heavy, or all
#   bash scripts/bridge.sh --reuse verl    with the environment of the last run, as it is
#
# constraints/NAME.txt says what is installed: requirements as pip reads them, under comment lines
#   # framework: verl            the name that the page shows
#   # package: verl              the distribution whose version the page shows
#   # group: heavy               light or heavy
#   # python: 3.12               by default 3.11; without that Python, the bridge is skipped
#   # extras: render             the extras of palestra
#   # torch: 2.13.0              installed first and by pip, which alone knows of the machine's own CPU build, where there is one
#   # no-deps: verl==0.9.1       installed without its requirements, also that of another Python; may stand several times
#   # tests: tests/integrations/test_verl.py      by default this file of the bridge's name
#   # runs: …                    the page: what of the framework the tests run
#   # equal: tokens              the page: what is compared (tokens or text)
#   # read: …                    instead of all but the framework: the adapter was written from the source, and nothing is run
# Packages that the file does not name have the versions of constraints.txt. A skipped test is a failure.
#
# The result becomes constraints/results/NAME.json, and docs/generate_bridges.py writes docs/reference/bridges.md from all of them.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/.ci/bridges
runner=(pytest pytest-asyncio pytest-cov pytest-timeout pytest-xdist hypothesis)

header() { sed -n "s/^# $2: //p" "constraints/$1.txt"; }  # $1: bridge, $2: key

python_of() {  # prints the Python of version $1, or nothing
  local found
  found=$(command -v "python$1" || true)
  if [ -z "$found" ] || ! "$found" -c '' 2>/dev/null; then
    found=$(find "${PYENV_ROOT:-$HOME/.pyenv}/versions" -maxdepth 3 -path "*/$1.*/bin/python" 2>/dev/null | sort | tail -1 || true)
  fi
  echo "$found"
}

pins_beside() {  # constraints.txt without the packages that the bridge pins itself
  { sed -n 's/^# no-deps: //p' "constraints/$1.txt"; grep -v '^#' "constraints/$1.txt"; header "$1" torch | sed 's/^/torch==/'; } \
    | sed 's/[]<>=!~; @[].*//' | tr 'A-Z_' 'a-z-' | sort -u >"$root/$1.own"
  awk -F== 'NR == FNR { own[$1] = 1; next } !($1 in own)' "$root/$1.own" constraints.txt
}

build() {  # $1: bridge, $2: its Python
  local venv=$root/$1 torch extras packages
  rm -rf "$venv"
  "$2" -m venv "$venv"
  "$venv/bin/pip" install --quiet --constraint constraints.txt uv
  torch=$(header "$1" torch)
  [ -z "$torch" ] || "$venv/bin/pip" install --quiet --no-compile "torch==$torch"
  extras=$(header "$1" extras)
  pins_beside "$1" >"$root/$1.pins"
  install=("$venv/bin/uv" pip install --quiet --python "$venv/bin/python")
  "${install[@]}" --constraint "$root/$1.pins" --requirement "constraints/$1.txt" "${runner[@]}" --editable ".${extras:+[$extras]}"
  mapfile -t packages < <(header "$1" no-deps)
  # pip: a package without its requirements may also ask for another Python than the tests need
  [ ${#packages[@]} -eq 0 ] || "$venv/bin/pip" install --quiet --no-deps --ignore-requires-python "${packages[@]}"
}

run() {  # $1: bridge
  local venv=$root/$1 tests python wanted example smoke begun=$SECONDS
  if [ -n "$(header "$1" read)" ]; then
    echo "bridge $1: read, not run"
    return
  fi
  wanted=$(header "$1" python)
  python=$(python_of "${wanted:-3.11}")
  if [ -z "$python" ]; then
    echo "bridge $1: skipped, there is no Python ${wanted:-3.11} here"
    return
  fi
  if [ "$reuse" = 0 ] || [ ! -x "$venv/bin/python" ]; then
    echo "bridge $1: installing"
    build "$1" "$python"
  fi
  echo "bridge $1: testing ($((SECONDS - begun)) s)"
  tests=$(header "$1" tests)
  # shellcheck disable=SC2086 # there may be several files
  OMP_NUM_THREADS=1 PYTHONPATH=$PWD "$venv/bin/python" -m pytest -q -rs -p no:cacheprovider --timeout 900 -m bridges --junitxml "$root/$1.xml" \
    ${tests:-tests/integrations/test_$1.py}
  "$venv/bin/python" scripts/bridge_result.py "$1" "$root/$1.xml"
  for example in examples/*_with_"$1".py; do
    [ -e "$example" ] || continue
    begun=$SECONDS
    smoke=()
    ! grep -q '"--smoke"' "$example" || smoke=(--smoke)
    (cd "$root" && OMP_NUM_THREADS=1 "$venv/bin/python" "../../$example" "${smoke[@]}")
    echo "bridge $1: $example took $((SECONDS - begun)) s"
  done
}

reuse=0
names=()
for word in "$@"; do
  case $word in
    --reuse) reuse=1 ;;
    all) for file in constraints/*.txt; do names+=("$(basename "$file" .txt)"); done ;;
    light | heavy) mapfile -t files < <(grep -l "^# group: $word" constraints/*.txt); for file in "${files[@]}"; do names+=("$(basename "$file" .txt)"); done ;;
    *) [ -f "constraints/$word.txt" ] || { echo "bridge: there is no constraints/$word.txt" >&2; exit 2; }; names+=("$word") ;;
  esac
done
[ ${#names[@]} -gt 0 ] || { echo "usage: bash scripts/bridge.sh [--reuse] NAME...|light|heavy|all" >&2; exit 2; }
mkdir -p "$root"
failed=()
for name in "${names[@]}"; do
  # A function under "if" would ignore "set -e": its exit code is taken separately.
  set +e
  (set -e; run "$name")
  code=$?
  [ $code -eq 0 ] || failed+=("$name")
  set -e
done
python3 docs/generate_bridges.py
[ ${#failed[@]} -eq 0 ] || { echo "bridges that failed: ${failed[*]}" >&2; exit 1; }
