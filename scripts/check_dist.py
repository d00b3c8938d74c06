"""Look into a wheel and a source archive: ``python scripts/check_dist.py SOURCE WHEEL SDIST``.

Every fault is one line, and the exit code says whether there was one. Nothing is installed:
``scripts/check_wheel.sh`` does that afterwards.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.metadata import ExceptionGroup, Metadata
from packaging.version import Version

LARGEST = 5_000_000  # bytes of either archive; half of it is WordNet
MARKERS = ("evergraph/py.typed", "evergraph/datasets/bundled/wordnet.npz")
# Beside the package; what else lies in the repository does not belong into an archive.
SOURCES = {
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "MANIFEST.in",
    "NOTICE",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
    "setup.cfg",
}


def faults_of(source: Path, wheel: Path, sdist: Path) -> Iterator[str]:
    """Yield what is wrong with archives that were built from ``source``, the folder of src."""
    files = (path for path in (source / "evergraph").rglob("*") if path.is_file())
    source_files = {f.relative_to(source).as_posix() for f in files if "__pycache__" not in f.parts}
    for archive in (wheel, sdist):
        size = archive.stat().st_size
        if size > LARGEST:
            yield f"{archive.name}: {size:,} bytes, at most {LARGEST:,}"
    with zipfile.ZipFile(wheel) as packed:
        wheel_files = {name for name in packed.namelist() if ".dist-info/" not in name}
        (metadata_name,) = (n for n in packed.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = packed.read(metadata_name)
    yield from _differences(wheel.name, source_files, wheel_files)
    yield from (f"{wheel.name}: has no {name}" for name in MARKERS if name not in wheel_files)
    with tarfile.open(sdist) as archived:
        names = {m.name.partition("/")[2] for m in archived.getmembers() if m.isfile()}
    package = {name.removeprefix("src/") for name in names if name.startswith("src/evergraph/")}
    yield from _differences(sdist.name, source_files, package)
    other_files = {
        n for n in names if not n.startswith(("src/evergraph/", "src/evergraph.egg-info/"))
    }
    yield from _differences(sdist.name, SOURCES, other_files)
    yield from _metadata_faults(wheel.name, metadata)


def _differences(archive: str, expected: set[str], found: set[str]) -> Iterator[str]:
    for name in sorted(expected - found):
        yield f"{archive}: has no {name}"
    for name in sorted(found - expected):
        yield f"{archive}: should not have {name}"


def _metadata_faults(wheel: str, text: bytes) -> Iterator[str]:
    """Yield what an index would refuse, and what readers of its page would miss."""
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        yield from (f"{wheel}: {error}" for error in group.exceptions)
        return
    if not wheel.startswith(f"{metadata.name}-{metadata.version}-"):
        yield f"{wheel}: holds {metadata.name} {metadata.version}"
    if metadata.description_content_type != "text/markdown" or not metadata.description:
        yield f"{wheel}: its description is not the README"
    if set(metadata.license_files or ()) != {"LICENSE", "NOTICE"}:
        yield f"{wheel}: license files are {metadata.license_files}, not LICENSE and NOTICE"
    status = "4 - Beta" if metadata.version.is_prerelease else "5 - Production/Stable"
    if metadata.version >= Version("1.0.0rc1"):
        classifier = f"Development Status :: {status}"
        if classifier not in (metadata.classifiers or ()):
            yield f"{wheel}: version {metadata.version} goes with the classifier {classifier!r}"


def main(source: str, wheel: str, sdist: str) -> int:
    """Print every fault; the exit code is 1 where there are some."""
    faults = list(faults_of(Path(source), Path(wheel), Path(sdist)))
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
