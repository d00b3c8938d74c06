"""Scripts around a release: what is installed, what is in the archives, what is in the way."""

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import check_dist
import install
import release

ROOT = Path(__file__).parents[2]
METADATA = (
    "Metadata-Version: 2.4\nName: evergraph\nVersion: {version}\nLicense-File: LICENSE\n"
    "License-File: NOTICE\nClassifier: Development Status :: 4 - Beta\n"
    "Description-Content-Type: text/markdown\n\n# evergraph\n"
)


def test_settings_of_pip_are_handed_to_uv():
    listed = [
        ":env:.find-links='/nearer'",
        "global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'",
        "global.find-links='/far'",
        "global.index-url='https://own.example/simple'",
        "install.no-deps='1'",
    ]
    assert install.settings(listed) == {
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_FIND_LINKS": "/nearer",
        "UV_DEFAULT_INDEX": "https://own.example/simple",
    }


def test_torch_is_installed_as_pinned():
    wanted = install.requirements("report")
    pinned = [line for line in install.CONSTRAINTS.read_text().splitlines() if "torch==" in line]
    assert wanted[2] in pinned
    assert wanted[-1] == f"{ROOT}[report]"


def built(folder: Path, *, version: str = "1.0.0rc1", packed: str = "") -> list[str]:
    """Return the faults of two archives of a tiny package; packed: a file more, in both."""
    source = folder / "src"
    wheel = folder / f"evergraph-{version}-py3-none-any.whl"
    sdist = folder / f"evergraph-{version}.tar.gz"
    for name in check_dist.MARKERS:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    extra = [packed] if packed else []
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in [*check_dist.MARKERS, *extra]:
            archive.writestr(name, "")
        about = METADATA.format(version=version)
        archive.writestr(f"evergraph-{version}.dist-info/METADATA", about)
    with tarfile.open(sdist, "w:gz") as tar:
        package = [f"src/{name}" for name in check_dist.MARKERS]
        for name in [*package, *check_dist.SOURCES, *extra]:
            tar.addfile(tarfile.TarInfo(f"evergraph-{version}/{name}"), io.BytesIO())
    return list(check_dist.faults_of(source, wheel, sdist))


def test_archives_hold_the_package_and_nothing_else(tmp_path):
    assert built(tmp_path) == []
    assert built(tmp_path, packed="tests/test_version.py") == [
        "evergraph-1.0.0rc1-py3-none-any.whl: should not have tests/test_version.py",
        "evergraph-1.0.0rc1.tar.gz: should not have tests/test_version.py",
    ]


def test_a_final_version_is_not_called_beta(tmp_path):
    (fault,) = built(tmp_path, version="1.0.0")
    assert "Production/Stable" in fault


def test_an_archive_too_large_is_a_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(check_dist, "LARGEST", 10)
    assert len(built(tmp_path)) == 2


def test_files_name_the_same_version():
    version = release.version_of(ROOT)
    assert not [said for said in release.obstacles(ROOT) if version in said and "names" in said]


def test_what_is_in_the_way_of_a_release_is_named(tmp_path):
    (tmp_path / "deploy").mkdir()
    (tmp_path / "pyproject.toml").write_text('version = "1.2.0"\n')
    (tmp_path / "CITATION.cff").write_text("version: 1.1.0\n")
    for name in ("kuberay", "ray-cluster"):
        (tmp_path / f"deploy/{name}.yaml").write_text("image: evergraph-cluster:1.2.0\n")
    (tmp_path / ".gitignore").write_text("build\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "one"), ("tag", "v1.2.0")):
        subprocess.run((*git, *command), cwd=tmp_path, check=True)
    assert list(release.obstacles(tmp_path)) == [
        "v1.2.0 is tagged already: set another version in pyproject.toml",
        "make test has not passed on this commit",
        "CITATION.cff names 1.1.0, pyproject.toml 1.2.0",
        "news/ has no fragment: there is nothing to release",
    ]
    head = subprocess.run((*git, "rev-parse", "HEAD"), cwd=tmp_path, capture_output=True, text=True)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "tested").write_text(head.stdout)
    assert "make test has not passed on this commit" not in release.obstacles(tmp_path)


def test_fragments_become_the_section_of_a_release(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "news").mkdir()
    (tmp_path / "CHANGELOG.md").write_text("# C\n\n<!-- releases -->\n\n## 0.9 (2025-01-01)\n")
    (tmp_path / "news" / "+faster.fix.md").write_text("It is faster.\n")
    (tmp_path / "news" / "+other.results.md").write_text("Other numbers.\n")
    assert release.news(tmp_path) == ["+faster.fix.md", "+other.results.md"]
    build = ("towncrier", "build", "--keep", "--version", "1.0", "--date", "2026-02-01")
    subprocess.run((sys.executable, "-m", *build), cwd=tmp_path, check=True, capture_output=True)
    section = (tmp_path / "CHANGELOG.md").read_text().partition("## 1.0 (2026-02-01)")[2]
    texts = ("Changed results", "Other numbers.", "Fixed", "faster.", "0.9")
    assert [section.index(text) for text in texts] == sorted(map(section.index, texts))


def test_every_fragment_has_a_type_that_is_known():
    kinds = {"results", "feature", "fix", "removal"}
    assert {path.suffixes[-2][1:] for path in (ROOT / "news").glob("+*")} <= kinds
