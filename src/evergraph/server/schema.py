"""What the service answers, as JSON and in the OpenAPI document."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic import (
    BaseModel,
    Field,
    create_model,
)

from evergraph.online.delta import DeltaResult, Label, NodeId
from evergraph.online.folder.status import FolderStatus
from evergraph.online.monitor import Alarm
from evergraph.online.upsert import News
from evergraph.online.view import Answer, History, Status
from evergraph.online.view.explanation import Explanation, Voice
from evergraph.online.view.learner_view import Neighbourhood
from evergraph.online.view.suggestions import Suggestion
from evergraph.server.http import JSON

if TYPE_CHECKING:
    from evergraph.online.view import LearnerView

# What another name is told under than the record has for it.
TOLD_AS: dict[type, dict[str, str]] = {
    Voice: {"node": "id"},
    Explanation: {"node": "id", "label": "known"},
}
OF_THE_FOLDER = (
    "snapshot",
    "keys",
    "stopped",
    "snapshot_error",
    "snapshot_time",
    "stopped_since",
    "set_aside",
)
CLASSES = 5  # that are compared
MOST_NAMES = 1_000  # of classes, in a status: ``classes`` says how many there are


def told(record: Any) -> Any:
    """Return a record as JSON tells it; what is None unless it is asked for is left out then.

    >>> from evergraph.online.view import Prediction
    >>> told(Prediction("a", "x", 0.5))
    {'id': 'a', 'label': 'x', 'probability': 0.5}
    """
    if isinstance(record, (tuple, list)):
        return [told(part) for part in record]
    if not is_dataclass(record) or isinstance(record, type):
        return record
    kept = ((part, getattr(record, part.name)) for part in _parts(type(record)))
    return {p.told_as: told(v) for p, v in kept if v is not None or not p.optional}


class _Part(NamedTuple):
    """A field of a record: its name, the name it is told under, whether it may be left out."""

    name: str
    told_as: str
    optional: bool


@cache
def _parts(record: type) -> tuple[_Part, ...]:
    names = TOLD_AS.get(record, {})
    optional = {f.name for f in fields(record) if f.default is None} if is_dataclass(record) else ()
    return tuple(_Part(n, names.get(n, n), n in optional) for n in get_type_hints(record))


def described(record: type, name: str, **more: Any) -> type[BaseModel]:
    """Return a model of a record: its fields, with what its docstring says of each.

    name: of the model; more: other fields, in the manner of ``pydantic.create_model``.

    >>> described(DeltaResult, "Applied").model_fields["classes"].description
    'How many classes are known now.'
    """
    about = (record.__doc__ or "").split("\n\n")[0]
    own = _picked(record, *(part.name for part in _parts(record)))
    return create_model(name, __doc__=about, **(own | more))


def _picked(record: type, *names: str) -> dict[str, Any]:
    """Return some fields of a record, as a model has them."""
    hints, said = get_type_hints(record), _said(record)
    return {
        part.told_as: (
            _shown(hints[part.name]),
            Field(None if part.optional else ..., description=said.get(part.name)),
        )
        for part in _parts(record)
        if part.name in names
    }


def _shown(kind: Any) -> Any:
    """Return a type with the records in it described."""
    if get_args(kind):
        parts = tuple(_shown(part) for part in get_args(kind))
        return Union[parts] if get_origin(kind) is UnionType else get_origin(kind)[parts]  # noqa: UP007
    is_record = is_dataclass(kind) or is_typeddict(kind)
    return described(kind, kind.__name__) if is_record else kind


def _said(record: type) -> dict[str, str]:
    """Return what a docstring says of each attribute, as sentences."""
    _, _, listed = inspect.cleandoc(record.__doc__ or "").partition("Attributes:\n")
    listed = listed.split("\n\n")[0] + "\n"
    found = re.findall(r"^    (\w+): (.+?)(?=^    \w+: |\Z)", listed, re.DOTALL | re.MULTILINE)
    texts = {name: " ".join(text.split()).replace("``", "`") for name, text in found}
    return {name: f"{text[0].upper()}{text[1:].rstrip('.')}." for name, text in texts.items()}


@dataclass(frozen=True)
class Process:
    """A process that answers for a folder.

    Attributes:
        role: ``writer``, or ``reader`` where it follows what another process writes.
        pid: of the process.
        seq: after how many deltas its answers are.
        lag: how many deltas it knows of and has not applied yet.
        seconds: for how long it has been behind; 0 while it is not.
        alive: whether it answers.
    """

    role: str
    pid: int
    seq: int
    lag: int
    seconds: float
    alive: bool


class ErrorReply(BaseModel):
    """What was wrong, in one sentence. Nothing has changed."""

    error: str = Field(examples=["node 'paper-9' is not in the graph"])


class HealthReply(BaseModel):
    """The service lives."""

    status: str


class ColumnsReply(BaseModel):
    """How the columns of rows and tables are read, settled by the first of them."""

    columns: list[dict[str, str]] = Field(description="One a column, for people.")
    scheme: dict[str, Any] | None = Field(description="The same for programs; null: plain numbers.")


class KeyReply(BaseModel):
    """How far a stream was taken in that names its deltas by a prefix and their places."""

    key: str | None = Field(description="Of the newest delta whose key begins so, if there is one.")


class IdsReply(BaseModel):
    """Ids of nodes, in the order in which they came."""

    ids: list[NodeId]
    next: int | None = Field(description="What to give as `start` for those after them, if any.")


class ClassesReply(BaseModel):
    """Names of classes, in the order in which they came."""

    classes: list[Label]
    next: int | None = Field(description="What to give as `start` for those after them, if any.")


class Neighbour(BaseModel):
    """A node of an ego-subnetwork."""

    id: NodeId
    hops: int = Field(description="How far away it is.")
    label: Label | None = Field(description="Its class, if that is known.")
    weight: float | None = Field(description="Its share in the embedding, if that can be told.")


@dataclass(frozen=True)
class Suggestions:
    """Unlabelled nodes worth asking a person about.

    Attributes:
        seq: after how many deltas this was found.
        suggestions: the first one first.
    """

    seq: int
    suggestions: tuple[Suggestion, ...]


@dataclass(frozen=True)
class Alarms:
    """Whether predictions are worse than they were.

    Attributes:
        seq: after how many deltas this is so.
        alarms: the one that is raised, or none.
    """

    seq: int
    alarms: tuple[Alarm, ...]


SuggestionsReply = described(Suggestions, "Suggestions")
AlarmsReply = described(Alarms, "Alarms")
AppliedReply = described(DeltaResult, "Applied")
UpsertedReply = described(DeltaResult, "Upserted", news=(described(News, "News"), ...))
PredictionsReply = described(Answer, "Predictions")
HistoryReply = described(History, "History")
StatusReply = described(
    Status,
    "Status",
    names=(
        list[Label],
        Field(description=f"Of the newest {MOST_NAMES} classes, in the order in which they came."),
    ),
    waiting=(int, Field(description="Changes that wait to be learned.")),
    replicas=(
        list[described(Process, "Process")],  # type: ignore[misc]
        Field(description="The process that answers."),
    ),
    **_picked(FolderStatus, *OF_THE_FOLDER),
)
NodeReply = described(
    Explanation,
    "Node",
    label=(Label, Field(description="The class predicted.")),
    probability=(float, Field(description="Of that class.")),
    neighbours=(list[Neighbour], Field(description="The node itself first.")),
    edges=(list[tuple[int, int]], Field(description="Pairs of places in `neighbours`.")),
    weights=(
        list[float] | None,
        Field(None, description="Of these edges, if they have any."),
    ),
    **_picked(Neighbourhood, "whole"),
)


def node_reply(view: LearnerView, node: NodeId, limit: int) -> dict[str, Any]:
    """Return all that is told of a node, as JSON can hold it.

    limit: how many nodes around it are listed, and how many voices.
    """
    around, why = view.looked_up(node, top=CLASSES, limit=limit)
    weights = {voice.node: voice.weight for voice in why.voices or ()}
    places = zip(around.nodes, around.distances, around.labels, strict=True)
    near = [Neighbour(id=n, hops=h, label=la, weight=weights.get(n)) for n, h, la in places]
    return {
        "voices": None,
        **told(why),
        "label": why.classes[0],
        "probability": why.probabilities[0],
        "neighbours": [one.model_dump() for one in near],
        "edges": told(around.edges),
        "whole": around.whole,
        **({} if around.weights is None else {"weights": list(around.weights)}),
    }


MEANINGS = {
    400: "It ended early, or names a parameter or a key that is not known or comes twice.",
    401: "No token, or a wrong one.",
    403: "The token may not do this.",
    404: "A node or an edge that is not known.",
    409: "A node that is known already, a key that has other contents, or no class to predict yet.",
    413: "Too large.",
    415: "Another content type than those listed.",
    422: "Not what it should be.",
    429: "Too many requests: see Retry-After.",
    503: "Too busy, too slow or stopping: see Retry-After.",
    507: "The disk is full.",
}
ERROR = {"$ref": "#/components/schemas/ErrorReply"}
KEY_HEADER = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same key twice counts once. The same as the field `key`.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
        }
    ]
}


def accepts(model: type[BaseModel], *others: str) -> dict[str, Any]:
    """Return the description of a body: JSON, or bytes of other media types."""
    content: dict[str, Any] = {JSON: {"schema": model.model_json_schema()}}
    for kind in others:
        content[kind] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


def answers(model: type[BaseModel], *refusals: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of an answer and of what may be refused."""
    said: dict[int | str, dict[str, Any]] = {200: {"model": model, "description": "Done."}}
    for status in (400, *refusals):
        said[status] = {"model": ErrorReply, "description": MEANINGS[status]}
    return said
