#!/usr/bin/env bash
# Builds the documentation site and looks at it. See docs/design/index.md.
#
#   bash scripts/site.sh            build into .ci/site, check links and names, look at a sample of the pages in Chromium
#   bash scripts/site.sh --all      look at all pages
#   bash scripts/site.sh --build    build only
#
# The Python on the path needs palestra with its extras (the gallery plays the environments); Zensical has a venv of its own.
# A link that leads nowhere, a name that is not documented or a page that fails in the browser ends the script with an error.
set -euo pipefail
cd "$(dirname "$0")/.."
began=$SECONDS
venv=${PALESTRA_SITE_VENV:-$PWD/.ci/site-venv}
folder=$PWD/.ci/site
if [ ! -x "$venv/bin/zensical" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --constraint scripts/site_constraints.txt zensical "mkdocstrings[python]"
fi
python docs/site/stage.py "$folder"
(cd "$folder" && PYTHONWARNINGS=ignore "$venv/bin/zensical" build --strict)
cp "$folder/pages/llms.txt" "$folder/pages/llms-full.txt" "$folder/site/"
# CPU seconds of the build's processes: other work on the machine makes the build slow, but not expensive. It took 47 (2026-11-20).
times > "$folder/times"
spent=$(awk -F'[ms ]+' 'NR == 2 { print int($1 * 60 + $2 + $3 * 60 + $4) }' "$folder/times")
printf '=== site: built in %ss, with %s CPU seconds\n' "$((SECONDS - began))" "$spent"
[ "$spent" -le 100 ] || { echo "site: the build took more than 100 CPU seconds" >&2; exit 1; }
[ "${1:-}" != --build ] || exit 0
sample=(-m "site and not full")
[ "${1:-}" != --all ] || sample=(-m site)
[ -n "${PALESTRA_AXE:-}" ] || npm install --silent --global --prefix "$PWD/.ci/npm" axe-core@4.14.0
export PALESTRA_AXE=${PALESTRA_AXE:-$PWD/.ci/npm/lib/node_modules/axe-core/axe.min.js}
PALESTRA_SITE=$folder/site python -m pytest -q -p no:cacheprovider "${sample[@]}" tests/site
