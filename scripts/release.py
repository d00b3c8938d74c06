"""Release the version in pyproject.toml: ``python scripts/release.py [--dry-run]``.

Checks that the tree is clean, that ``make test`` passed on this commit and that every file names
the same version; builds and tries the archives; moves news/ into the changelog, commits and tags.
What then has to be pushed and uploaded is printed, never done. With ``--dry-run`` all obstacles are
listed, the archives are left in dist/, and nothing is committed.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = {  # where the version stands, beside pyproject.toml
    "CITATION.cff": r"^version: (.+)$",
    "deploy/kuberay.yaml": r"evergraph-cluster:(\S+)",
    "deploy/ray-cluster.yaml": r"evergraph-cluster:(\S+)",
}


def version_of(root: Path) -> str:
    """Return the version that is to be released."""
    text = (root / "pyproject.toml").read_text("utf-8")
    (version,) = re.findall(r'^version = "(.+)"$', text, re.MULTILINE)
    return str(version)


def obstacles(root: Path) -> Iterator[str]:
    """Yield what must be mended before the version can be released, one sentence each."""
    version = version_of(root)
    if _git(root, "status", "--porcelain"):
        yield "the tree has changes that are not committed"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"v{version} is tagged already: set another version in pyproject.toml"
    stamp = root / "build" / "tested"
    tested = stamp.read_text("utf-8").strip() if stamp.exists() else ""
    if tested != _git(root, "rev-parse", "HEAD"):
        yield "make test has not passed on this commit"
    for name, pattern in VERSIONS.items():
        versions = set(re.findall(pattern, (root / name).read_text("utf-8"), re.MULTILINE))
        if versions != {version}:
            listed = " and ".join(sorted(versions)) or "no version"
            yield f"{name} names {listed}, pyproject.toml {version}"
    if not news(root):
        yield "news/ has no fragment: there is nothing to release"


def news(root: Path) -> list[str]:
    """Return the names of the fragments from which the section of a release is made."""
    return sorted(path.name for path in (root / "news").glob("+*.*.md"))


def main(arguments: list[str] | None = None) -> int:
    """Release, or say what is in the way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="check and build, commit nothing")
    dry = parser.parse_args(arguments).dry_run
    version, problems = version_of(ROOT), list(obstacles(ROOT))
    for obstacle in problems:
        print(f"error: {obstacle}", file=sys.stderr)
    if problems and not dry:
        return 1
    dist = ROOT / "dist" / version
    if subprocess.run((ROOT / "scripts" / "check_wheel.sh", dist)).returncode:
        return 1
    for archive in sorted(dist.iterdir()):
        content = archive.read_bytes()
        print(f"{archive.name}  {len(content):,} bytes  {hashlib.sha256(content).hexdigest()}")
    if dry:
        print(
            f"{version} would be tagged v{version}" if not problems else f"{version} is not ready"
        )
        return 1 if problems else 0
    subprocess.run(("towncrier", "build", "--yes", "--version", version), cwd=ROOT, check=True)
    _git(ROOT, "commit", "--quiet", "--message", f"Release {version}", "CHANGELOG.md", "news")
    _git(ROOT, "tag", "--annotate", f"v{version}", "--message", f"evergraph {version}")
    print(f"v{version} is tagged. What is left to do:")
    print(f"  git push origin HEAD v{version}")
    print(f"  twine upload {dist.relative_to(ROOT)}/*")
    return 0


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(("git", *arguments), cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
