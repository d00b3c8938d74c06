"""How many small faults do the tests notice? A mutation score for six packages.

A mutant is a copy of one source file with one small fault: ``<`` for ``<=``, ``+`` for ``-``, a
constant one too large, a negated condition, a statement or a keyword argument left out, ``None``
returned, ``any`` for ``all``, ``min`` for ``max``. A test that fails kills it. The score is killed
mutants over all of them. The tests are those of the folders of these packages in ``tests``, with
the examples in the docstrings. Nothing else counts, so the score is a lower bound on what the whole
suite would notice::

    python scripts/mutants.py                   # 150 mutants, seed 0
    python scripts/mutants.py --seed 1          # other mutants
    python scripts/mutants.py --only tem        # of files whose path holds "tem"
    python scripts/mutants.py --again "..."     # one mutant, by the key the table prints

The sample is spread over the packages in proportion to their lines. A mutant's place in it depends
on the seed and on the mutant alone: an edit elsewhere leaves the rest of the sample as it was.

Everything happens in a copy of the tree below ``build/mutants``. The tests run there once under a
line tracer, which says what each of them reaches (kept until a file changes). Then pytest runs for
every mutant the tests that reach its line, fastest first, until one fails. Tests that cost more
than ``SLOWEST`` seconds of processor time are left out, and a mutant gets no more than ``--budget``
seconds' worth of tests. Mutants that no test could notice, because the program means the same,
stand in ``scripts/mutants_equivalent.txt``, one key a line; they are listed but not counted. Allow
an hour of one core.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
EQUIVALENT = ROOT / "scripts" / "mutants_equivalent.txt"
SLOWEST = 4.0
PACKAGES = ("graphs", "memory", "closed_form", "methods", "online", "server")
PYTEST = ["-q", "-p", "no:cacheprovider", f"--basetemp={WORK / 'tmp'}", f"--rootdir={TREE}"]
# Operators by the names of their classes in ``ast``, and functions, that take each other's place.
BOTH_WAYS = {
    "Lt": "LtE",
    "Gt": "GtE",
    "Eq": "NotEq",
    "Is": "IsNot",
    "In": "NotIn",
    "And": "Or",
    "Add": "Sub",
    "Mult": "Div",
    "BitAnd": "BitOr",
    "any": "all",
    "min": "max",
    "argmin": "argmax",
    "amin": "amax",
    "minimum": "maximum",
}
ONE_WAY = {"FloorDiv": "Mult", "Mod": "FloorDiv", "Pow": "Mult", "MatMult": "Mult"}
SWAPPED = BOTH_WAYS | {after: before for before, after in BOTH_WAYS.items()} | ONE_WAY
# What is no code of its own: annotations, decorators, and where a value goes.
UNVISITED = {"decorator_list", "annotation", "returns", "targets", "bases"}
LOGS = ("logger.", "logging.", "_log.", "log.", "...")
ELSEWHERE = {"ray_engine", "kills"}  # fixtures that start other processes
EXIT_PASSED, EXIT_FAILED, EXIT_USAGE, EXIT_NO_TESTS = 0, 1, 4, 5
Lines = dict[str, list[int]]  # path in the tree: line numbers


@dataclass(frozen=True)
class Mutant:
    """One fault: a node of a file's syntax tree, and what stands in its place.

    Attributes:
        line, statement_line: of the node, and of the statement around it.
        at_import: whether it is outside every function body.
        key: what the mutant is, without line numbers: the same after edits elsewhere.
        text: returns the whole file with the fault, or without it.
    """

    path: str
    line: int
    statement_line: int
    at_import: bool
    key: str
    text: Callable[[bool], str]

    @property
    def package(self) -> str:
        """The mutated package, by its name."""
        return self.path.split("/")[2]


@dataclass(frozen=True)
class Reached:
    """What a test costs and which lines it runs."""

    seconds: float
    lines: Lines


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: killed, survived, unreached or equivalent, and by which test."""

    key: str
    line: int
    outcome: str
    by: str
    tests: int


