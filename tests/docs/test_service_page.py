"""The page on the service names what the service has: routes, fields of a delta, options."""

from __future__ import annotations

import re
from pathlib import Path

from evergraph.cli.app import _load
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner
from evergraph.server.app import create_app
from evergraph.server.bodies import DeltaBody

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "service.md").read_text("utf-8")
OTHERS = "".join(
    (DOCS / f"{name}.md").read_text("utf-8") for name in ("operations", "live-in-depth")
)


def test_every_route_is_on_the_page(tmp_path: Path) -> None:
    folder = LearnerFolder.open(tmp_path / "learner", make=OnlineLearner)
    described = create_app(folder).openapi()["paths"]
    folder.close()
    routes = {
        f"{method.upper()} {path.replace('{node}', '{id}')}"
        for path, methods in described.items()
        for method in methods
    }
    named = {found.split("?")[0] for found in re.findall(r"`((?:GET|POST) /[^`]*)`", PAGE)}
    assert len(routes) > 15
    assert routes <= named
    assert named - routes == {"GET /", "GET /openapi.json"}


def test_fields_and_options_are_on_the_pages() -> None:
    table = PAGE.split("### A delta")[1].split("### Arrow")[0]
    assert {name for name in DeltaBody.model_fields if f"`{name}`" not in table} == set()
    # Every option of serve is on some page.
    options = {each for parameter in _load("serve").params for each in parameter.opts}
    assert {each for each in options if each not in PAGE + OTHERS} <= {"--help"}
