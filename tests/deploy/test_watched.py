"""The dashboard and the rules ask for metrics that are there, and for all of them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.online.learner import OnlineLearner
from evergraph.server.app import create_app

DEPLOY = Path(__file__).parents[2] / "deploy"
OF_HISTOGRAM = ("_bucket", "_sum", "_count")
# What a dashboard can do without: told by others of them, or of use in rules alone.
LEFT_OUT = {
    "evergraph_keys",
    "evergraph_deltas_since",  # the same as replay_deltas
    "evergraph_start_time_seconds",  # in the rules
    "evergraph_process_start_time_seconds",
    "evergraph_process_virtual_memory_bytes",  # resident memory says what matters
    "evergraph_process_max_fds",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of all metrics that a service has, those among them that come with a snapshot."""
    folder = LearnerFolder.open(tmp_path_factory.mktemp("m") / "learner", make=OnlineLearner)
    full = replace(folder.status(), snapshot_time=0.0, snapshot_seconds=1.0)
    folder.status = lambda: full
    with TestClient(create_app(folder), base_url="http://127.0.0.1") as client:
        told = text_string_to_metric_families(client.get("/metrics").text)
        return {f"{one.name}_total" if one.type == "counter" else one.name for one in told}


def asked(expression: str) -> set[str]:
    """Return the names of metrics in an expression, those of histograms without their parts."""
    names = set(re.findall(r"\bevergraph_\w+", expression))
    parts = re.compile(rf"({'|'.join(OF_HISTOGRAM)})$")
    return {parts.sub("", name) if "request_seconds" in name else name for name in names}


def expressions(panel: dict[str, Any]) -> list[str]:
    inner = [e for one in panel.get("panels", ()) for e in expressions(one)]
    return [target["expr"] for target in panel.get("targets", ())] + inner


def test_the_dashboard_asks_for_what_there_is_and_all_of_it(told):
    board = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
    names = {name for panel in board["panels"] for e in expressions(panel) for name in asked(e)}
    assert names <= told
    assert told - names == LEFT_OUT


def test_the_dashboard_is_one_that_grafana_reads():
    board = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
    assert board["schemaVersion"] >= 39
    sources = [v for v in board["templating"]["list"] if v["type"] == "datasource"]
    assert [(v["name"], v["query"]) for v in sources] == [("datasource", "prometheus")]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == ["Traffic", "Learning", "Durability", "Quality", "Process"]
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies over another"
        taken |= cells
        for one in (panel, *panel.get("targets", ())):
            assert panel["type"] == "row" or one["datasource"]["uid"] == "${datasource}"
        for expression in expressions(panel):
            assert expression.count("(") == expression.count(")")
            assert expression.count("{") == expression.count("}")
            assert 'job="$job"' in expression


def test_the_rules_ask_for_what_there_is(told):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (group,) = yaml.safe_load((DEPLOY / "prometheus-rules.yaml").read_text("utf-8"))["groups"]
    rules = group["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert asked(rule["expr"]) <= told, rule["alert"]
        assert asked(rule["expr"]) or rule["expr"].startswith("up{")
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
        assert rule["expr"].count("(") == rule["expr"].count(")")
