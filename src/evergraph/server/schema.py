"""Answers of the service: records as JSON, and their models in the OpenAPI document."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, Field, create_model

from evergraph.core.targets import target_kinds, target_of
from evergraph.online.delta import DeltaResult, Label, NodeId
from evergraph.online.folder.markers import FolderStatus
from evergraph.online.monitor import Alarm
from evergraph.online.upsert import News
from evergraph.online.view import Answer, History, Status
from evergraph.online.view.explanation import Explanation, Voice
from evergraph.online.view.learner_view import Neighbourhood
from evergraph.online.view.suggestions import Suggestion

if TYPE_CHECKING:
    from evergraph.online.view import LearnerView

# Fields whose name in JSON differs from that in the record.
JSON_NAMES: dict[type, dict[str, str]] = {
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
CLASSES = 5  # that an explanation compares
MAX_NAMES = 1_000  # names of classes in a status; its ``classes`` counts all of them


def with_known(predicted: Answer, known: Sequence[Any]) -> dict[str, Any]:
    """Return predictions as JSON can hold them, each with the target that is known of its node."""
    answer: dict[str, Any] = to_json(predicted)
    for prediction, target in zip(answer["predictions"], known, strict=True):
        prediction["known"] = target
    return answer


def to_json(record: Any) -> Any:
    """Return a record as JSON can hold it, without optional fields that are None."""
    if isinstance(record, (tuple, list)):
        return [to_json(part) for part in record]
    if not is_dataclass(record) or isinstance(record, type):
        return record
    values = ((*part[1:], getattr(record, part[0])) for part in _parts(type(record)))
    return {name: to_json(v) for name, optional, v in values if v is not None or not optional}


@cache
def _parts(record: type) -> tuple[tuple[str, str, bool], ...]:
    """Return for each field of a record its name, its name in JSON, and whether it is optional."""
    names = JSON_NAMES.get(record, {})
    optional = {f.name for f in fields(record) if f.default is None} if is_dataclass(record) else ()
    return tuple((n, names.get(n, n), n in optional) for n in get_type_hints(record))


def described(record: type, name: str, **more: Any) -> type[BaseModel]:
    """Return a pydantic model of a record, with its docstring as descriptions.

    more: further fields, as ``pydantic.create_model`` takes them.
    """
    about = (record.__doc__ or "").split("\n\n")[0]
    return create_model(name, __doc__=about, **(_model_fields(record) | more))


def _model_fields(record: type, *names: str) -> dict[str, Any]:
    """Return some fields of a record, or all, as ``pydantic.create_model`` takes them."""
    hints, doc = get_type_hints(record), inspect.cleandoc(record.__doc__ or "")
    # The section ``Attributes`` of its docstring: a sentence for each name.
    listed = doc.partition("Attributes:\n")[2].split("\n\n")[0] + "\n"
    sentences = re.findall(r"^    (\w+): (.+?)(?=^    \w+: |\Z)", listed, re.DOTALL | re.MULTILINE)
    texts = {name: " ".join(text.split()).replace("``", "`") for name, text in sentences}
    about = {name: f"{text[0].upper()}{text[1:].rstrip('.')}." for name, text in texts.items()}
    return {
        json_name: (
            _model_type(hints[name]),
            Field(None if optional else ..., description=about.get(name)),
        )
        for name, json_name, optional in _parts(record)
        if name in (names or hints)
    }


def _model_type(kind: Any) -> Any:
    # Records inside are replaced by their models.
    if get_args(kind):
        parts = tuple(_model_type(part) for part in get_args(kind))
        return Union[parts] if get_origin(kind) is UnionType else get_origin(kind)[parts]  # noqa: UP007
    is_record = is_dataclass(kind) or is_typeddict(kind)
    return described(kind, kind.__name__) if is_record else kind


class ErrorReply(BaseModel):
    """What was wrong, in one sentence. Nothing was changed."""

    error: str = Field(examples=["node 'paper-9' is not in the graph"])


class HealthReply(BaseModel):
    """The process is alive."""

    status: str


class ColumnsReply(BaseModel):
    """How the columns of rows and tables are read, as fixed by the first table."""

    columns: list[dict[str, str]] = Field(description="One entry per column, for people.")
    scheme: dict[str, Any] | None = Field(description="The same for programs; null: plain numbers.")


class KeyReply(BaseModel):
    """How far a stream has been ingested whose delta keys share a prefix."""

    key: str | None = Field(description="Newest delta key with this prefix, if there is one.")


class IdsReply(BaseModel):
    """Ids of nodes, in order of arrival."""

    ids: list[NodeId]
    next: int | None = Field(description="`start` of the next page, if there is one.")


class ClassesReply(BaseModel):
    """Names of classes, in order of arrival."""

    classes: list[Label]
    next: int | None = Field(description="`start` of the next page, if there is one.")


class Neighbour(BaseModel):
    """A node of an ego-subnetwork."""

    id: NodeId
    hops: int = Field(description="Its distance from the node.")
    label: Label | None = Field(description="Its class, if known.")
    weight: float | None = Field(description="Its share in the embedding, if it is defined.")


SuggestionsReply = create_model(
    "Suggestions",
    __doc__="Unlabelled nodes that are worth labelling next.",
    seq=(int, Field(description="Deltas that the suggestions include.")),
    suggestions=(_model_type(tuple[Suggestion, ...]), Field(description="The best first.")),
)
AlarmsReply = create_model(
    "Alarms",
    __doc__="The accuracy alarm, while it is raised.",
    seq=(int, Field(description="Deltas that the answer includes.")),
    alarms=(_model_type(tuple[Alarm, ...]), Field(description="The alarm, or none.")),
)
AppliedReply = described(DeltaResult, "Applied")
UpsertedReply = described(DeltaResult, "Upserted", news=(described(News, "News"), ...))


def _prediction_model() -> Any:
    """Return the model of a prediction, of any kind of targets."""
    known = Field(None, description="What is known of the node, null if nothing is; if requested.")
    records = dict.fromkeys(target_of(kind).prediction for kind in target_kinds.names())
    models = (described(record, record.__name__, known=(Any, known)) for record in records)
    return Union[tuple(models)]  # noqa: UP007


PredictionsReply = described(
    Answer,
    "Predictions",
    predictions=(list[_prediction_model()], ...),  # type: ignore[misc]
)
HistoryReply = described(History, "History")
StatusReply = described(
    Status,
    "Status",
    names=(
        list[Label],
        Field(description=f"Names of the newest {MAX_NAMES} classes, in order of arrival."),
    ),
    waiting=(int, Field(description="Changes in the queue.")),
    role=(
        str,
        Field(
            description="Of the process: `writer`, or `reader` if it follows the one that writes."
        ),
    ),
    lag=(int, Field(description="Acknowledged deltas that it has not applied yet.")),
    lag_seconds=(float, Field(description="Time since it was last up to date; 0 while it is.")),
    **_model_fields(FolderStatus, *OF_THE_FOLDER),
)
NodeReply = described(
    Explanation,
    "Node",
    label=(Label | float, Field(description="The predicted class, likeliest label, or number.")),
    probability=(float | None, Field(description="Its probability; null for a number.")),
    neighbours=(list[Neighbour], Field(description="The node itself, then those around it.")),
    edges=(list[tuple[int, int]], Field(description="Pairs of indices into `neighbours`.")),
    weights=(
        list[float] | None,
        Field(None, description="Weights of these edges, if the graph has weights."),
    ),
    **_model_fields(Neighbourhood, "whole"),
)


def node_reply(
    view: LearnerView, node: NodeId, limit: int, columns: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the explanation of a node with its neighbourhood, as JSON can hold it.

    limit: of neighbours, and of contributions; columns: the user's column of each feature.
    """
    with view.reading():  # both of the same delta
        neighbourhood = view.neighbourhood(node, limit=limit)
        explanation = view.explain(node, top=CLASSES, limit=limit, columns=columns)
    weights = {voice.node: voice.weight for voice in explanation.voices or ()}
    listed = zip(neighbourhood.nodes, neighbourhood.distances, neighbourhood.labels, strict=True)
    return {
        "voices": None,
        **to_json(explanation),
        "label": explanation.classes[0] if explanation.classes else explanation.scores[0],
        "probability": explanation.probabilities[0] if explanation.probabilities else None,
        "neighbours": [  # as in ``Neighbour``
            {"id": n, "hops": hops, "label": label, "weight": weights.get(n)}
            for n, hops, label in listed
        ],
        "edges": to_json(neighbourhood.edges),
        "whole": neighbourhood.whole,
        **({} if neighbourhood.weights is None else {"weights": list(neighbourhood.weights)}),
    }


