#!/usr/bin/env bash
# Build the wheel and the source archive, look into them, and use the wheel where no repository is near:
# `scripts/check_wheel.sh [FOLDER]`. With FOLDER both are left there once they are known to work.
#
# The wheel goes without dependencies into an environment of its own, which borrows the packages of
# the one this is run with: seconds instead of a download. evergraph itself comes from the wheel.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=$(command -v "$python")
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") # as builds change into other folders
keep=${1:+$(realpath -m "$1")}
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

echo "building the source archive, and the wheel from it"
# A copy, since setuptools leaves its folders in the tree and picks up what an old build left there.
mkdir "$place/source" "$place/built"
cp -r "$root"/{pyproject.toml,MANIFEST.in,README.md,CHANGELOG.md,SECURITY.md,CITATION.cff,LICENSE,NOTICE,src} "$place/source"
rm -rf "$place"/source/src/*.egg-info
build() {  # FOLDER, what to build, by the environment's own setuptools: no download
    (cd "$1" && "$python" -c "from setuptools import build_meta; build_meta.build_$2('$place/built')") >>"$log" 2>&1
}
build "$place/source" sdist
mkdir "$place/unpacked"
tar -xzf "$place"/built/evergraph-*.tar.gz -C "$place/unpacked" --strip-components 1
build "$place/unpacked" wheel

echo "looking into both"
"$python" "$root/scripts/check_dist.py" "$root/src" "$place"/built/evergraph-*.whl "$place"/built/evergraph-*.tar.gz

echo "installing it"
"$python" -m venv --without-pip "$place/env"
site=$("$place/env/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
"$python" -m pip install --quiet --no-deps --no-warn-script-location --target "$site" \
    "$place"/built/evergraph-*.whl
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

echo "using it with the plain install's packages alone"
cat >"$site/sitecustomize.py" <<'PYTHON'
import sys

packages = "torch_geometric pyarrow duckdb matplotlib ogb pandas ray fastapi starlette uvicorn orjson"
for name in packages.split():
    sys.modules[name] = None  # importing it raises, as if it were not installed
PYTHON
ours info wordnet >info.txt && grep -q "117,659" info.txt
ours "${tiny[@]}" --out runs/tiny >run.txt && grep -q "average accuracy" run.txt
if ours report runs; then echo "a report without matplotlib?" && exit 1; fi
grep -q "pip install 'evergraph\[report\]'" "$log"
echo "using a live learner with the extra tables alone"
sed -i 's/ pyarrow duckdb / /' "$site/sitecustomize.py"
printf 'id,label,size\na,x,1\nb,y,2\nc,,3\n' >nodes.csv
printf 'source,target\na,c\n' >edges.csv
ours ingest learner --nodes nodes.csv --edges edges.csv >ingest.txt && grep -q "3 new nodes" ingest.txt
ours predict learner --all >predict.txt && grep -q "^c,x," predict.txt
ours explain learner c >explain.txt && grep -q "x" explain.txt
if ours serve learner; then echo "a service without fastapi?" && exit 1; fi
grep -q "pip install 'evergraph\[serve\]'" "$log"
echo "using it with all packages again"
rm "$site/sitecustomize.py"
ours report runs >report.txt && test -s runs/report.html
if [ -n "$keep" ]; then
    mkdir -p "$keep"
    cp "$place"/built/evergraph-* "$keep"
fi
echo "the wheel works"
