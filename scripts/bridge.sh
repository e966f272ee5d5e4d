#!/usr/bin/env bash
# Runs the contract tests of bridges against the released packages, each in a virtual environment of its own, built from nothing.
# Then it runs the bridge's example there. Palestra is installed as a wheel of this checkout.
#   bash scripts/bridge.sh trl verl        these bridges
#   bash scripts/bridge.sh light           the bridges of a group: light, heavy, or all
#   bash scripts/bridge.sh --reuse verl    with the environment of the last run, as it is, but for palestra
#   bash scripts/bridge.sh --dry light     writes neither results nor the page
#   bash scripts/bridge.sh --install agents   only makes the environment, .ci/bridges/agents
#   bash scripts/bridge.sh --lock verl     only resolves the versions again, into constraints/locked/verl.txt
#
# constraints/NAME.txt says what is installed: requirements as pip reads them, under comment lines
#   # framework: verl            the name that the page shows
#   # package: verl              the distribution whose version the page shows
#   # group: heavy               light (on every push: no torch, and less than a minute for installation and tests) or heavy (nightly)
#   # python: 3.12               by default 3.11; without that Python, the bridge is skipped
#   # extras: render             the extras of palestra
#   # torch: 2.13.0              its CPU build, where the folder PIP_FIND_LINKS has one
#   # no-deps: verl==0.9.1       installed without its requirements, also that of another Python; may stand several times
#   # tests: tests/bridges/test_verl.py      by default this file of the bridge's name
#   # runs: …                    the page: what of the framework the tests run
#   # equal: tokens              the page: what is compared (tokens or text)
#   # leaks: 1,000 cancelled     the page: which episodes the test for leaks lets the framework abandon
#   # read: …                    instead of all but the framework: the adapter was written from the source, and nothing is run
# Packages that the file does not name have the versions of constraints/locked/NAME.txt: those of constraints.txt where the framework
# allows them. A skipped test is a failure.
#
# The result becomes constraints/results/NAME.json, that of an example constraints/results/examples/NAME.json, and
# docs/generate_bridges.py writes docs/reference/bridges.md from all of them.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/.ci/bridges
links=()
[ -z "${PIP_FIND_LINKS:-}" ] || links=(--find-links "$PIP_FIND_LINKS")
unset PYTHONDONTWRITEBYTECODE  # the tests start many processes, and each would compile everything again
runner=(pytest pytest-asyncio pytest-cov pytest-timeout pytest-xdist hypothesis pyseccomp==0.1.2)  # the last for boxes in the tests for leaks

header() { sed -n "s/^# $2: //p" "constraints/$1.txt"; }  # $1: bridge, $2: key

python_of() {  # prints the Python of version $1, or nothing
  local found
  found=$(command -v "python$1" || true)
  if [ -z "$found" ] || ! "$found" -c '' 2>/dev/null; then
    found=$(find "${PYENV_ROOT:-$HOME/.pyenv}/versions" -maxdepth 3 -path "*/$1.*/bin/python" 2>/dev/null | sort | tail -1 || true)
  fi
  echo "$found"
}

lock() {  # $1: bridge
  local extras torch file=constraints/locked/$1.txt wanted
  extras=$(header "$1" extras)
  torch=$(header "$1" torch)
  wanted=$(header "$1" python)
  mkdir -p constraints/locked
  cp constraints.txt "$file"  # uv keeps the versions of its output file where it can
  printf '%s\n' "palestra${extras:+[$extras]} @ file://$wheel" "${runner[@]}" ${torch:+"torch==$torch"} >"$root/$1.in"
  "$uv" pip compile --quiet --no-header --no-annotate --no-emit-index-url --no-emit-package palestra --python-version "${wanted:-3.11}" \
    --output-file "$file" "constraints/$1.txt" "$root/$1.in" >/dev/null
}

make_wheel() {  # also finds uv, or installs it
  uv=$(command -v uv || true)
  if [ -z "$uv" ]; then
    uv=$root/uv/bin/uv
    [ -x "$uv" ] || { python3 -m venv "$root/uv" && "$root/uv/bin/pip" install --quiet --constraint constraints.txt uv; }
  fi
  rm -rf "$root/dist"
  "$uv" build --quiet --wheel --out-dir "$root/dist" .
  wheel=$(ls "$root"/dist/palestra-*.whl)
}

