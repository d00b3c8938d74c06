"""How far a long job is, in the log."""

from __future__ import annotations

import logging
import time

logger = logging.getLogger(__name__)

_EVERY = 10.0  # seconds


class Pace:
    """Says how far something is and how long it will take, every ten seconds and at its end.

    Args:
        what: is being done, such as ``papers: reading features``.

    >>> Pace("twin: drawing edges").tell(3, 4)  # nothing yet: ten seconds are not over
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._began = self._said = time.monotonic()

    def tell(self, done: int, total: int) -> None:
        """Take note of how much of the work is done."""
        now = time.monotonic()
        if done >= total:
            logger.info("%s: 100 %%, after %.0f s", self.what, now - self._began)
        elif done and now - self._said >= _EVERY:
            self._said = now
            left = (now - self._began) * (total - done) / done
            logger.info("%s: %.0f %%, about %.0f s left", self.what, 100 * done / total, left)
