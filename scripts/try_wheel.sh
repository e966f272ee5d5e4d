#!/usr/bin/env bash
# Try a wheel as a user gets it: for each supported Python a new virtual environment, outside of the repository, and the commands that need
# no torch: demo, list, new, check, eval, serve, view. A Python that is not installed is reported and skipped.
#   bash scripts/try_wheel.sh dist/palestra-*.whl [VERSION...]
set -euo pipefail
wheel=$(realpath "$1")
shift
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(3.11 3.12 3.13 3.14)
constraints=$(realpath "$(dirname "$0")/../constraints.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missing=()

# $1: a version. Prints the path of its interpreter, if it is on the PATH or known to pyenv.
find_python() {
  if "python$1" --version >/dev/null 2>&1; then command -v "python$1"; return; fi  # a shim of pyenv is on the PATH and may not run
  compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1.*/bin/python" | tail -n 1
}

try() {
  local python=$1 folder=$2
  "$python" -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip install --quiet --constraint "$constraints" "${wheel}[serve]"
  local palestra="$folder/venv/bin/palestra"
  cd "$folder"
  "$palestra" --version
  "$palestra" demo -n 4 --json >demo.json
  "$palestra" list --json >/dev/null
  "$palestra" check game:GuessTheNumber-v0-easy -n 20 --json >/dev/null
  "$palestra" eval tiny --envs game:GuessTheNumber-v0-easy -n 20 -o runs/tiny --json >/dev/null
  "$palestra" view runs/tiny --export page.html --json >/dev/null
  "$palestra" new env mine --json >/dev/null
  "$palestra" serve game:GuessTheNumber-v0-easy --token-file token >serve.log &
  local server=$!
  for _ in $(seq 100); do
    if grep -q "^export" serve.log; then break; fi
    sleep 0.2
  done
  eval "$(grep '^export' serve.log)"
  local url
  url=$(sed -n 's/.* at \(http[^ ]*\) .*/\1/p' serve.log)
  "$palestra" eval oracle --envs "remote:$url#game:GuessTheNumber-v0-easy" -n 5 -o runs/remote --json >/dev/null
  kill "$server"
  wait "$server" || true
}

for version in "${versions[@]}"; do
  python=$(find_python "$version" || true)
  if [ -z "$python" ]; then
    echo "Python $version: NOT TRIED, it is not installed"
    missing+=("$version")
    continue
  fi
  mkdir "$work/$version"
  (try "$python" "$work/$version")
  echo "Python $version: demo, list, check, eval, view, new and serve work ($(basename "$wheel"))"
done
[ ${#missing[@]} -eq 0 ] || echo "not installed here: ${missing[*]}"
