"""The OpenAPI document is true: schemathesis asks the service whatever the document allows."""

import os
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.auth import Tokens
from evergraph.server.bodies import DeltaBody
from evergraph.server.http import Limits

ASKED = {"prefix", "start", "limit", "n", "after", "wait"}
TOKEN = "w" * 20
AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}
POSTED = ("deltas", "upsert", "labels", "forget", "refit", "compact", "predictions")
READ = (
    *("status", "columns", "history", "alarms", "suggestions", "ids", "classes", "keys"),
    *("nodes", "nodes/{node}", "predictions/{node}", "backup"),
)
ROUTES = (
    *((f"/v1/{name}", "POST") for name in POSTED),
    *((f"/v1/{name}", "GET") for name in READ),
    *((f"/v1/{name}", "DELETE") for name in ("nodes", "nodes/{node}")),
    *((name, "GET") for name in ("/healthz", "/readyz", "/metrics")),
)


@pytest.fixture(scope="module")
def document(learner: Any, first: Any, live: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a service that asks for a token, and listens, says of itself."""
    # Not at the top: every worker reads this file, one runs it.
    schemathesis: Any = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    folder = LearnerFolder.open(tmp_path_factory.mktemp("guarded") / "learner", make=learner)
    folder.submit(DeltaBody(**first).delta())
    tokens = Tokens((("write", TOKEN),))
    # Nobody sends deltas that are waited for.
    limits = Limits(rate=1e6, burst=10**6, guesses=1e6, patience=0.01)
    app = create_app(folder, tokens=tokens, limits=limits)
    return schemathesis.openapi.from_url(f"{live(app)}/openapi.json", wait_for_schema=10)


EXAMPLES = 2 if os.environ.get("HYPOTHESIS_PROFILE", "gate") == "gate" else 100


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_a_route_keeps_to_the_document(document, path, method, mode):
    from schemathesis import GenerationMode, checks
    from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

    answered = set()

    @given(document[path][method].as_strategy(generation_mode=GenerationMode(mode)))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        answer = case.call(headers=AUTHORISED)
        # Widths and known ids are no matter of a schema, so what fits it may be refused.
        without = [positive_data_acceptance]
        if "after" in (case.query or ()):  # a delta that does not come is waited for in vain
            without.append(checks.not_a_server_error)
        else:
            answered.add(answer.status_code)
        # On their way headers lose blanks, which may mend them; parameters in the address that
        # nobody asks for are passed over.
        if case.headers or set(case.query or ()) - ASKED:
            without.append(negative_data_rejection)
        case.validate_response(answer, headers=AUTHORISED, excluded_checks=without)

    with suppress(Unsatisfiable):  # nothing can be wrong with a route that takes nothing
        ask()
    assert all(status < 500 for status in answered)


def test_the_document_names_every_route_its_bodies_and_its_refusals(document):
    paths = document.raw_schema["paths"]
    told = {(path, method.upper()) for path, methods in paths.items() for method in methods}
    assert told == {*ROUTES, ("/v1/predictions", "GET")}
    deltas = paths["/v1/deltas"]["post"]
    assert set(deltas["requestBody"]["content"]) == {
        "application/json",
        "application/vnd.apache.arrow.stream",
    }
    example = deltas["requestBody"]["content"]["application/json"]["schema"]["example"]
    assert example["nodes"] == ["paper-1", "paper-2"]
    refusals = {"401", "403", "404", "409", "413", "415", "422", "429", "503", "507"}
    assert refusals <= set(deltas["responses"])
    assert deltas["security"]
