"""Work on one, two and three nodes with links of their own, and what can befall a cluster.

sudo env "PATH=$PATH" python benchmarks/cluster/cluster_nodes.py [--quick]

Nodes are network namespaces of this machine (scripts/cluster_in_namespaces), each with half a core:
so that three have what three machines would, and are no faster than one for any other reason.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.cluster.namespaces import Driver, Namespaces
from benchmarks.measure import Options, Table, megabytes, run, times

WHOLE = ("run", "bench")  # minutes each: on one node, and on all with the fastest link
KINDS = ("columns", "statistics", "estimated", "exact", *WHOLE)
LINKS = ("1gbit", "10gbit")
NODES = 3
LIMITS = {"cpu": 0.5, "memory": "4GB", "store": "700MB"}
SMALL_STORE = "80MB"  # the least that Ray takes
SCALE = {False: 0.05, True: 0.02}  # of Products' twin
SLOW = "50mbit"

Answer = Mapping[str, Any]
Cell = tuple[str, int, str]  # kind, nodes, link


def measured(
    driver: Driver, cluster: Namespaces, kinds: Sequence[str], links: Sequence[str]
) -> Iterator[tuple[Cell, Answer]]:
    """Yield what each kind of work took on each number of nodes with each link."""
    for count in range(1, NODES + 1):
        if count > 1:
            cluster.call("join")
        told(driver.ask("warm"), f"{count} nodes are warm")
        for link in links if count > 1 else links[:1]:  # one node uses no link
            cluster.call("link", link)
            ends = (count, link) in ((1, links[0]), (NODES, links[-1]))
            for kind in kinds if ends else [kind for kind in kinds if kind not in WHOLE]:
                answer = told(driver.ask(kind), f"{count} nodes, {link}")
                yield (kind, count, link), answer


def told(answer: Answer, where: str) -> Answer:
    """Return an answer, having said on stderr that it has come."""
    clock = time.strftime("%H:%M:%S")
    print(f"{clock} {where}: {answer['kind']} {answer['seconds']:.1f} s", file=sys.stderr)
    return answer


def scaling_table(local: Mapping[str, Answer], cells: Mapping[Cell, Answer], scale: float) -> Table:
    """Return a row a kind, nodes and link: seconds, against one node, bytes, and bits."""
    rows = []
    for (kind, count, link), found in cells.items():
        one = cells[kind, 1, LINKS[0]]["seconds"]
        rows.append(
            [
                kind,
                str(count),
                "-" if count == 1 else link,
                f"{found['seconds']:.1f}",
                times(one / found["seconds"]),
                times(local[kind]["seconds"] / found["seconds"]),
                megabytes(found["bytes"]),
                same(local[kind], found),
            ]
        )
    heads = ("work", "nodes", "link", "s", "against one node", "against no Ray", "MB sent", "bits")
    notes = (
        "Half a core and one worker a node; the program that asks runs on the first node and "
        "shares its half core.",
        "columns, nodes: two hops of SGC. statistics: of `analytic`, width 512. estimated, exact: "
        "reach within two hops of all nodes, and of one in eight. For these, arrays lie in memory "
        "and are sent. run: a whole stream by `analytic`, bench: six runs; their files are shared.",
    )
    return Table(f"Products' twin at scale {scale:g} on namespaced nodes", heads, rows, notes)


def same(local: Answer, found: Answer) -> str:
    """Say whether all bits are those that one process gives."""
    return "the same" if local["digest"] == found["digest"] else "OTHERS"


def killed(cluster: Namespaces, driver: Driver, local: Answer) -> list[str]:
    """Pull a node's plug in the middle of work that it takes part in."""
    usual = driver.ask("naps")["seconds"]
    driver.begin("naps")
    time.sleep(usual / 2)
    cluster.call("kill", NODES)
    found = told(driver.end(), "a killed node")
    return [
        "a node killed in the middle",
        f"{found['seconds']:.1f}",
        times(usual / found["seconds"]),
        same(local, found),
    ]


def joined(cluster: Namespaces, driver: Driver, local: Answer) -> list[str]:
    """Let a node join in the middle of work, and look who does the next."""
    driver.begin("naps")
    cluster.call("join")
    first, found = told(driver.end(), "a late node"), told(driver.ask("naps"), "the next")
    name = f"a node joined in the middle: the next by {found['workers']} workers"
    return [
        name,
        f"{found['seconds']:.1f}",
        times(first["seconds"] / found["seconds"]),
        same(local, found),
    ]


def slowed(cluster: Namespaces, driver: Driver, local: Answer) -> list[str]:
    """Do by columns over slow links what was done over fast ones."""
    usual = driver.ask("columns")["seconds"]
    cluster.call("link", SLOW)
    found = told(driver.ask("columns"), SLOW)
    cluster.call("link", LINKS[0])
    return [
        f"columns, links of {SLOW}",
        f"{found['seconds']:.1f}",
        times(usual / found["seconds"]),
        same(local, found),
    ]


def spilled(scale: float, local: Answer) -> list[str]:
    """Send arrays that the object stores cannot hold."""
    limits = LIMITS | {"store": SMALL_STORE, "nodes": 2, "link": LINKS[0]}
    with Namespaces(**limits) as cluster, Driver(cluster, str(scale)) as driver:
        driver.ask("warm")
        found = told(driver.ask("columns"), f"stores of {SMALL_STORE}")
    return [
        f"columns, object stores of {SMALL_STORE}",
        f"{found['seconds']:.1f}",
        "-",
        same(local, found),
    ]


def tables(options: Options) -> Sequence[Table]:
    """Measure everything."""
    scale = SCALE[options.quick]
    kinds, links = (KINDS[: -len(WHOLE)], LINKS[:1]) if options.quick else (KINDS, LINKS)
    with (
        Namespaces(nodes=1, link=LINKS[0], **LIMITS) as cluster,
        Driver(cluster, str(scale)) as driver,
    ):
        driver.ask("local:warm")
        local = {kind: told(driver.ask(f"local:{kind}"), "no Ray") for kind in kinds}
        naps = driver.ask("local:naps")
        cells = dict(measured(driver, cluster, kinds, links))
        fates = [
            slowed(cluster, driver, local["columns"]),
            killed(cluster, driver, naps),
            joined(cluster, driver, naps),
        ]
    fates.append(spilled(scale, local["columns"]))
    heads = ("what befell it", "s", "against the usual", "bits")
    return [scaling_table(local, cells, scale), Table("Misfortunes", heads, fates)]


if __name__ == "__main__":
    run("cluster_nodes", "A cluster of namespaced nodes", tables)
