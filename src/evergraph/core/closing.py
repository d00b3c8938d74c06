"""Things that are closed at the end of a ``with``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

T = TypeVar("T", bound="Closing")


class Closing(ABC):
    """Something that holds a folder or processes until it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held; a second time does nothing."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
