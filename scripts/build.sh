#!/usr/bin/env bash
# Build the source distribution and the wheel twice, from two copies of the tree, and compare them byte by byte. Leaves the files in dist/
# with their SHA-256 (SHA256SUMS) and a bill of materials (CycloneDX): the wheel and what it requires, in the versions of
# constraints.txt. Needs uv and the group dev.
#   bash scripts/build.sh [FOLDER]    # instead of dist
set -euo pipefail
out=$(realpath --canonicalize-missing "${1:-$(dirname "$0")/../dist}")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for copy in one another; do
  git clone --quiet --no-hardlinks . "$work/$copy"  # tags come with it; what is not committed does not
  (cd "$work/$copy" && python -m build --no-isolation --outdir "$work/$copy-dist" . >"$work/log" 2>&1) || { cat "$work/log"; exit 1; }
done
(cd "$work/one-dist" && sha256sum -- *) >"$work/sums"
(cd "$work/another-dist" && sha256sum --check --quiet "$work/sums")
rm -rf "$out" && mkdir -p "$out"
cp "$work"/one-dist/* "$out"
cp "$work/sums" "$out/SHA256SUMS"
version=$(basename "$out"/*.whl | cut -d- -f2)
python -m venv --without-pip "$work/venv"
# By version, not by path: the path would stand in the bill.
uv pip install --quiet --python "$work/venv/bin/python" --constraint constraints.txt --find-links "$out" "palestra==$version"
sed "s/^dynamic = .*/version = \"$version\"/" pyproject.toml >"$work/pyproject.toml"  # cyclonedx-py asks no build backend
cyclonedx-py environment --output-reproducible --short-PURLs --mc-type library --pyproject "$work/pyproject.toml" \
  --output-file "$out/palestra.cdx.json" "$work/venv/bin/python"
echo "two builds, the same files:"
cat "$out/SHA256SUMS"
