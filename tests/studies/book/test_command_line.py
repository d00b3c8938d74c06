"""The command beside a number runs what the number came from."""

import shlex

from hypothesis import given
from hypothesis import strategies as st
from submission import command_of

from evergraph.cli.options import SeedOptions, configs_of_methods, parse_settings
from evergraph.experiments.build import resolved
from evergraph.experiments.config import RunConfig, merged

OPTIONS = {
    "--dataset": "dataset",
    "--backbone": "backbone",
    "--setting": "stream.setting",
    "--device": "device",
}


def typed(command: str) -> RunConfig:
    """Return the configuration of what ``evergraph run`` is given, as the command line does."""
    words = shlex.split(command)[2:]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    given = {}
    for option, value in pairs:
        if option in OPTIONS:
            given = merged(given, parse_settings([f"{OPTIONS[option]}={value}"]))
    typed_seeds = dict(pairs)
    given["seeds"] = SeedOptions(
        int(typed_seeds["--seed"]) if "--seed" in typed_seeds else None,
        typed_seeds.get("--seeds"),
        int(typed_seeds["--repeats"]) if "--repeats" in typed_seeds else None,
    ).chosen
    settings = parse_settings([value for option, value in pairs if option == "--set"])
    (config,) = configs_of_methods(dict(pairs)["--method"], None, given, settings)
    return config


@given(
    values=st.fixed_dictionaries(
        {
            "dataset": st.sampled_from(
                ["wordnet", "actor.npz", {"name": "synthetic", "noise": 0.5, "nodes": 300}]
            ),
            "method": st.sampled_from(["tem", "finetune", "ewc", {"name": "lwf", "strength": 3.5}]),
            "backbone": st.sampled_from([None, "gcn", "sgc"]),
            "stream": st.fixed_dictionaries(
                {
                    "setting": st.sampled_from(["class-il", "task-il"]),
                    "split": st.sampled_from([(0.6, 0.2, 0.2), (0.5, 0.25, 0.25)]),
                    "split_seed": st.sampled_from([0, "run"]),
                    "order": st.sampled_from(["label", "shuffled", [1, 0, 2]]),
                }
            ),
            "training": st.fixed_dictionaries({"epochs": st.sampled_from([None, 3])}),
            "seeds": st.sampled_from([[0], [0, 1, 2], [7], [3, 9]]),
            "device": st.sampled_from(["auto", "cpu"]),
        }
    )
)
def test_the_command_leads_back_to_the_configuration(values):
    config = resolved(RunConfig.of(values))
    assert resolved(typed(command_of(config))) == config


def test_commands_of_the_book_lead_back_to_it(shipped):
    datasets = ("homophily-0.1", "tasks-20", "actor", "wordnet-pos")
    for job in shipped:
        if job.dataset in datasets and job.label in ("tem", "gem", "auto"):
            config = resolved(job.config)
            assert resolved(typed(command_of(config))) == config
