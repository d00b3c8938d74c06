"""The page in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evergraph.reports import collect, write_report


@pytest.fixture
def page(reported: Path) -> Path:
    return reported / "report.html"


@pytest.fixture
def show(seen_as: Any, page: Path) -> Callable[..., Any]:
    from selenium.webdriver.support.ui import WebDriverWait

    def opened(*, width: int = 1600, scheme: str = "light") -> Any:
        browser = seen_as(width, scheme)
        browser.get(page.as_uri())
        # On a busy machine the driver may return before the page is parsed.
        ready = "return document.readyState === 'complete'"
        WebDriverWait(browser, 20).until(lambda driver: driver.execute_script(ready))
        return browser

    return opened


def test_nothing_is_requested_but_the_page_and_the_console_is_quiet(
    show: Callable[..., Any], page: Path
) -> None:
    browser = show()
    browser.get_log("performance"), browser.get_log("browser")
    show()
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"].endswith("WillBeSent")]
    assert page.as_uri() in urls
    assert {url for url in urls if not url.startswith("data:")} == {page.as_uri()}
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [390, 1280, 1600])
def test_nothing_is_wider_than_the_window_and_every_figure_is_seen(
    width: int, show: Callable[..., Any]
) -> None:
    browser = show(width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].map(svg => {"
        "const box = svg.getBoundingClientRect(); return [box.width, box.height, box.right]})"
    )
    assert len(sizes) == 26
    assert all(w > 250 and h > 100 and right <= width for w, h, right in sizes)
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.scroll, figure, .tile, details, p')]"
        ".map(box => box.getBoundingClientRect().right)"
    )
    assert max(boxes) <= width


def test_no_table_is_cut_on_a_laptop_and_a_phone_shows_names_and_numbers(
    show: Callable[..., Any],
) -> None:
    browser = show(width=1280)
    tables = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth,"
        "box.clientWidth])"
    )
    assert len(tables) == 7
    assert all(whole == seen for whole, seen in tables)
    cut = "return [...document.querySelectorAll('td, th button')].filter(cell => "
    cut += "cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.textContent)"
    assert browser.execute_script(cut) == []
    assert show(width=390).execute_script(cut) == []


def test_a_table_that_goes_on_beyond_the_edge_says_so(show: Callable[..., Any], wait: Any) -> None:
    browser = show(width=390)
    wait("document.querySelector('.scroll.more')")
    told = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth >"
        "box.clientWidth, box.matches('.more'), getComputedStyle(box, '::before').content])"
    )
    assert sum(wide for wide, _, _ in told) > 2
    assert all(more == wide and ("scroll →" in said) == wide for wide, more, said in told)
    # At its end a table no longer fades.
    browser.execute_script("const box = document.querySelector('.more'); box.scrollLeft = 1e6")
    wait("!document.querySelector('.scroll').matches('.more')")
    assert show(width=1280).execute_script("return document.querySelector('.wide')") is None


def test_a_phone_shows_what_differs_first(
    show: Callable[..., Any], tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    for place, label in enumerate(("tem", "er-gnn", "analytic")):
        write_run(tmp_path, label, [0.5 + place / 8, 0.25], kept=1000 * place)
    path = write_report(collect(tmp_path), tmp_path)
    browser = show(width=390)
    browser.get(path.as_uri())
    seen = browser.execute_script(
        "return [...document.querySelectorAll('#table-summary th')].filter(cell => "
        "cell.getBoundingClientRect().right <= 390).map(cell => cell.textContent)"
    )
    assert seen[:2] == ["method", "AA local"]
    above = browser.execute_script("return document.querySelector('#summary .same').textContent")
    assert above.startswith("In every row: dataset rings · setting class-il")


def test_definitions_are_folded_below_the_results(show: Callable[..., Any]) -> None:
    browser = show()
    terms = browser.find_element("css selector", "#terms details")
    assert terms.get_attribute("open") is None
    last = browser.find_element("id", "matrices")
    assert terms.location["y"] > last.location["y"] + last.size["height"]
    assert not terms.find_element("css selector", "dl").is_displayed()
    terms.find_element("css selector", "summary").click()
    assert terms.find_element("css selector", "dl").is_displayed()


def test_headings_sort_numbers_as_numbers_up_then_down(show: Callable[..., Any]) -> None:
    browser = show()

    def sorted_by(name: str) -> tuple[list[str], str]:
        table = browser.find_element("id", "table-summary")
        headings = table.find_elements("css selector", "th")
        place = [heading.text for heading in headings].index(name)
        heading = headings[place]
        heading.find_element("css selector", "button").click()
        cells = table.find_elements("css selector", f"td:nth-child({place + 1})")
        return [cell.text for cell in cells], heading.get_attribute("aria-sort")

    up = ["-", "-", "123 B", "1.5 kB", "4.0 kB", "20.0 MB"]
    assert sorted_by("memory") == (up, "ascending")
    assert sorted_by("memory") == (up[::-1], "descending")
    accuracies, _ = sorted_by("AA local")
    assert [float(text.split()[0]) for text in accuracies] == [37.0, 37.5, 62.5, 79.2, 85.0, 100.0]
    names, _ = sorted_by("method")
    assert names == ["a<b>&\"'$x", "nine", "plain", "plain", "single", "single"]


def test_the_dark_scheme_is_dark_but_figures_stay_on_light_cards(show: Callable[..., Any]) -> None:
    def colours(scheme: str) -> list[float]:
        return [
            sum(map(int, text.strip("rgba()").split(",")[:3])) / 3
            for text in show(scheme=scheme).execute_script(
                "return ['body', 'figure', 'body'].map((name, i) => getComputedStyle("
                "document.querySelector(name))[i < 2 ? 'backgroundColor' : 'color'])"
            )
        ]

    background, card, ink = colours("dark")
    assert (background < 40, card, ink > 200) == (True, 255, True)
    background, card, ink = colours("light")
    assert (background > 220, card, ink < 80) == (True, 255, True)
