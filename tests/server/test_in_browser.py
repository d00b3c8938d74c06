"""The page in a real browser."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

from evergraph.online.delta import Delta
from evergraph.online.folder.learner_folder import LearnerFolder
from evergraph.server.app import create_app
from evergraph.server.auth import Tokens

CLASSES = ("biology", "<b>physics</b>", "history", "law", 5)
READ = "r" * 20


def deltas(count: int) -> Iterator[Delta]:
    """Papers that cite papers of their own field; the field is known of four in five."""
    generator = np.random.default_rng(0)
    known = []
    for number in range(count):
        fields = generator.integers(min(2 + number // 2, len(CLASSES)), size=12)
        new = [(f"p{number}-{i}", int(field)) for i, field in enumerate(fields)]
        known += new
        noise = generator.normal(scale=0.6, size=(12, len(CLASSES)))
        places = [[p for p, other in known if other == field] for _, field in new]
        yield Delta(
            nodes=tuple(node for node, _ in new),
            features=torch.from_numpy((np.eye(len(CLASSES))[fields] + noise).astype(np.float32)),
            labels=tuple(None if i % 5 == 0 else CLASSES[f] for i, (_, f) in enumerate(new)),
            edges=tuple(
                (node, str(generator.choice(near)))
                for (node, _), near in zip(new, places, strict=True)
                for _ in range(2)
            ),
        )


@pytest.fixture(scope="module")
def folder(learner: Any, tmp_path_factory: pytest.TempPathFactory) -> LearnerFolder:
    opened = LearnerFolder.open(tmp_path_factory.mktemp("page") / "learner", make=learner)
    for delta in deltas(12):
        opened.submit(delta)
    return opened


@pytest.fixture(scope="module")
def url(folder: LearnerFolder, live: Any) -> str:
    return str(live(create_app(folder)))


@pytest.fixture
def show(chromium: Any, seen_as: Any, url: str, wait: Any) -> Callable[..., Any]:
    def opened(*, width: int = 1400, scheme: str = "light", at: str = url) -> Any:
        seen_as(width, scheme)
        chromium.get(at + "/")
        if at == url:
            wait("document.querySelector('.dot.live') && document.querySelector('td')")
        return chromium

    return opened


def look_up(browser: Any, wait: Any, node: str) -> None:
    field = browser.find_element("id", "node")
    field.clear()
    field.send_keys(node)
    browser.find_element("css selector", "#lookup button").click()
    wait("document.getElementById('lookup-said').textContent !== 'looking…'")


def texts(browser: Any, selector: str) -> list[str]:
    from selenium.common.exceptions import StaleElementReferenceException

    try:
        return [found.text for found in browser.find_elements("css selector", selector)]
    except StaleElementReferenceException:  # the page has just drawn them anew
        return texts(browser, selector)


def test_nothing_is_asked_elsewhere_and_the_console_is_quiet(show, wait, url):
    browser = show()
    look_up(browser, wait, "p3-1")
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"].endswith("WillBeSent")]
    assert {urlsplit(found).netloc for found in urls} == {urlsplit(url).netloc}
    asked = {urlsplit(found).path for found in urls}
    assert {"/", "/page.css", "/page.js", "/v1/status", "/v1/history", "/v1/nodes"} <= asked
    assert browser.get_log("browser") == []


def test_numbers_curves_and_confusion_are_those_of_the_learner(show, folder):
    browser, learner = show(), folder.learner
    status, history = learner.status(), learner.history()
    tiles = dict(zip(texts(browser, "#tiles dt"), texts(browser, "#tiles dd"), strict=True))
    assert tiles["Nodes"].startswith(f"{status.nodes}\n")
    assert tiles["Classes"].startswith(f"{status.classes}\nnewest: ")
    assert tiles["Accuracy"].startswith(f"{100 * status.accuracy:.1f} %")
    paths = browser.find_elements("css selector", "#accuracy path")
    assert [p.get_attribute("d").count("L") + 1 for p in paths] == [len(history["curve"])] * 2
    cells = [int(text) if text != "·" else 0 for text in texts(browser, "#confusion td")]
    assert cells == [count for row in history["confusion"] for count in row]
    # Names are text, whatever they look like.
    assert any(text.startswith("<b>physics") for text in texts(browser, "#confusion th"))
    assert browser.find_elements("css selector", "#confusion b") == []


def test_a_node_is_looked_up_drawn_and_explained(show, wait, folder):
    browser = show()
    look_up(browser, wait, "p9-0")
    why, near = folder.learner.explain("p9-0"), folder.learner.neighbourhood("p9-0")
    assert browser.find_element("css selector", ".verdict").text == (
        f"p9-0 is classified as {why.classes[0]}"
    )
    assert len(browser.find_elements("css selector", "#network circle")) == len(near.nodes)
    assert len(browser.find_elements("css selector", "#network line")) == len(near.edges)
    loudest = texts(browser, "#why .bars:last-of-type button")
    assert loudest == [str(voice.node) for voice in why.voices[:8]]
    browser.find_elements("css selector", "#why .bars:last-of-type button")[1].click()
    wait(f"document.querySelector('.verdict').textContent.startsWith('{loudest[1]} ')")
    look_up(browser, wait, "nobody")
    assert browser.find_element("id", "lookup-said").text == "node 'nobody' is not in the graph"
    assert not browser.find_element("id", "found").is_displayed()
    browser.get_log("browser")  # the browser notes the 404


def test_what_to_ask_next_is_what_the_learner_suggests(show, wait, folder):
    browser = show()
    browser.find_element("css selector", "#suggest button").click()
    wait("document.querySelector('#suggestions td')")
    found = folder.learner.suggest(10)
    assert texts(browser, "#suggestions tbody button") == [str(one.id) for one in found]
    first = texts(browser, "#suggestions tbody tr:first-child td")
    assert first[3:5] == [f"{100 * found[0].uncertainty:.1f} %", str(found[0].reach)]
    assert float(first[5]) == pytest.approx(found[0].gain, rel=0.01, abs=1e-3)
    browser.find_element("css selector", "#suggestions tbody button").click()
    wait(f"document.querySelector('.verdict')?.textContent.startsWith('{found[0].id} ')")
    assert not browser.find_element("id", "raised").is_displayed()
    assert browser.get_log("browser") == []


ALARMS = [{"seq": 7, "message": "accuracy of <b>all</b> is low", "value": 0.1, "expected": 0.9}]


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_alarms_are_shown(width, scheme, show, wait):
    browser = show(width=width, scheme=scheme)
    colours = browser.execute_script(
        "const style = getComputedStyle(document.body);return [style.backgroundColor, style.color]"
    )
    paper, ink = (sum(map(int, c.strip("rgba()").split(",")[:3])) / 3 for c in colours)
    assert (paper < 40 and ink > 200) if scheme == "dark" else (paper > 220 and ink < 80)
    browser.execute_script("showAlarms(arguments[0])", ALARMS)
    assert texts(browser, "#raised li") == [
        "Predictions have become worse\nAccuracy of <b>all</b> is low. Since delta 7"
    ]
    browser.find_element("css selector", "#suggest button").click()
    wait("document.querySelector('#suggestions td')")
    look_up(browser, wait, "p9-0")
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    boxes = browser.execute_script(
        "return [...document.querySelectorAll("
        "'.card, .alarms li, .tiles > div, svg, p, input, .bars li')]"
        ".map(box => box.getBoundingClientRect().right)"
    )
    assert len(boxes) > 20
    assert max(boxes) <= width
    circles = browser.execute_script(
        "const box = document.querySelector('#network svg').getBoundingClientRect();"
        "return [...document.querySelectorAll('#network circle')].map(c => {"
        "const r = c.getBoundingClientRect();"
        "return r.left >= box.left && r.right <= box.right && r.top >= box.top})"
    )
    assert all(circles)
    if width == 390:  # a table that goes on beyond the edge says so, until its end is reached
        wait("document.querySelector('#suggested').matches('.wide.more')")
        look = "return getComputedStyle(document.querySelector('#suggested'), '::before').content"
        assert "scroll →" in browser.execute_script(look)
        browser.execute_script("document.querySelector('#suggested').scrollLeft = 1e6")
        wait("document.querySelector('#suggested').matches('.wide:not(.more)')")
    else:
        assert browser.execute_script("return document.querySelector('.wide')") is None
    assert browser.get_log("browser") == []


def test_the_page_follows_what_is_learned(show, wait, url):
    from urllib.request import Request, urlopen

    browser = show()
    nodes = int(texts(browser, "#tiles dd")[0].split("\n")[0])
    body = {"nodes": ["fresh"], "features": [[0.0] * 4 + [1.0]], "labels": ["newest of all"]}
    sent = Request(
        f"{url}/v1/deltas", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    urlopen(sent).close()
    wait("document.querySelector('#confusion').textContent.includes('newest of al')")
    assert texts(browser, "#tiles dd")[0].startswith(f"{nodes + 1}\n")


def test_a_token_is_asked_for(show, wait, live, learner, tmp_path_factory):
    closed = LearnerFolder.open(tmp_path_factory.mktemp("closed") / "learner", make=learner)
    browser = show(at=live(create_app(closed, tokens=Tokens((("read", READ),)))))
    wait("!document.getElementById('token-form').hidden")
    browser.find_element("id", "token").send_keys(READ)
    browser.find_element("css selector", "#token-form button").click()
    wait("document.querySelector('.dot.live')")
    assert not browser.find_element("id", "token-form").is_displayed()
    assert texts(browser, "#tiles dd")[0].startswith("0\n")


LARGE = 9_007_199_254_740_993  # 2^53 + 1: no number of JavaScript is this one


@pytest.fixture(scope="module")
def large_ids(learner: Any, live: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    opened = LearnerFolder.open(tmp_path_factory.mktemp("large") / "learner", make=learner)
    opened.submit(
        Delta(
            nodes=(LARGE, LARGE - 1, LARGE + 4, ".", ".."),
            features=torch.eye(3)[[0, 1, 2, 0, 0]],
            labels=("x", LARGE, None, None, None),
            edges=((LARGE, LARGE - 1), (LARGE, LARGE + 4)),
        )
    )
    return str(live(create_app(opened)))


def test_ids_that_a_path_would_lose_are_looked_up(show, wait, large_ids):
    browser = show(at=large_ids)
    wait("document.querySelector('.dot.live')")
    for node in (".", ".."):
        look_up(browser, wait, node)
        assert texts(browser, "#why .verdict")[0].startswith(f"{node} is classified as ")


def test_integers_beyond_those_of_javascript_keep_their_digits(show, wait, large_ids):
    browser = show(at=large_ids)
    wait("document.querySelector('.dot.live')")
    look_up(browser, wait, str(LARGE))
    assert texts(browser, "#why .verdict")[0].startswith(f"{LARGE} is classified as ")
    titles = browser.execute_script(
        "return [...document.querySelectorAll('.spot title')].map(title => title.textContent)"
    )
    assert sorted(title.split(":")[0] for title in titles) == [
        str(node) for node in (LARGE - 1, LARGE, LARGE + 4)
    ]
    # The class that is such a number, and the way to another node.
    assert any(f": {LARGE}," in title for title in titles)
    spots = "[...document.querySelectorAll('.spot')]"
    other = f"{spots}.find(spot => spot.textContent.startsWith('{LARGE + 4}'))"
    browser.execute_script(f"{other}.dispatchEvent(new MouseEvent('click'))")
    wait(f"document.querySelector('#why .verdict').textContent.startsWith('{LARGE + 4} is')")
    assert browser.get_log("browser") == []


def test_the_page_for_people_has_all_that_the_document_has(show, url, wait):
    browser = show()
    browser.get(f"{url}/docs")
    wait("document.getElementById('records')")
    document = browser.execute_async_script(
        "fetch('/openapi.json').then(answer => answer.json()).then(arguments[0])"
    )
    anchors = [each.get_attribute("id") for each in browser.find_elements("css selector", "[id]")]
    assert len(anchors) == len(set(anchors))
    links = browser.execute_script(
        "return [...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.hash.slice(1))"
    )
    assert set(links) <= set(anchors)
    assert set(document["components"]["schemas"]) <= set(anchors)
    plain = browser.execute_script("return document.body.textContent").replace("\u200b", "")
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            assert f"{method.upper()} {path}" in plain
            for each in route.get("parameters", ()):
                assert each["name"] in plain
    assert "or null" in plain
    assert not [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
