"""What the words and numbers of a report mean."""

from __future__ import annotations

from evergraph.reports.page.section import Section

LEAD = (
    "Each run learned a graph as a stream of tasks, one after another; every task brings new "
    "classes. After each task the run was tested on all tasks met so far. A method is good if it "
    "learns the new without forgetting the old."
)
TERMS = {
    "AA, average accuracy": "The mean accuracy over all tasks once the last one is learned. Higher "
    "is better.",
    "AF, average forgetting": "How much accuracy on a task changed from just after it was learned "
    "to the end, on average. Negative means forgotten; nearer to 0, or above, is better.",
    "AAA, anytime accuracy": "The mean of AA over all tests, not the last one only: how good a "
    "run was along the way.",
    "ECE, expected calibration error": "How far the confidence of answers is from their accuracy. "
    "0 means that answers given with 80 % confidence are right in 80 of 100 cases.",
    "AUROC of rejection": "How often a node of a class still to come looks more novel than a node "
    "of a class already learned. 50 % is guessing.",
    "FWT, forward transfer": "Accuracy on nodes of the next task whose class is known, before that "
    "task is learned, less that of guessing. Where every task brings new classes only, there is "
    "none.",
    "local": "A test node is seen inside the subgraph of its own task, as in the paper. This gives "
    "away which task it belongs to.",
    "global": "A test node is seen inside the graph of everything met so far, as it would be in "
    "use.",
    "class-il": "The run chooses between all classes met so far.",
    "task-il": "The run is told the task and chooses between the classes of that task only.",
    "balanced": "Every class counts the same, however many nodes it has. All accuracies here are "
    "balanced, in percent, the mean over seeds, ± their standard deviation where there are "
    "several.",
    "memory": "What a run keeps between tasks. Methods that go over all earlier data again, such "
    "as joint, keep all data.",
    "seconds per seed": "The mean over the seeds of a run: with more seeds it does not grow.",
}


OF_TARGETS = {
    "micro F1": "Twice the labels rightly given over all labels given and all that are there, of "
    "all nodes together. It stands where nodes have several labels, in the place of accuracy: AA "
    "and AF are of it.",
    "R2": "The share of a number's variance that answers explain: 100 is without fault, 0 is as "
    "good as the mean, and below is worse. It stands where nodes have numbers to predict, in the "
    "place of accuracy: AA and AF are of it.",
}


def terms(metric: str = "accuracy") -> Section:
    """Return the definitions, folded away; metric: what runs were measured by."""
    further = {name: text for name, text in OF_TARGETS.items() if name in metric}
    told = (TERMS | further).items()
    items = "\n".join(f"<div><dt>{term}</dt><dd>{text}</dd></div>" for term, text in told)
    fold = (
        '<details class="definitions"><summary>What the words and numbers mean</summary>\n'
        f'<dl class="terms">\n{items}\n</dl></details>'
    )
    return Section("terms", "How to read this page", LEAD, fold)
