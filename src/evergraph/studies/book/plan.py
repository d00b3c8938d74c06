"""What the book is to hold: chapters of datasets, and every method on each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from evergraph.core.errors import ConfigurationError, UnknownNameError
from evergraph.experiments.bench.config import BenchConfig, MethodEntry, Values
from evergraph.experiments.bench.jobs import Job, expand
from evergraph.experiments.config import Section, complaint, merged, read_toml
from evergraph.methods import methods

PLAN = Path(str(resources.files("evergraph.studies.book"))) / "book.toml"


class Chapter(Section):
    """Some datasets in some settings: a benchmark that leaves its methods to the book."""

    name: str
    datasets: tuple[Any, ...] = Field(min_length=1)
    settings: tuple[str, ...] = ("class-il",)
    seeds: tuple[int, ...] = Field(min_length=1)
    common: Values = Field(default_factory=dict)


class BookPlan(Section):
    """The whole plan.

    Attributes:
        limit: the most seconds that one seed may take.
        common: values of ``RunConfig`` for every run.
        methods: by name, or as a benchmark describes them; registered ones follow.
        chapters: what they are run on.
        facts: what tells each graph from others, by the dataset's label.
        absent: why a graph that one would look for is not there.

    >>> [chapter.name for chapter in read_plan().chapters]
    ['ladders', 'graphs', 'wordnet', 'wordnet-ways']
    """

    limit: float
    common: Values = Field(default_factory=dict)
    methods: tuple[MethodEntry, ...] = ()
    chapters: tuple[Chapter, ...] = Field(min_length=1)
    facts: dict[str, dict[str, int | float]] = Field(default_factory=dict)
    absent: dict[str, str] = Field(default_factory=dict)

    @property
    def entries(self) -> tuple[MethodEntry, ...]:
        """Every method: those listed, then the other registered ones of our own."""
        listed = {entry.name for entry in self.methods}
        others = [name for name in methods.names() if name not in listed and _ours(name)]
        return (
            *self.methods,
            *(MethodEntry(name=name) for name in others),
        )

    def jobs(self, *, out: Path = Path(), over: Mapping[str, Any] | None = None) -> list[Job]:
        """Return a job for every row, the quickest first.

        out: where runs lie. over: values of ``RunConfig`` for all of them.
        """
        benches = [self._bench(chapter) for chapter in self.chapters]
        return [job for bench in benches for job in expand(bench, out=out, over=over)]

    def _bench(self, chapter: Chapter) -> BenchConfig:
        values = chapter.model_dump(exclude={"name"})
        common = merged(self.common, chapter.common)
        entries = [entry.model_dump() for entry in self.entries]
        return BenchConfig.of({**values, "common": common, "methods": entries})


def read_plan(path: Path = PLAN) -> BookPlan:
    """Return the plan of a TOML file, the shipped one unless given."""
    try:
        return BookPlan.model_validate(read_toml(path))
    except ValidationError as error:
        raise ConfigurationError(complaint(error, BookPlan, str(path))) from None


def only(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """Return the jobs of the methods, datasets and settings that are named; of each kind, all if
    none of it is.

    >>> some = only(read_plan().jobs(), ["tem", "finetune", "noise-2"])
    >>> [str(job) for job in some]
    ['finetune on noise-2, class-il', 'tem on noise-2, class-il']
    """
    known = {name for job in jobs for name in _names(job)}
    for name in names:
        if name not in known:
            raise UnknownNameError("method, dataset or setting", name, known)
    kinds = [{names_of[place] for names_of in map(_names, jobs)} & set(names) for place in range(3)]
    return [
        job
        for job in jobs
        if all(not kind or name in kind for kind, name in zip(kinds, _names(job), strict=True))
    ]


def located(job: Job, data: Path | None) -> Job | None:
    """Return a job whose graph is a file as that of a file in ``data``; None where it is not there.

    A dataset that is no file is left as it is.
    """
    name = job.config.dataset.name
    if not name.endswith(".npz"):
        return job
    if data is None or not (data / name).exists():
        return None
    dataset = job.config.dataset.model_copy(update={"name": str(data / name)})
    config = job.config.model_copy(update={"dataset": dataset})
    return Job(job.label, job.dataset, job.setting, config, job.folder)


def _names(job: Job) -> tuple[str, str, str]:
    return job.label, job.dataset, job.setting


def _ours(name: str) -> bool:
    """Whether a method is the library's own, and not one that a plugin of the user's brought."""
    return methods.resolve(name).__module__.startswith("evergraph.")
