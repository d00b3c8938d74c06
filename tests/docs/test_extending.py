"""The sampler of docs/extending.md, as written there, keeps every sampler's promises."""

import re
from pathlib import Path

from evergraph.memory import samplers
from from_file import module_of

ROOT = Path(__file__).parents[2]
PROMISES = (  # of tests/memory/test_samplers.py, which runs them on every registered sampler
    "test_budgets_of_nothing_and_of_more_than_there_is",
    "test_the_best_ranks_are_selected_by_the_generator",
    "test_what_is_stored_is_a_row_a_choice_and_the_generator_decides",
)


def test_the_sampler_of_the_page_keeps_every_promise(monkeypatch):
    module = module_of(ROOT / "tests" / "memory" / "test_samplers.py", "sampler_promises")
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    code = re.search(r"^```python\n(# powered_degree\.py\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.setattr(samplers, "_classes", dict(samplers._classes))
    exec(compile(code.group(1), "extending.md", "exec"), {})

    for promise in PROMISES:
        getattr(module, promise)(name="powered-degree")
    budgets = module.test_exactly_the_budget_of_each_class_is_selected
    budgets(name="powered-degree", edges=60, hops=2)