@dataclass(frozen=True)
class Site:
    """A node of a syntax tree, where a fault can be put."""

    node: ast.AST
    put: Callable[[Any], None]  # puts another node in its place
    condition: bool  # whether it is asked whether it is true
    names: tuple[str, ...]  # of the functions and classes around it
    functions: int  # how many of them are functions
    line: int  # of the statement around it


def sites(
    node: ast.AST, names: tuple[str, ...] = (), functions: int = 0, line: int = 1
) -> Iterator[Site]:
    """Yield all code below a node: no docstring, assertion, annotation or decorator."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        names, functions = (*names, node.name), functions + isinstance(node, ast.FunctionDef)
    for field, value in ast.iter_fields(node):
        if field in UNVISITED or (isinstance(node, ast.ClassDef) and field == "keywords"):
            continue
        listed = isinstance(value, list)
        for number, child in enumerate(value if listed else [value]):
            if not isinstance(child, ast.AST) or _is_left_alone(child):
                continue
            put = partial(value.__setitem__, number) if listed else partial(setattr, node, field)
            within = functions - isinstance(node, ast.arguments)  # a default is made at import
            at = child.lineno if isinstance(child, ast.stmt) else line
            yield Site(child, put, field in ("test", "ifs"), names, max(within, 0), at)
            yield from sites(child, names, max(within, 0), at)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg == "strict"  # zip(strict=) guards an invariant, as an assertion does
    if isinstance(node, ast.Expr):
        return _is_text(node.value) or ast.unparse(node).startswith(LOGS)
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
    exported = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    return exported or isinstance(node, ast.Assert)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def faults(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may stand in place of a node, each with its kind."""
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                ops = [*node.ops[:index], opposite(operator), *node.ops[index + 1 :]]
                yield "comparison", changed(node, ops=ops)
        case ast.BinOp() if not (_is_text(node.left) or _is_text(node.right)):
            yield from _swapped("arithmetic", node)
        case ast.AugAssign():
            yield from _swapped("arithmetic", node)
            yield "statement", ast.Pass()
        case ast.BoolOp():
            yield from _swapped("boolean", node)
        case ast.UnaryOp() if not isinstance(node.operand, ast.Constant):
            yield "unary", node.operand
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not node.value)
        case ast.Constant(value=int() | float() as number):
            yield "constant", ast.Constant(number + 1)
            yield "constant", ast.Constant(number - 1)
        case ast.Call():
            yield from _calls(node)
        case ast.Expr() | ast.Delete():
            yield "statement", ast.Pass()
        case ast.Assign() if not any(isinstance(target, ast.Name) for target in _targets(node)):
            yield "statement", ast.Pass()  # a name never bound would fail at once
        case ast.Raise() if "NotImplementedError" not in ast.unparse(node):
            yield "statement", ast.Pass()
        case ast.Return() if node.value is not None and ast.unparse(node.value) != "None":
            yield "return", ast.Return(ast.Constant(None))


def _swapped(kind: str, node: Any) -> Iterator[tuple[str, ast.AST]]:
    if type(node.op).__name__ in SWAPPED:
        yield kind, changed(node, op=opposite(node.op))


def opposite(operator: ast.AST) -> Any:
    """Return the operator that is put in another's place."""
    return getattr(ast, SWAPPED[type(operator).__name__])()


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    for keyword in node.keywords:
        if keyword.arg not in (None, "strict"):
            others = [other for other in node.keywords if other is not keyword]
            yield f"keyword {keyword.arg}= left out", changed(node, keywords=others)
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in SWAPPED:
        field = "attr" if isinstance(node.func, ast.Attribute) else "id"
        yield "name", changed(node, func=changed(node.func, **{field: SWAPPED[name]}))


def _targets(node: ast.Assign) -> list[ast.expr]:
    return [element for target in node.targets for element in getattr(target, "elts", [target])]


def changed(node: ast.AST, **fields: Any) -> Any:
    """Return a node with other values in some of its fields."""
    copied = copy(node)
    for name, value in fields.items():
        setattr(copied, name, value)
    return copied


