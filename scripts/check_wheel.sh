#!/usr/bin/env bash
# Build the wheel, look into it, and use it where no repository is near: `scripts/check_wheel.sh`.
#
# The wheel goes without dependencies into an environment of its own, which borrows the packages of
# the one this is run with: seconds instead of a download. evergraph itself comes from the wheel.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=$(command -v "$python")
place=$(mktemp -d)
log=$place/log.txt
: >"$log"
finish() {
    status=$?
    [ $status = 0 ] || cat "$log" >&2
    rm -rf "$place"
    exit $status
}
trap finish EXIT
unset PYTHONPATH
export OMP_WAIT_POLICY=PASSIVE

echo "building the wheel"
# A copy, since setuptools leaves its folders in the tree and picks up what an old build left there.
mkdir "$place/source"
cp -r "$root"/{pyproject.toml,README.md,LICENSE,NOTICE,src} "$place/source"
rm -rf "$place"/source/src/*.egg-info
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$place/wheel" "$place/source"

echo "comparing it with the source tree"
"$python" - "$root/src" "$place"/wheel/evergraph-*.whl <<'PYTHON'
import sys
import zipfile
from pathlib import Path

source, wheel = Path(sys.argv[1]), sys.argv[2]
packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
files = (path for path in (source / "evergraph").rglob("*") if path.is_file())
ours = {f.relative_to(source).as_posix() for f in files if "__pycache__" not in f.parts}
for name in sorted(ours - packed):
    print(f"missing from the wheel: {name}")
for name in sorted(packed - ours):
    print(f"in the wheel alone: {name}")
sys.exit(packed != ours)
PYTHON

echo "installing it"
"$python" -m venv --without-pip "$place/env"
site=$("$place/env/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
"$python" -m pip install --quiet --no-deps --no-warn-script-location --target "$site" \
    "$place"/wheel/evergraph-*.whl
# Behind the environment's own folder, and without the .pth files in it: no editable install.
"$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))" >"$site/borrowed.pth"

mkdir "$place/empty"
cd "$place/empty"
ours() { "$place/env/bin/python" "$site/bin/evergraph" "$@" 2>"$log"; }  # the console script
tiny=(run --dataset synthetic --set dataset.nodes=60 --set dataset.classes=4 --epochs 1 --device cpu)

echo "using it in $place/empty"
"$place/env/bin/python" -c "
import evergraph
assert evergraph.__file__.startswith('$site'), evergraph.__file__
assert evergraph.__version__[0].isdigit(), evergraph.__version__"
ours >lesson.txt && grep -q "evergraph run" lesson.txt
ours list methods >methods.txt && grep -q "tem" methods.txt
ours info wordnet >info.txt && grep -q "117,659" info.txt
ours "${tiny[@]}" --out runs/tiny >run.txt && grep -q "average accuracy" run.txt
ours report runs >report.txt && test -s runs/report.html

echo "using it with the plain install's packages alone"
cat >"$site/sitecustomize.py" <<'PYTHON'
import sys

for name in ("torch_geometric", "pyarrow", "matplotlib", "ogb", "pandas", "ray", "fastapi", "uvicorn"):
    sys.modules[name] = None  # importing it raises, as if it were not installed
PYTHON
ours info wordnet >info.txt && grep -q "117,659" info.txt
ours "${tiny[@]}" --out plain/tiny >run.txt && grep -q "average accuracy" run.txt
if ours report plain; then echo "a report without matplotlib?" && exit 1; fi
grep -q "pip install 'evergraph\[report\]'" "$log"
echo "the wheel works"
