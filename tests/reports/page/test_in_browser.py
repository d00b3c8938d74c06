"""The page in a real browser."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evergraph.reports.report import write_report
from evergraph.reports.runs import collect


@pytest.fixture
def show(seen_as: Any, reported: Path) -> Callable[..., Any]:
    from selenium.webdriver.support.ui import WebDriverWait

    def opened(width: int = 1600, *, scheme: str = "light", page: Path | None = None) -> Any:
        browser = seen_as(width, scheme)
        browser.get((page or reported / "report.html").as_uri())
        # On a busy machine the driver may return before the page is parsed.
        ready = "return document.readyState === 'complete'"
        WebDriverWait(browser, 60).until(lambda driver: driver.execute_script(ready))
        return browser

    return opened


def colours(browser: Any) -> list[float]:
    """Return how bright the background, a figure's card and the ink are."""
    told = browser.execute_script(
        "return ['body', 'figure', 'body'].map((name, i) => getComputedStyle("
        "document.querySelector(name))[i < 2 ? 'backgroundColor' : 'color'])"
    )
    return [sum(map(int, text.strip("rgba()").split(",")[:3])) / 3 for text in told]


def test_on_a_desktop(show, reported):
    browser, address = show(), (reported / "report.html").as_uri()
    # Nothing is requested but the page, and the console is quiet.
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"].endswith("WillBeSent")]
    assert {url for url in urls if not url.startswith("data:")} == {address}
    assert browser.get_log("browser") == []
    # Definitions are folded below the results.
    terms = browser.find_element("css selector", "#terms details")
    assert terms.get_attribute("open") is None
    last = browser.find_element("id", "matrices")
    assert terms.location["y"] > last.location["y"] + last.size["height"]
    assert not terms.find_element("css selector", "dl").is_displayed()
    terms.find_element("css selector", "summary").click()
    assert terms.find_element("css selector", "dl").is_displayed()

    # Headings sort numbers as numbers, up and then down.
    def sorted_by(name):
        table = browser.find_element("id", "table-summary")
        headings = table.find_elements("css selector", "th")
        place = [heading.text for heading in headings].index(name)
        heading = headings[place]
        heading.find_element("css selector", "button").click()
        cells = table.find_elements("css selector", f"td:nth-child({place + 1})")
        return [cell.text for cell in cells], heading.get_attribute("aria-sort")

    up = ["-", "-", "1.5 kB", "4.0 kB", "20.0 MB"]
    assert sorted_by("memory") == (up, "ascending")
    assert sorted_by("memory") == (up[::-1], "descending")
    accuracies, _ = sorted_by("AA local")
    assert [float(text.split()[0]) for text in accuracies] == [37.0, 37.5, 79.2, 85.0, 100.0]
    names, _ = sorted_by("method")
    assert names == ["a<b>&\"'$x", "nine", "plain", "plain", "single"]
    # In the dark scheme the page is dark, and figures stay on light cards.
    background, card, ink = colours(browser)
    assert (background > 220, card, ink < 80) == (True, 255, True)
    background, card, ink = colours(show(scheme="dark"))
    assert (background < 40, card, ink > 200) == (True, 255, True)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(width, show, wait):
    browser = show(width)
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('figure img')].map(img => {"
        "const box = img.getBoundingClientRect(); return [box.width, box.height, box.right]})"
    )
    assert len(sizes) == 8
    assert all(w > 250 and h > 100 and right <= width for w, h, right in sizes)
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.scroll, figure, details, p')]"
        ".map(box => box.getBoundingClientRect().right)"
    )
    assert max(boxes) <= width
    cut = "return [...document.querySelectorAll('td, th button')].filter(cell => "
    cut += "cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.textContent)"
    assert browser.execute_script(cut) == []
    # A table that goes on beyond the edge of a phone says so; on a laptop none does.
    if width == 390:
        wait("document.querySelector('.scroll.more')")
    told = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth >"
        "box.clientWidth, box.matches('.more'), getComputedStyle(box, '::before').content])"
    )
    assert len(told) == 4
    assert all(more == wide and ("scroll →" in said) == wide for wide, more, said in told)
    assert (sum(wide for wide, _, _ in told) > 2) == (width == 390)
    if width == 390:  # at its end a table no longer fades
        browser.execute_script("const box = document.querySelector('.more'); box.scrollLeft = 1e6")
        wait("!document.querySelector('.scroll').matches('.more')")


@pytest.mark.usefixtures("undrawn")
def test_a_phone_shows_what_differs_first(show, tmp_path, write_run):
    for place, label in enumerate(("tem", "er-gnn", "analytic")):
        write_run(tmp_path, label, [0.5 + place / 8, 0.25], kept=1000 * place)
    browser = show(390, page=write_report(collect(tmp_path), tmp_path))
    seen = browser.execute_script(
        "return [...document.querySelectorAll('#table-summary th')].filter(cell => "
        "cell.getBoundingClientRect().right <= 390).map(cell => cell.textContent)"
    )
    assert seen[:2] == ["method", "AA local"]
    above = browser.execute_script("return document.querySelector('#summary .same').textContent")
    assert above.startswith("In every row: dataset rings · setting class-il")