build() {  # $1: bridge, $2: its Python
  local venv=$root/$1 torch extras packages
  rm -rf "$venv"
  torch=$(header "$1" torch)
  mapfile -t packages < <(header "$1" no-deps)
  if [ ${#packages[@]} -gt 0 ]; then
    "$2" -m venv "$venv"  # with pip
  else
    "$uv" venv --quiet --python "$2" "$venv"
  fi
  extras=$(header "$1" extras)
  "$uv" pip install --quiet --python "$venv/bin/python" --constraint "constraints/locked/$1.txt" --requirement "constraints/$1.txt" "${runner[@]}" \
    "${links[@]}" --reinstall-package palestra "palestra${extras:+[$extras]} @ file://$wheel" ${torch:+"torch==$torch"}
  # pip: a package without its requirements may also ask for another Python than the tests need
  [ ${#packages[@]} -eq 0 ] || "$venv/bin/pip" install --quiet --no-deps --ignore-requires-python "${packages[@]}"
}

install() {  # $1: bridge
  local python wanted begun=$SECONDS
  wanted=$(header "$1" python)
  python=$(python_of "${wanted:-3.11}")
  if [ -z "$python" ]; then
    echo "bridge $1: skipped, there is no Python ${wanted:-3.11} here"
  elif [ "$reuse" = 0 ] || [ ! -e "$root/$1.installed" ]; then
    echo "bridge $1: installing"
    rm -f "$root/$1.installed"
    build "$1" "$python"
    echo $((SECONDS - begun)) >"$root/$1.installed"
  else
    "$uv" pip install --quiet --python "$root/$1/bin/python" --no-deps --reinstall-package palestra "$wheel"
  fi
}

run() {  # $1: bridge
  local venv=$root/$1 tests example smoke begun
  install "$1"
  [ -e "$root/$1.installed" ] || return 0
  echo "bridge $1: testing (installed in $(cat "$root/$1.installed") s)"
  tests=$(header "$1" tests)
  # shellcheck disable=SC2086 # there may be several files
  OMP_NUM_THREADS=1 PYTHONPATH=$PWD "$venv/bin/python" -m pytest -q -rs -p no:cacheprovider --timeout 3600 -m bridges --junitxml "$root/$1.xml" \
    ${tests:-tests/bridges/test_$1.py}
  times >"$root/$1.times"  # of this subshell, which builds and tests one bridge
  "$venv/bin/python" scripts/bridge_result.py "${dry[@]}" "$1" "$root/$1.xml" "$(cat "$root/$1.installed")" "$root/$1.times"
  for example in examples/*_with_"$1".py; do
    [ -e "$example" ] || continue
    begun=$SECONDS
    smoke=()
    ! grep -q '"--smoke"' "$example" || smoke=(--smoke)
    (cd "$root" && OMP_NUM_THREADS=1 "$venv/bin/python" "../../$example" "${smoke[@]}")
    "$venv/bin/python" scripts/example_result.py "${dry[@]}" "$example" $((SECONDS - begun)) "${smoke[@]}"
  done
}

action=run
reuse=0
dry=()
names=()
for word in "$@"; do
  case $word in
    --reuse) reuse=1 ;;
    --dry) dry=(--dry) ;;
    --install) action=install; dry=(--dry) ;;
    --lock) action=lock ;;
    all) for file in constraints/*.txt; do names+=("$(basename "$file" .txt)"); done ;;
    light | heavy) mapfile -t files < <(grep -l "^# group: $word" constraints/*.txt); for file in "${files[@]}"; do names+=("$(basename "$file" .txt)"); done ;;
    *) [ -f "constraints/$word.txt" ] || { echo "bridge: there is no constraints/$word.txt" >&2; exit 2; }; names+=("$word") ;;
  esac
done
[ ${#names[@]} -gt 0 ] || { echo "usage: bash scripts/bridge.sh [--reuse] [--dry] [--install] [--lock] NAME...|light|heavy|all" >&2; exit 2; }
mkdir -p "$root"
make_wheel
failed=()
for name in "${names[@]}"; do
  if [ -n "$(header "$name" read)" ]; then
    echo "bridge $name: read, not run"
    continue
  fi
  # A function under "if" would ignore "set -e": its exit code is taken separately.
  set +e
  (set -e; "$action" "$name")
  code=$?
  [ $code -eq 0 ] || failed+=("$name")
  set -e
done
[ ${#dry[@]} -gt 0 ] || [ $action = lock ] || python3 docs/generate_bridges.py
echo "bridges: ${#names[@]} took $SECONDS s"
[ ${#failed[@]} -eq 0 ] || { echo "bridges that failed: ${failed[*]}" >&2; exit 1; }
