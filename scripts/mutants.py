"""How many small faults do the tests notice? A mutation score for six packages.

A mutant is a copy of one source file with one small fault: ``<`` for ``<=``, ``+`` for ``-``, a
constant one too large, a negated condition, a statement or a keyword argument left out, ``None``
returned, ``any`` for ``all``, ``min`` for ``max``. A test that fails kills it. The score is killed
mutants over all of them. The packages are graphs, memory, closed_form, methods, online and server;
the tests are those of the folders of these names in ``tests``, with the examples in the docstrings
of the packages. Nothing else counts, so the score is a lower bound on what the whole suite would
notice::

    python scripts/mutants.py                   # 150 mutants, seed 0
    python scripts/mutants.py --seed 1          # other mutants
    python scripts/mutants.py --only tem        # of files whose path holds "tem"
    python scripts/mutants.py --again "..."     # one mutant, by the key the table prints

The sample is spread over the packages in proportion to their lines. A mutant's place in it depends
on the seed and on the mutant alone: an edit elsewhere leaves the rest of the sample as it was.

Everything happens in a copy of the tree below ``build/mutants``. The tests run there once under a
line tracer, which says what each of them reaches (kept until a file changes). Then every mutant
gets a forked process, in which torch is imported already, and the tests that reach its line,
fastest first, until one fails. Tests that cost more than ``--slowest`` seconds of processor time
are left out, and a mutant gets no more than ``--budget`` seconds' worth of tests. Mutants that no
test could notice, because the program means the same, stand in ``scripts/mutants_equivalent.txt``,
one key a line; they are listed but not counted. Every verdict is written to
``build/mutants/seed-N.json`` as well. Allow half an hour of one core.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
EQUIVALENT = ROOT / "scripts" / "mutants_equivalent.txt"
# What a package's mutants may find imported already: lower floors only, never the mutated one.
PRELOADED = {
    "graphs": ("core",),
    "memory": ("graphs", "streams", "datasets", "topology", "nn"),
    "closed_form": ("memory", "training", "evaluation"),
    "methods": ("memory", "memory.samplers", "training", "evaluation", "closed_form"),
    "online": ("methods",),
    "server": ("online",),
}
THIRD_PARTY = ("torch", "scipy.sparse", "numba", "hypothesis", "pytest", "torch_geometric")
SWAPPED_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
SWAPPED_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.Pow: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.MatMult: "*",
}
SWAPPED_NAMES = {
    "any": "all",
    "all": "any",
    "min": "max",
    "max": "min",
    "argmin": "argmax",
    "argmax": "argmin",
    "amin": "amax",
    "amax": "amin",
    "minimum": "maximum",
    "maximum": "minimum",
}
ELSEWHERE = {"ray_engine", "kills"}  # fixtures that start other processes
EXIT_USAGE, EXIT_NO_TESTS = 4, 5
Lines = dict[str, list[int]]  # path in the tree: line numbers


@dataclass(frozen=True)
class Mutant:
    """One fault: what to write in place of some bytes of a file."""

    path: str
    line: int
    statement_line: int
    where: str  # qualified name of the function or class around it
    at_import: bool  # whether the fault is outside every function body
    kind: str
    start: int
    end: int
    before: str
    after: str
    occurrence: int = 0

    @property
    def package(self) -> str:
        """The mutated package, by its name."""
        return self.path.split("/")[2]

    @property
    def key(self) -> str:
        """What the mutant is, without line numbers: the same after edits elsewhere."""
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        number = f" #{self.occurrence}" if self.occurrence else ""
        return f"{self.path}::{self.where}: {self.kind}: {before} -> {after}{number}"


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
    seconds: float


class Mutator(ast.NodeVisitor):
    """Collects every mutant of one file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.mutants: list[Mutant] = []
        self._path, self._source = path, source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._names: list[str] = []
        self._functions = 0
        self._statement_line = 1
        self._seen: dict[str, int] = {}

    def visit(self, node: ast.AST) -> None:
        """Note the mutants of a node and go on below it."""
        if isinstance(node, ast.stmt):
            self._statement_line = node.lineno
        super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Look at defaults and body; decorators and annotations stay."""
        self._names.append(node.name)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._functions += 1
        for statement in _without_docstring(node.body):
            self.visit(statement)
        self._functions -= 1
        self._names.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Look at the body."""
        self._names.append(node.name)
        for statement in _without_docstring(node.body):
            self.visit(statement)
        self._names.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Look at the value, not at the annotation."""
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave assertions: they guard invariants that no test can break."""

    def visit_If(self, node: ast.If) -> None:
        """Negate the condition."""
        if ast.unparse(node.test) not in ("TYPE_CHECKING", "__name__ == '__main__'"):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        """Negate the condition."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Negate the condition."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Negate the conditions."""
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Swap each comparison, with its limit or for its opposite."""
        operands = [node.left, *node.comparators]
        for place, operator in enumerate(node.ops):
            swapped = SWAPPED_COMPARISONS[type(operator)]
            self._between("comparison", node, operands[place], operands[place + 1], swapped)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Swap the operator."""
        swapped = SWAPPED_OPERATORS.get(type(node.op))
        if swapped is not None and not _is_text(node.left) and not _is_text(node.right):
            self._between("arithmetic", node, node.left, node.right, swapped)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Swap the operator, and leave the statement out."""
        swapped = SWAPPED_OPERATORS.get(type(node.op))
        if swapped is not None:
            self._between("arithmetic", node, node.target, node.value, f"{swapped}=")
        self._replace("statement", node, "pass")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Swap ``and`` and ``or``."""
        word = " or " if isinstance(node.op, ast.And) else " and "
        self._replace("boolean", node, f"({word.join(f'({self._text(v)})' for v in node.values)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Leave ``not``, ``-`` and ``~`` out."""
        if not isinstance(node.operand, ast.Constant):
            self._replace("unary", node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Make a number one larger and one smaller, a truth its opposite."""
        if isinstance(node.value, bool):
            self._replace("constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            for changed in (node.value + 1, node.value - 1):
                self._replace("constant", node, f"({changed!r})")

    def visit_Call(self, node: ast.Call) -> None:
        """Leave keyword arguments out; swap any, all, min and max."""
        for keyword in node.keywords:
            # zip(strict=) guards an invariant, as an assertion does
            if keyword.arg not in (None, "strict"):
                kept = [
                    f"({self._text(a)})" if not isinstance(a, ast.Starred) else self._text(a)
                    for a in node.args
                ]
                kept += [self._text(k) for k in node.keywords if k is not keyword]
                called = f"{self._text(node.func)}({', '.join(kept)})"
                self._replace("keyword", node, called, shown=f"{keyword.arg}= left out")
        name = node.func.attr if isinstance(node.func, ast.Attribute) else self._text(node.func)
        if name in SWAPPED_NAMES:
            end = self._span(node.func)[1]
            self._splice("name", node, end - len(name), end, SWAPPED_NAMES[name])
        for part in (node.func, *node.args, *(k.value for k in node.keywords if k.arg != "strict")):
            self.visit(part)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave the statement out, unless it only describes or logs."""
        if not _is_text(node.value) and not self._text(node).startswith(
            ("logger.", "logging.", "_log.", "log.", "...")
        ):
            self._replace("statement", node, "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Leave out what is stored in an object; a name never bound would fail at once."""
        named = [t for target in node.targets for t in getattr(target, "elts", [target])]
        if not any(isinstance(target, ast.Name) for target in named):
            self._replace("statement", node, "pass")
        if self._text(node.targets[0]) != "__all__":
            self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        """Leave the statement out."""
        self._replace("statement", node, "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave the statement out."""
        if "NotImplementedError" not in self._text(node):
            self._replace("statement", node, "pass")
            self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        """Return nothing."""
        if node.value is not None and self._text(node.value) != "None":
            self._replace("return", node, "return None")
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):  # else: unary
            self._replace("condition", test, f"(not ({self._text(test)}))")

    def _between(
        self, kind: str, node: ast.expr | ast.stmt, left: ast.expr, right: ast.expr, swapped: str
    ) -> None:
        start, end = self._span(left)[1], self._span(right)[0]
        between = self._source[start:end].decode()
        # Parentheses belong to the operands: "(a) < (b" has ") < (" in between.
        closing = between[: len(between) - len(between.lstrip(") \n\t"))]
        opening = between[len(between.rstrip("( \n\t")) :]
        if "#" not in between:
            self._splice(kind, node, start, end, f"{closing} {swapped} {opening}")

    def _replace(
        self, kind: str, node: ast.expr | ast.stmt, text: str, *, shown: str | None = None
    ) -> None:
        self._splice(kind, node, *self._span(node), text, shown=shown)

    def _splice(
        self,
        kind: str,
        node: ast.expr | ast.stmt,
        start: int,
        end: int,
        text: str,
        *,
        shown: str | None = None,
    ) -> None:
        first, last = self._span(node)
        whole = self._source[first:last].decode()
        changed = (self._source[first:start] + text.encode() + self._source[end:last]).decode()
        mutant = Mutant(
            path=self._path,
            line=node.lineno,
            statement_line=self._statement_line,
            where=".".join(self._names) or "module",
            at_import=self._functions == 0,
            kind=kind,
            start=first,
            end=last,
            before=whole,
            after=changed,
        )
        if shown is not None:  # what a key says of a long call
            mutant = replace(mutant, kind=f"{kind} {shown}")
        number = self._seen[mutant.key] = self._seen.get(mutant.key, -1) + 1
        self.mutants.append(replace(mutant, occurrence=number))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    return body[1:] if isinstance(first, ast.Expr) and _is_text(first.value) else body


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def sources(package: str) -> list[Path]:
    """Return the files of a package, in order; kernels for a GPU only where they can be run."""
    found = sorted((ROOT / "src" / "evergraph" / package).rglob("*.py"))
    return found if find_spec("triton") else [p for p in found if not p.match("triton_*.py")]


def mutants_of(package: str) -> list[Mutant]:
    """Return every mutant of a package, in the order of its files."""
    found: list[Mutant] = []
    for path in sources(package):
        source = path.read_bytes()
        mutator = Mutator(path.relative_to(ROOT).as_posix(), source)
        for statement in _without_docstring(ast.parse(source).body or [ast.Pass()]):
            mutator.visit(statement)
        found += mutator.mutants
    return found


def sample(count: int, *, seed: int) -> list[Mutant]:
    """Return that many mutants, each package's share in proportion to its lines."""
    lines = {p: sum(len(f.read_bytes().splitlines()) for f in sources(p)) for p in PRELOADED}
    chosen: list[Mutant] = []
    for package in PRELOADED:
        share = round(count * lines[package] / sum(lines.values()))
        chosen += sorted(mutants_of(package), key=lambda m: _rank(m, seed))[:share]
    return chosen


def _rank(mutant: Mutant, seed: int) -> str:
    return hashlib.sha256(f"{seed} {mutant.key}".encode()).hexdigest()


def copy_tree() -> None:
    """Copy what the tests need to the folder of work."""
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__", "results", "*.egg-info")
    for name in ("src", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, TREE / name, ignore=ignored)
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy2(ROOT / name, TREE)


def _fingerprints() -> dict[str, str]:
    """Return what the lines that each test file reaches depend on: itself and all sources."""
    tests = [path for p in PRELOADED for path in sorted((TREE / "tests" / p).rglob("test_*.py"))]
    common = hashlib.sha256()
    fixtures = {*(TREE / "tests").rglob("conftest.py"), *(TREE / "tests" / "support").glob("*.py")}
    for path in sorted({*(TREE / "src").rglob("*.py"), *fixtures}):
        common.update(path.read_bytes())
    found = {f"src/evergraph/{package}": common.hexdigest() for package in PRELOADED}
    for path in tests:
        digest = common.copy()
        digest.update(path.read_bytes())
        found[path.relative_to(TREE).as_posix()] = digest.hexdigest()
    return found


class Tracer:
    """A pytest plugin that notes which lines of the packages each test runs."""

    def __init__(self) -> None:
        self.reached: dict[str, Reached] = {}
        self._failed: set[str] = set()
        self._fixtures: dict[tuple[str, str], set[tuple[str, int]]] = {}
        self._lines: set[tuple[str, int]] = set()
        self._wanted: dict[str, str | None] = {}
        self._tree = f"{TREE}/"
        self._packages = tuple(f"{TREE}/src/evergraph/{package}/" for package in PRELOADED)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Leave out what happens in other processes, which are not mutated, and take long."""
        items[:] = [item for item in items if not ELSEWHERE.intersection(_fixtures(item))]

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> None:
        """Begin anew with a test."""
        self._lines, self._began = set(), _processor_seconds()
        threading.settrace(self._call)
        sys.settrace(self._call)

    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        """Keep the lines of a fixture for the other tests that use it."""
        before, self._lines = self._lines, set()
        yield
        self._fixtures.setdefault((fixturedef.baseid, fixturedef.argname), set()).update(
            self._lines
        )
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
            wanted = name.startswith(self._packages)
            self._wanted[name] = name.removeprefix(self._tree) if wanted else None
        path = self._wanted[name]
        if path is None:
            return None
        lines = self._lines

        def line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            lines.add((path, frame.f_lineno))
            return line

        return line(frame, event, argument)


def _fixtures(item: Any) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


def _by_file(lines: set[tuple[str, int]]) -> Lines:
    found: Lines = {}
    for path, line in sorted(lines):
        found.setdefault(path, []).append(line)
    return found


def _processor_seconds() -> float:
    return sum(os.times()[:4])  # with the processes it waited for


class Chosen:
    """A pytest plugin that runs some tests only, in an order, and says which one failed."""

    def __init__(self, nodeids: list[str], told: Path) -> None:
        files: dict[str, int] = {}
        for nodeid in nodeids:  # a file's tests stay together, as its fixtures do
            files.setdefault(nodeid.split("::")[0], len(files))
        self._order = {
            nodeid: (files[nodeid.split("::")[0]], place) for place, nodeid in enumerate(nodeids)
        }
        self._told = told

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the chosen ones."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order),
            key=lambda item: self._order[item.nodeid],
        )

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a failure."""
        if report.failed:
            self._told.write_text(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self._told.write_text(f"import of {report.nodeid}")


def run_pytest(arguments: list[str], plugin: object) -> int:
    """Run pytest in the copy of the tree; return its exit code."""
    import pytest
    from hypothesis import Phase, settings

    phases = (Phase.explicit, Phase.generate)  # one failure is enough: no shrinking
    settings.register_profile("mutants", deadline=None, derandomize=True, phases=phases)
    settings.load_profile("mutants")
    plain = ["-q", "-p", "no:cacheprovider", f"--basetemp={WORK / 'tmp'}", f"--rootdir={TREE}"]
    return int(pytest.main([*plain, *arguments], plugins=[plugin]))


def forked(work: Callable[[], int], *, log: Path, seconds: float) -> int:
    """Run something in a child process; return its exit code, or minus a signal's number."""
    child = os.fork()
    if child == 0:
        code = 1  # unless it ends well
        try:
            os.setsid()
            with log.open("w") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            limit = int(_processor_seconds() + seconds) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            code = work()
        finally:
            sys.stdout.flush()
            os._exit(code)
    deadline = time.monotonic() + 10 * seconds  # waiting costs no processor time
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests may have started
    return os.waitstatus_to_exitcode(status)


def trace() -> dict[str, Reached]:
    """Return what each test reaches; only files that changed since the last time are run."""
    kept, log = WORK / "reached.json", WORK / "trace.log"
    now = _fingerprints()
    before = json.loads(kept.read_text()) if kept.exists() else {"files": {}, "tests": {}}
    changed = [path for path in now if before["files"].get(path) != now[path]]
    if changed:
        print(f"running {len(changed)} files of tests under a tracer (minutes) ...", flush=True)
        found = WORK / "traced.json"
        found.unlink(missing_ok=True)
        code = forked(lambda: _trace(changed, found), log=log, seconds=3600)
        if code not in (0, 1):
            raise SystemExit(f"pytest ended with {code}: see {log}")
        stays = tuple(path for path in now if path not in changed)
        tests = {n: test for n, test in before["tests"].items() if n.startswith(stays)}
        tests |= json.loads(found.read_text())
        kept.write_text(json.dumps({"files": now, "tests": tests}))
    tests = json.loads(kept.read_text())["tests"]
    return {name: Reached(**test) for name, test in tests.items()}


def _trace(paths: list[str], found: Path) -> int:
    tracer = Tracer()
    code = run_pytest(paths, _wrapped(tracer))
    found.write_text(json.dumps({name: asdict(test) for name, test in tracer.reached.items()}))
    return code


def _wrapped(tracer: Tracer) -> Tracer:
    import pytest

    wrapper = pytest.hookimpl(wrapper=True)
    Tracer.pytest_fixture_setup = wrapper(Tracer.pytest_fixture_setup)  # type: ignore[method-assign]
    first = pytest.hookimpl(tryfirst=True)
    Tracer.pytest_runtest_protocol = first(Tracer.pytest_runtest_protocol)  # type: ignore[method-assign]
    return tracer


def tests_for(
    mutant: Mutant, reached: dict[str, Reached], *, slowest: float, budget: float
) -> list[str]:
    """Return the tests that run the mutant's line, fastest first, as many as the budget allows.

    What happens at import (constants, defaults) is seen by every test that runs anything in the
    file, then by every test of the package.
    """
    lines = {mutant.line, mutant.statement_line}
    near: list[tuple[float, str]] = []
    far: list[tuple[float, str]] = []
    for name, test in reached.items():
        if test.seconds > slowest:
            continue
        here = test.lines.get(mutant.path, [])
        if (here and mutant.at_import) or lines.intersection(here):
            near.append((test.seconds, name))
        elif mutant.at_import and f"/{mutant.package}/" in name:
            far.append((test.seconds, name))
    chosen: list[str] = []
    left = budget
    for seconds, name in (*sorted(near), *sorted(far)):
        left -= seconds
        if left < 0 and chosen:
            break
        chosen.append(name)
    return chosen


def judge(mutant: Mutant, nodeids: list[str], *, seconds: float) -> Verdict:
    """Write the mutant, run the tests, put the file back."""
    began = time.monotonic()
    if not nodeids:
        return Verdict(mutant.key, mutant.line, "unreached", "", 0, 0.0)
    path, told = TREE / mutant.path, WORK / "failed.txt"
    source, times = path.read_bytes(), path.stat()
    changed = source[: mutant.start] + mutant.after.encode() + source[mutant.end :]
    compile(changed, mutant.path, "exec")
    told.unlink(missing_ok=True)
    path.write_bytes(changed)
    try:
        files = list(dict.fromkeys(nodeid.split("::")[0] for nodeid in nodeids))
        code = forked(
            lambda: _run_chosen(files, Chosen(nodeids, told)),
            log=WORK / "last.log",
            seconds=seconds,
        )
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # so that byte code still counts
    by = told.read_text() if told.exists() else f"exit {code}"
    if code in (EXIT_USAGE, EXIT_NO_TESTS) and not told.exists():
        raise SystemExit(f"no test could be run for {mutant.key}: see {WORK / 'last.log'}")
    outcome = "killed" if code else "survived"
    took = round(time.monotonic() - began, 1)
    return Verdict(mutant.key, mutant.line, outcome, by if code else "", len(nodeids), took)


def _run_chosen(files: list[str], chosen: Chosen) -> int:
    # A file of sources that pytest is the first to import, for its examples, is run twice: by its
    # package and by pytest. What registers itself in there would then fail without any fault.
    for path in files:
        if path.startswith("src/"):
            import_module(path.removeprefix("src/").removesuffix(".py").replace("/", "."))
    return run_pytest(["-x", *files], chosen)


def preload(package: str) -> None:
    """Import what lies below a package, once for all its mutants."""
    for name in PRELOADED[package]:
        import_module(f"evergraph.{name}")
    mutated = f"evergraph.{package}"
    assert not any(n == mutated or n.startswith(f"{mutated}.") for n in sys.modules), mutated


def report(verdicts: list[Verdict], *, equivalent: set[str]) -> str:
    """Return the score of each package, and what survived."""
    rows = [
        "| package | mutants | equivalent | killed | unreached | score |",
        "|---|---|---|---|---|---|",
    ]
    for package in (*PRELOADED, ""):
        mine = [v for v in verdicts if v.key.startswith(f"src/evergraph/{package}")]
        same = sum(v.outcome != "killed" and v.key in equivalent for v in mine)
        killed = sum(v.outcome == "killed" for v in mine)
        unreached = sum(v.outcome == "unreached" for v in mine)
        if mine:
            score = f"{100 * killed / max(1, len(mine) - same):.1f} %"
            cells = (package or "all", len(mine), same, killed, unreached, score)
            rows.append(f"| {' | '.join(map(str, cells))} |")
    for verdict in verdicts:
        if verdict.outcome != "killed":
            known = "equivalent" if verdict.key in equivalent else verdict.outcome
            rows.append(f"{known} (line {verdict.line}, {verdict.tests} tests): {verdict.key}")
    return "\n".join(rows)


def main() -> None:
    """Sample, judge, report."""
    parser = argparse.ArgumentParser(description=f"Mutation score of {', '.join(PRELOADED)}.")
    parser.add_argument("--count", type=int, default=150, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which mutants")
    parser.add_argument("--only", default="", help="part of the path of the files to mutate")
    parser.add_argument("--again", action="append", default=[], help="key of a mutant to run")
    parser.add_argument("--slowest", type=float, default=4.0, help="seconds a test may cost")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of tests a mutant gets")
    parser.add_argument(
        "--least", type=float, default=0.0, help="fail below this score, in percent"
    )
    asked = parser.parse_args()
    if asked.again:
        chosen = [m for p in PRELOADED for m in mutants_of(p) if m.key in asked.again]
    else:
        chosen = sample(asked.count, seed=asked.seed)
    chosen = [mutant for mutant in chosen if asked.only in mutant.path]
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TREE / "src")}
    sys.path.insert(0, str(TREE / "src"))
    copy_tree()
    os.chdir(TREE)
    for name in THIRD_PARTY:
        import_module(name)
    reached = trace()
    sys.dont_write_bytecode = True
    equivalent = set(EQUIVALENT.read_text().splitlines()) if EQUIVALENT.exists() else set()
    verdicts: list[Verdict] = []
    for package in PRELOADED:
        preload(package)
        for mutant in (m for m in chosen if m.package == package):
            nodeids = tests_for(mutant, reached, slowest=asked.slowest, budget=asked.budget)
            expected = sum(reached[nodeid].seconds for nodeid in nodeids)
            verdict = judge(mutant, nodeids, seconds=20 + 3 * expected)
            if verdict.by.startswith(("exit", "import")):  # no test has failed: was it the fault?
                control = replace(mutant, after=mutant.before)
                if judge(control, nodeids, seconds=20 + 3 * expected).outcome == "killed":
                    raise SystemExit(f"{verdict.by} without a fault, too: see {WORK / 'last.log'}")
            verdicts.append(verdict)
            print(f"{len(verdicts)}/{len(chosen)} {verdict.outcome} {verdict.key}", flush=True)
            kept = WORK / f"seed-{asked.seed}.json"
            kept.write_text(json.dumps([asdict(v) for v in verdicts], indent=1))
    print(report(verdicts, equivalent=equivalent))
    same = sum(v.outcome != "killed" and v.key in equivalent for v in verdicts)
    killed = sum(v.outcome == "killed" for v in verdicts)
    if 100 * killed < asked.least * (len(verdicts) - same):
        raise SystemExit(f"the score is below {asked.least} %")


if __name__ == "__main__":
    main()
