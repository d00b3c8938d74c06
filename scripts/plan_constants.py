"""Put what ``evergraph plan --measure`` found on this machine into constants.toml.

evergraph plan --measure && python scripts/plan_constants.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from evergraph.datasets.base import default_cache
from evergraph.experiments.planning.constants import OWN

SHIPPED = Path(__file__).parents[1] / "src/evergraph/experiments/planning/constants.toml"


def main() -> None:
    """Replace every value, and leave the comments."""
    measured: dict[str, Any] = json.loads((default_cache() / OWN).read_text("utf-8"))
    text = SHIPPED.read_text("utf-8")
    for name, value in measured.items():
        line = f"{name} = {_written(value)}"
        text, found = re.subn(rf"^{name} = .*$", line, text, flags=re.M)
        assert found == 1, name
    SHIPPED.write_text(text, "utf-8")


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, float):
        return f"{value:_.0f}" if value >= 1e6 else f"{float(f'{value:.4g}')}"
    return json.dumps(value)


if __name__ == "__main__":
    main()