MEANINGS = {
    400: "The body ended early, or a parameter or key is unknown or repeated.",
    401: "The token is missing or invalid.",
    403: "The token does not allow this.",
    404: "A node or an edge does not exist.",
    409: "A node exists already, a key was used for other contents, or nothing is labelled yet.",
    413: "The body or the answer would be too large.",
    415: "The content type is not one of those listed.",
    422: "The contents break a rule.",
    429: "Too many requests, at once or per second: see Retry-After.",
    503: "Busy, slow or stopping: see Retry-After.",
    507: "The disk is full.",
}
ERROR = {"$ref": "#/components/schemas/ErrorReply"}
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A delta with a known key is not applied again. Same as field `key`.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}


def query_parameter(name: str, about: str, **more: Any) -> dict[str, Any]:
    """Return the OpenAPI description of a text in the query."""
    text = {"type": "string", **more}
    return {"name": name, "in": "query", "required": False, "description": about, "schema": text}


def parameters(*described: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI description of headers and query parameters."""
    return {"parameters": [*described]}


def accepts(model: type[BaseModel], *others: str) -> dict[str, Any]:
    """Return the OpenAPI description of a body: JSON, or bytes of other media types."""
    content: dict[str, Any] = {"application/json": {"schema": _schema_of(model)}}
    for kind in others:
        content[kind] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


@cache  # a fifth of the time that an application takes to be made
def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def answers(model: type[BaseModel], *refusals: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of an answer and of the errors that may come instead."""
    by_status: dict[int | str, dict[str, Any]] = {
        200: {"model": model, "description": "Done."},
        400: {"model": ErrorReply, "description": MEANINGS[400]},
    }
    for status in refusals:  # FastAPI would make a validator of each model, which takes its time
        by_status[status] = {
            "content": {"application/json": {"schema": ERROR}},
            "description": MEANINGS[status],
        }
    return by_status
