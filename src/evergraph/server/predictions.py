"""Predictions as fast as they go: a lean route, and questions that wait are answered together.

Most requests ask for one node, and for these the framework's validation and dependencies cost more
than the prediction does. So ``POST /v1/predictions`` is a route whose handler is called with the
request itself; what it declares is for the OpenAPI document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from evergraph.online.identifiers import LARGEST
from evergraph.online.view import FEW, Answer
from evergraph.server.http import RefusedError, check_parameters

if TYPE_CHECKING:
    from evergraph.online.delta import NodeId


@dataclass(frozen=True)
class _Question:
    ids: Sequence[NodeId]
    every_class: bool
    answer: asyncio.Future[Answer]


class Together:
    """Answers small questions on the event loop, those that wait at the same moment in one call.

    Nobody waits for others to come: what has arrived by the time the loop gets to it is taken.

    Args:
        answer: returns the answer to ids; for ``True`` with the probabilities of all classes.
        most: nodes in one call.

    >>> def answer(ids, every_class):
    ...     return Answer(len(ids), tuple(ids))
    >>> async def asked():
    ...     together = Together(answer)
    ...     return await asyncio.gather(*(together.ask([node], False) for node in "abc"))
    >>> asyncio.run(asked())[1]  # all three were asked at once
    Answer(seq=3, predictions=('b',), classes=None)
    """

    def __init__(
        self, answer: Callable[[Sequence[NodeId], bool], Answer], *, most: int = FEW
    ) -> None:
        self._answer = answer
        self.most = most
        self._waiting: list[_Question] = []

    def ask(self, ids: Sequence[NodeId], every_class: bool) -> asyncio.Future[Answer]:
        """Return what will hold the answer, or what is wrong with the question."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._turn)
        question = _Question(ids, every_class, loop.create_future())
        self._waiting.append(question)
        return question.answer

    def _turn(self) -> None:
        """Answer those that wait; where there are many, some at a time."""
        some: list[_Question] = []
        count = 0
        for question in self._waiting:
            count += len(question.ids)
            if some and count > self.most:
                break
            some.append(question)
        del self._waiting[: len(some)]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        for every_class in (False, True):
            alike = [q for q in some if q.every_class == every_class and not q.answer.done()]
            if alike:
                self._answer_alike(alike, every_class)

    def _answer_alike(self, questions: Sequence[_Question], every_class: bool) -> None:
        try:
            found = self._answer([node for q in questions for node in q.ids], every_class)
        except Exception as error:
            if len(questions) > 1:  # one of them is wrong: the others need not suffer
                for question in questions:
                    self._answer_alike([question], every_class)
            else:
                questions[0].answer.set_exception(error)
            return
        start = 0
        for question in questions:
            part = found.predictions[start : (start := start + len(question.ids))]
            question.answer.set_result(Answer(found.seq, part, found.classes))


class LeanRoute(APIRoute):
    """A route whose endpoint is given the request, and does all that is to be done itself."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint as it is."""
        return self.endpoint


def after_in(query: bytes) -> int:
    """Return the number of the delta that an answer must know, 0 where it is not said.

    >>> after_in(b"after=12"), after_in(b"")
    (12, 0)
    """
    check_parameters(query, ["after"])
    text = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("after", ["0"])[-1]
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LARGEST:
        return int(text)
    raise RefusedError(422, f"after must be the seq of a delta, not {text[:40]!r}")