def mutants_in(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    tree, name = ast.parse(path.read_bytes()), path.relative_to(ROOT).as_posix()
    seen: dict[str, int] = {}

    def written(site: Site, new: ast.AST, faulty: bool) -> str:
        site.put(new if faulty else site.node)
        text = ast.unparse(tree)
        site.put(site.node)
        return text

    for site in list(sites(tree)):
        replacements = list(faults(site.node))
        if site.condition and not _is_not(site.node):
            replacements.append(("condition", ast.UnaryOp(ast.Not(), site.node)))  # type: ignore[arg-type]
        for kind, new in replacements:
            before = _on_one_line(site.node)
            after = _on_one_line(new)
            key = f"{name}::{'.'.join(site.names) or 'module'}: {kind}: {before} -> {after}"
            seen[key] = number = seen.get(key, -1) + 1
            yield Mutant(
                path=name,
                line=getattr(site.node, "lineno", site.line),
                statement_line=site.line,
                at_import=not site.functions,
                key=f"{key} #{number}" if number else key,
                text=partial(written, site, new),
            )


def _on_one_line(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def sources(package: str) -> list[Path]:
    """Return the files of a package, in order; kernels for a GPU only where they can be run."""
    paths = sorted((ROOT / "src" / "evergraph" / package).rglob("*.py"))
    return paths if find_spec("triton") else [p for p in paths if not p.match("triton_*.py")]


def sample(count: int, *, seed: int) -> list[Mutant]:
    """Return that many mutants, each package's share in proportion to its lines."""

    def rank(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed} {mutant.key}".encode()).hexdigest()

    lines = {p: sum(len(f.read_bytes().splitlines()) for f in sources(p)) for p in PACKAGES}
    chosen: list[Mutant] = []
    for package in PACKAGES:
        share = round(count * lines[package] / sum(lines.values()))
        chosen += sorted(mutants_of(package), key=rank)[:share]
    return chosen


def mutants_of(package: str) -> list[Mutant]:
    """Return every mutant of a package, in the order of its files."""
    return [mutant for path in sources(package) for mutant in mutants_in(path)]


def copy_tree() -> None:
    """Copy what the tests need to the folder of work."""
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", "results", "*.egg-info")
    for name in ("src", "tests", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, TREE / name, ignore=ignored)
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy2(ROOT / name, TREE)
    compileall.compile_dir(TREE / "src", quiet=1)
    # A mutant may be as old and as long as its source: its byte code must not be taken for it.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def test_folders() -> list[str]:
    """Return where the tests are, and the examples."""
    folders = [f"{top}/{package}" for top in ("tests", "src/evergraph") for package in PACKAGES]
    return [folder for folder in folders if Path(TREE, folder).is_dir()]


def _fingerprint() -> str:
    """Return what all that tests reach depends on."""
    digest = hashlib.sha256()
    for path in sorted({*(TREE / "src").rglob("*.py"), *(TREE / "tests").rglob("*.py")}):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Tracer:
    """A pytest plugin that notes which lines of the packages each test runs."""

    def __init__(self) -> None:
        self.reached: dict[str, Reached] = {}
        self._failed: set[str] = set()
        self._fixtures: dict[tuple[str, str], set[tuple[str, int]]] = {}
        self._lines: set[tuple[str, int]] = set()
        self._wanted: dict[str, str | None] = {}
        self._tree = f"{TREE}/"
        self._packages = tuple(f"{TREE}/src/evergraph/{package}/" for package in PACKAGES)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out what happens in other processes, which are not mutated, and take long."""
        items[:] = [i for i in items if not ELSEWHERE & {*getattr(i, "fixturenames", ())}]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> None:
        """Begin anew with a test."""
        self._lines, self._began = set(), _processor_seconds()
        threading.settrace(self._call)
        sys.settrace(self._call)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        """Keep the lines of a fixture for the other tests that use it."""
        before, self._lines = self._lines, set()
        yield
        key = fixturedef.baseid, fixturedef.argname
        self._fixtures[key] = self._fixtures.get(key, set()) | self._lines
        self._lines |= before

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember what fails or is skipped without a fault: it can show nothing."""
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        """Stop tracing when the test has ended."""
        sys.settrace(None)
        threading.settrace(lambda *_: None)
        seconds = _processor_seconds() - self._began
        if nodeid not in self._failed:
            self.reached[nodeid] = Reached(seconds, _by_file(self._lines))

    def pytest_runtest_teardown(self, item: Any) -> None:
        """Add the lines of fixtures that an earlier test had set up."""
        for definitions in getattr(item, "_fixtureinfo").name2fixturedefs.values():  # noqa: B009
            for definition in definitions:
                self._lines |= self._fixtures.get((definition.baseid, definition.argname), set())

    def _call(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if name not in self._wanted:
            is_mutated = name.startswith(self._packages)
            self._wanted[name] = name.removeprefix(self._tree) if is_mutated else None
        path = self._wanted[name]
        if path is None:
            return None
        lines = self._lines

        def line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            lines.add((path, frame.f_lineno))
            return line

        return line(frame, event, argument)


def _by_file(lines: set[tuple[str, int]]) -> Lines:
    by_path: Lines = {}
    for path, line in sorted(lines):
        by_path.setdefault(path, []).append(line)
    return by_path


def _processor_seconds() -> float:
    return sum(os.times()[:4])  # with the processes it waited for


def trace() -> dict[str, Reached]:
    """Return what each test reaches; they are run again once a file has changed."""
    cache, fingerprint = WORK / "reached.json", _fingerprint()
    if not cache.exists() or json.loads(cache.read_text())["files"] != fingerprint:
        print("running all tests under a tracer (minutes) ...", flush=True)
        cache.unlink(missing_ok=True)
        child = get_context("spawn").Process(target=_trace, args=(cache, fingerprint))
        child.start()
        child.join()
        if not cache.exists():
            raise SystemExit("pytest could not run the tests: see above")
    tests = json.loads(cache.read_text())["tests"]
    return {name: Reached(**test) for name, test in tests.items()}


def _trace(cache: Path, fingerprint: str) -> None:
    tracer = Tracer()
    code = pytest.main([*PYTEST, *test_folders()], plugins=[tracer])
    if code in (EXIT_PASSED, EXIT_FAILED):
        tests = {name: asdict(test) for name, test in tracer.reached.items()}
        cache.write_text(json.dumps({"files": fingerprint, "tests": tests}))


def tests_for(mutant: Mutant, reached: dict[str, Reached], *, budget: float) -> list[str]:
    """Return the tests that run the mutant's line, fastest first, as many as the budget allows.

    What happens at import (constants, defaults) is seen by every test that runs anything in the
    file, then by every test of the package.
    """
    lines = {mutant.line, mutant.statement_line}
    candidates: list[tuple[bool, float, str]] = []
    for name, test in reached.items():
        lines_run = test.lines.get(mutant.path, [])
        runs_line = bool((lines_run and mutant.at_import) or lines.intersection(lines_run))
        if runs_line or (mutant.at_import and f"/{mutant.package}/" in name):
            candidates.append((not runs_line, test.seconds, name))
    chosen: list[str] = []
    for _, seconds, name in sorted(candidates):
        if seconds > SLOWEST:
            continue
        budget -= seconds
        if budget < 0 and chosen:
            break
        chosen.append(name)
    return chosen


def judge(mutant: Mutant, nodeids: list[str], *, seconds: float, faulty: bool = True) -> Verdict:
    """Write the mutant, run the tests, put the file back.

    seconds: how long they take on a quiet machine, with what they import.
    """
    if not nodeids:
        return Verdict(mutant.key, mutant.line, "unreached", "", 0)
    path = TREE / mutant.path
    source = path.read_bytes()
    path.write_text(mutant.text(faulty), "utf-8")
    try:
        code, output = run_tests(nodeids, seconds=10 * seconds)
    finally:
        path.write_bytes(source)
    if code in (EXIT_USAGE, EXIT_NO_TESTS):
        raise SystemExit(f"no test could be run for {mutant.key}:\n{output}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    reason = failed[1] if failed else f"exit {code}"
    outcome = "survived" if code == EXIT_PASSED else "killed"
    return Verdict(mutant.key, mutant.line, outcome, reason if code else "", len(nodeids))


def run_tests(nodeids: list[str], *, seconds: float) -> tuple[int, str]:
    """Run tests until one fails; return pytest's exit code, or minus a signal's number, and output.

    A file's tests stay together, as its fixtures do.
    """
    files = list(dict.fromkeys(nodeid.split("::")[0] for nodeid in nodeids))
    ordered = sorted(nodeids, key=lambda nodeid: files.index(nodeid.split("::")[0]))
    command = [sys.executable, "-m", "pytest", *PYTEST, "-x", "-rfE", *ordered]
    with (WORK / "last.log").open("w+") as log:
        child = subprocess.Popen(command, cwd=TREE, stdout=log, stderr=log, start_new_session=True)
        with suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what its tests may have started, too
        code = child.wait()
        log.seek(0)
        return code, log.read()


def check_one_by_one(chosen: list[Mutant], *, budget: float) -> list[Verdict]:
    """Return what became of each mutant."""
    reached = trace()
    verdicts: list[Verdict] = []
    for mutant in chosen:
        nodeids = tests_for(mutant, reached, budget=budget)
        seconds = 20 + 3 * sum(reached[nodeid].seconds for nodeid in nodeids)
        verdict = judge(mutant, nodeids, seconds=seconds)
        if verdict.by.startswith("exit"):  # no test has failed: was it the fault?
            without = judge(mutant, nodeids, seconds=seconds, faulty=False)
            if without.outcome == "killed":
                raise SystemExit(f"{verdict.by} without a fault, too: see {WORK / 'last.log'}")
        verdicts.append(verdict)
        print(f"{len(verdicts)}/{len(chosen)} {verdict.outcome} {verdict.key}", flush=True)
    return verdicts


def report(verdicts: list[Verdict], *, equivalent: set[str]) -> str:
    """Return the score of each package, and what survived."""
    rows = [
        "| package | mutants | equivalent | killed | unreached | score |",
        "|---|---|---|---|---|---|",
    ]
    for package in (*PACKAGES, ""):
        of_package = [v for v in verdicts if v.key.startswith(f"src/evergraph/{package}")]
        equivalent_count = sum(v.outcome != "killed" and v.key in equivalent for v in of_package)
        killed = sum(v.outcome == "killed" for v in of_package)
        unreached = sum(v.outcome == "unreached" for v in of_package)
        if of_package:
            score = f"{100 * killed / max(1, len(of_package) - equivalent_count):.1f} %"
            cells = (package or "all", len(of_package), equivalent_count, killed, unreached, score)
            rows.append(f"| {' | '.join(map(str, cells))} |")
    for verdict in verdicts:
        if verdict.outcome != "killed":
            label = "equivalent" if verdict.key in equivalent else verdict.outcome
            rows.append(f"{label} (line {verdict.line}, {verdict.tests} tests): {verdict.key}")
    return "\n".join(rows)


def main() -> None:
    """Sample, judge, report."""
    parser = argparse.ArgumentParser(description=f"Mutation score of {', '.join(PACKAGES)}.")
    parser.add_argument("--count", type=int, default=150, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which mutants")
    parser.add_argument("--only", default="", help="part of the path of the files to mutate")
    parser.add_argument("--again", action="append", default=[], help="key of a mutant to run")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tests a mutant gets")
    options = parser.parse_args()
    if options.again:
        everything = [mutant for package in PACKAGES for mutant in mutants_of(package)]
        chosen = [mutant for mutant in everything if mutant.key in options.again]
    else:
        chosen = sample(options.count, seed=options.seed)
    chosen = [mutant for mutant in chosen if options.only in mutant.path]
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TREE / "src")}
    sys.path.insert(0, str(TREE / "src"))  # which the process of the tracer takes over
    copy_tree()
    os.chdir(TREE)
    equivalent = set(EQUIVALENT.read_text("utf-8").splitlines())
    print(report(check_one_by_one(chosen, budget=options.budget), equivalent=equivalent))


if __name__ == "__main__":
    main()
