"""``evergraph run`` and ``plan``: run experiments, or estimate the cost of one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.cli import inputs, options
from evergraph.cli.inputs import ColumnOptions, with_shared_options
from evergraph.cli.options import SeedOptions, argument, flag, option
from evergraph.cli.output import print_json, print_table, say, show_runs, span, spinner, stops_with
from evergraph.core.errors import ConfigurationError, ResultsError
from evergraph.core.packages import require
from evergraph.core.safe_files import check_writable
from evergraph.core.sizes import shown

if TYPE_CHECKING:
    from evergraph.experiments.result import RunResult


@with_shared_options
def run_command(
    dataset: str | None = option("A name, or a path (default: wordnet)."),
    method: str | None = option(
        "One method, or several to compare, comma-separated (default: auto)."
    ),
    setting: str | None = option("class-il or task-il (default: class-il)."),
    by: str | None = option(
        "How nodes arrive: class, time, blurred, drifting, random or online (default: class)."
    ),
    test_every: int | None = option(
        "Tasks or steps between tests (default: every task; online, 20 tests in all)."
    ),
    edges: str | None = option("Edges to use: within (inside each task) or all (default: within)."),
    backbone: str | None = option("The model (default: the method's own)."),
    topology: str | None = option("f_topo of pdgnn (default: sgc)."),
    hops: int | None = option("L, the hops that an embedding covers (default: 2)."),
    sampler: str | None = option("How memory nodes are chosen (default: the method's own)."),
    budget: str | None = option(
        "Nodes in memory: a number per class, or a share of all such as 1% (default: the "
        "method's own)."
    ),
    memory: str | None = option(
        "Bytes that auto may keep, such as 50MB; sets its views and width (default: the "
        "backbone's own)."
    ),
    views: str | None = option("Node views of auto, such as '2,0|2,0|2+y' (default: five views)."),
    split: str | None = option(
        "Training, validation and test nodes: masks (train_mask, val_mask and test_mask of the "
        "graph), shares or numbers per class, such as 0.5,0.25,0.25 (default: 0.6,0.2,0.2)."
    ),
    labelled: float | None = option(
        "Fraction of each class that is labelled, such as 0.05 (default: 0.6)."
    ),
    classes_per_task: int | None = option("New classes per task (default: 2)."),
    objective: str | None = option(
        "Accuracy to learn for: balanced (every class counts alike) or plain (every node), by "
        "methods that can (default: balanced)."
    ),
    epochs: int | None = option("Passes over each task (default: the backbone's own)."),
    lr: float | None = option("Learning rate (default: the backbone's own)."),
    weight_decay: float | None = option("L2 penalty (default: the backbone's own)."),
    batch_size: str | None = option("Examples per step, or 'full' (default: the backbone's own)."),
    seeds: SeedOptions = SeedOptions(),
    device: options.Device = None,
    memory_limit: options.MemoryLimit = None,
    scratch: options.Scratch = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    worker_threads: options.WorkerThreads = None,
    directed: options.Directed = False,
    repeated: inputs.Repeated = None,
    columns: ColumnOptions = ColumnOptions(),
    settings: options.Settings = [],
    preset: options.Preset = None,
    protocol: options.Protocol = None,
    plugins: options.Plugins = [],
    out: options.ResultsFolder = None,
    resume: bool = flag("--resume", "Continue a run that was stopped."),
    report: bool = flag("--report", "Also run evergraph report."),
    save: Path | None = option(
        "Save the last seed's trained learner to a file (default: do not save)."
    ),
    as_json: options.AsJson = False,
) -> None:
    """Learn a stream of tasks and report accuracy and forgetting.

    Options override the preset, which overrides the protocol, which overrides the defaults. Several
    methods are compared, each with its own folder below --out.
    """
    batch = int(batch_size) if batch_size and batch_size.isdigit() else batch_size
    option_values = {
        "dataset": {"name": dataset, "repeated": repeated, **columns.names},
        "undirected": False if directed else None,
        "backbone": backbone,
        "topology": {"name": topology, "hops": hops},
        "stream": {
            "setting": setting,
            "by": by,
            "edges": edges,
            "split": options.parse_split(split),
            "labelled": labelled,
            "classes_per_task": classes_per_task,
        },
        "memory": {"budget": options.parse_budget(budget), "sampler": sampler},
        "training": {
            "epochs": epochs,
            "lr": lr,
            "weight_decay": weight_decay,
            "batch_size": batch,
            "objective": objective,
        },
        "seeds": seeds.chosen,
        "test_every": test_every,
        "device": device,
        "plugins": plugins,
        "protocol": protocol,
    }
    if report:
        require("matplotlib", extra="report", why="--report")
    auto = options.options_of_auto(memory, views)
    overrides = options.parse_settings(settings)
    configs = options.configs_of_methods(method, preset, option_values, overrides, auto=auto)
    alone = len(configs) == 1  # otherwise each method has its own folder below
    if save is not None:  # raise now if the learner could not be saved, not after training
        if not alone:
            raise ConfigurationError(f"--save needs a single method, and {len(configs)} are given")
        if save.is_dir():
            raise ConfigurationError(f"--save must be a file, and {save} is a folder")
        check_writable(save.parent)
    methods = "-".join(config.method.name for config in configs)
    name = f"{Path(configs[0].dataset.name).stem}-{methods}-{configs[0].stream.setting}"
    folder = out if out is not None else options.default_folder(name, resume=resume)
    resources = options.resources_of(memory_limit, scratch, engine, address, worker_threads)
    with stops_with(f"finished tasks are kept; continue with --resume --out {folder}"):
        with spinner(f"loading torch and {configs[0].dataset.name}"):
            from evergraph.core.sizes import keep_freed_memory
            from evergraph.experiments.runner import complete_together, open_together, progress_of

            if memory_limit is None:
                keep_freed_memory()
            options.check_used(configs, option_values, overrides)
            folders = [folder if alone else folder / c.method.name for c in configs]
            runs = open_together(configs, out=folders, resume=resume, resources=resources())
        progress, observers = progress_of(runs)
        with progress:
            results = complete_together(runs, observers=observers, keep_learner=save is not None)
    if save is not None:
        if results[0].learner is None:
            raise ResultsError(
                f"{save} was not written: the run had already finished, and its learner was not "
                "kept; run again with another --out"
            )
        results[0].learner.save(save)
    if report:
        from evergraph.reports.report import write_report
        from evergraph.reports.runs import collect

        with spinner("drawing the report"):
            page = write_report(collect(folder), folder)  # before printing, which may fail
    if as_json:
        by_method = {result.config.method.name: result.to_dict() for result in results}
        print_json(results[0].to_dict() if alone else {"folder": str(folder), "runs": by_method})
        return
    if len(results) == 1:
        _print_result(results[0], folder)
    else:
        from evergraph.reports.runs import Finished

        show_runs([Finished(folder / r.config.method.name, r.to_dict()) for r in results])
    if report:
        say(f"open {page} in a browser for all tables and figures")
    elif len(results) > 1:
        say(f"results in {folder}; evergraph report {folder} draws figures")


# Accuracy in the whole graph this far below local accuracy is worth a word.
FAR_BELOW = 0.05


def _print_result(result: RunResult, folder: Path) -> None:
    from evergraph.evaluation.evaluator import METRIC_NAMES
    from evergraph.reports.runs import ALL, percent, size

    values = result.to_dict()
    keys = [*result.target.rows]
    ways = [(testing, average) for testing in ("local", "global") for average in keys]
    headline = tuple(result.headline.values())
    protocol = result.config.protocol
    ways.sort(key=lambda way: way != headline)
    rows = []
    for testing, average in ways:
        way = f"{testing}, {average.replace('_f1', ' F1').replace('r2', 'R2')}"
        if protocol and (testing, average) == headline:
            way += f": as {protocol} reports"
        metrics = ("average_accuracy", "average_forgetting", "anytime_accuracy")
        rows.append((way, *(percent(values[metric][testing][average]) for metric in metrics)))
    title = f"{result.config.method.name} on {result.config.dataset.name}, percent"
    shared = "accuracy" if "balanced" in keys else "F1"
    measured = f"average {result.target.measure if len(keys) == 1 else shared}"
    anytime = measured.replace("average", "anytime")
    print_table(("tested", measured, "average forgetting", anytime), rows, title)
    other_measures = []  # of targets, averaged over tasks
    for name in result.target.beside:
        for testing in ("local", "global"):
            measure = values["measures"][testing].get(name)
            if measure is not None:
                other_measures.append(f"{METRIC_NAMES[name]} {measure['mean']:.4g} {testing}")
    if other_measures:
        say(", ".join(other_measures))
    seconds: dict[str, Any] = values["seconds"]
    count = len(result.seeds)
    phases = ", ".join(f"{phase} {spent / count:.1f} s" for phase, spent in seconds.items())
    if count > 1:
        phases = f"per seed {phases}"
    stored = values["memory"]["bytes"]
    memory_text = size(stored) if stored else "none"
    if result.cumulative:
        memory_text = ALL
    covered = values["coverage_ratio"]
    details = "" if covered is None else f" covering {100 * covered:.1f} % of all nodes"
    if values["refresh"] is not None:
        recomputed, old_count = values["refresh"]["recomputed"], values["refresh"]["of"]
        details += f", {recomputed:,} of {old_count:,} old embeddings recomputed"
    say(f"memory {memory_text}{details}; {phases}; results in {folder}")
    averages = values["average_accuracy"]
    gap = averages["local"][keys[0]]["mean"] - averages["global"][keys[0]]["mean"]
    if result.config.stream.edges == "within" and gap > FAR_BELOW:
        say(
            f"in the whole graph it is {100 * gap:.0f} points below: --edges all keeps "
            "the graph, and learns old nodes as they are in it now"
        )


@with_shared_options
def plan_command(
    dataset: str = argument("A name or a path, as for run.", default="wordnet"),
    method: str | None = option("Any method, as for run (default: auto)."),
    seeds: SeedOptions = SeedOptions(),
    device: options.Device = None,
    settings: options.Settings = [],
    preset: options.Preset = None,
    plugins: options.Plugins = [],
    seconds: float = option("Time to spend; more time gives a better estimate.", default=60.0),
    as_json: options.AsJson = False,
) -> None:
    """Estimate a run's time and memory from the first tasks of small copies of its graph.

    For example: evergraph plan my_graph --method tem. The copies keep the graph's degrees and
    classes. Each is learned in a separate process, on this machine and the device that the run
    would use.
    """
    option_values = {
        "dataset": dataset,
        "seeds": seeds.chosen,
        "device": device,
        "plugins": plugins,
    }
    overrides = options.parse_settings(settings)
    [config] = options.configs_of_methods(method, preset, option_values, overrides)
    with spinner(f"loading torch and {dataset}"):
        from evergraph.experiments.plan import plan_run

        options.check_used([config], option_values, overrides)
    with stops_with("nothing is kept, run the same command again"):

        def announce(num_nodes: int) -> None:
            say(f"learning a copy of {num_nodes:,} nodes ...", err=True)

        plan = plan_run(config, seconds=seconds, on_copy=announce)
    if as_json:
        print_json(asdict(plan))
        return
    columns = ("nodes", "tasks", "processor", "clock", "memory", "GPU memory")
    costs = [(f"{cost.share * plan.nodes:,.0f}", cost) for cost in plan.copies]
    costs.append((f"{plan.nodes:,} (estimated)", plan.seed))
    rows = [
        (
            nodes,
            str(cost.tasks),
            span(cost.processor),
            span(cost.clock),
            shown(cost.memory),
            shown(cost.device_memory),
        )
        for nodes, cost in costs
    ]
    column_count = 6 if plan.seed.device_memory else 5
    title = f"{config.method.name} on {dataset}, one seed"
    print_table(columns[:column_count], [row[:column_count] for row in rows], title)
    if plan.seeds > 1:
        say(f"{plan.seeds} seeds, one after another: {span(plan.seeds * plan.seed.clock)}")
