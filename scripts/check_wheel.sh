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
cp -r "$root"/{pyproject.toml,MANIFEST.in,README.md,CHANGELOG.md,SECURITY.md,CITATION.cff,LICENSE,NOTICE} "$place/source"
# Not what compilers keep in src: it comes and goes while tests run beside this.
"$python" - "$root/src" "$place/source/src" <<'PYTHON'
import shutil
import sys

shutil.copytree(*sys.argv[1:], ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
PYTHON
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

# Commands in one process, a line each: its exit code, what it must say, its words; or packages that can be imported from now on.
cat >"$place/commands.py" <<'PYTHON'
import contextlib
import io
import re
import shlex
import sys
from importlib.machinery import PathFinder

missing = set(sys.argv[1].split())


class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        found = name.partition(".")[0] not in missing
        return super().find_spec(name, path, target) if found else None


sys.meta_path[sys.meta_path.index(PathFinder)] = Without

from evergraph.cli.app import main

for line in sys.stdin:
    code, pattern, *words = shlex.split(line)
    if code == "with":
        missing -= {pattern, *words}
        continue
    sys.argv, said, ended = ["evergraph", *words], io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
    except SystemExit as stop:
        ended = stop.code or 0
    if ended != int(code) or not re.search(pattern, said.getvalue()):
        sys.exit(f"evergraph {shlex.join(words)}: {ended}\n{said.getvalue()}")
PYTHON
extras="torch_geometric pyarrow duckdb matplotlib ogb pandas ray fastapi starlette uvicorn orjson"
tiny="run --method tem --dataset synthetic --set dataset.nodes=60 --set dataset.classes=4 --epochs 1"

echo "using it in $place/empty"
"$place/env/bin/python" -c "
import evergraph
assert evergraph.__file__.startswith('$site'), evergraph.__file__
assert evergraph.__version__[0].isdigit(), evergraph.__version__"
ours >lesson.txt # lines of their own: what fails in front of && goes unnoticed
grep -q "evergraph run" lesson.txt

echo "using it with the plain install's packages alone, then with the extra tables, then with all"
printf 'id,label,size\na,x,1\nb,y,2\nc,,3\n' >nodes.csv
printf 'source,target\na,c\n' >edges.csv
"$place/env/bin/python" "$place/commands.py" "$extras" 2>"$log" <<COMMANDS
0 tem list methods
0 117,659 info wordnet
0 "average accuracy" $tiny --out runs/tiny
2 "pip install 'evergraph.report.'" report runs
with pyarrow duckdb
0 "3 new nodes" ingest learner --nodes nodes.csv --edges edges.csv
0 "\nc,[xy],0" predict learner --all
0 x explain learner c
2 "pip install 'evergraph.serve.'" serve learner
with $extras
0 report.html report runs
COMMANDS
test -s runs/report.html
if [ -n "$keep" ]; then
    mkdir -p "$keep"
    cp "$place"/built/evergraph-* "$keep"
fi
echo "the wheel works"
