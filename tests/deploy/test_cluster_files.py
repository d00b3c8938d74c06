"""What starts a cluster: read by Ray itself, or by the fields that we rely on."""

import re
from pathlib import Path
from typing import Any

import pytest

jsonschema = pytest.importorskip("jsonschema")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
PAGE = (ROOT / "docs" / "large-graphs.md").read_text("utf-8")
USER = 10001


def read(name: str) -> list[Any]:
    return [*yaml.safe_load_all((ROOT / "deploy" / name).read_text("utf-8"))]


(ON_PREMISE,) = read("ray-cluster.yaml")
CLAIM, CLUSTER = read("kuberay.yaml")
GROUPS = [CLUSTER["spec"]["headGroupSpec"], *CLUSTER["spec"]["workerGroupSpecs"]]
WORKERS = CLUSTER["spec"]["workerGroupSpecs"]


def container(group: dict[str, Any]) -> dict[str, Any]:
    (found,) = group["template"]["spec"]["containers"]
    return dict(found)


def volumes(group: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in group["template"]["spec"]["volumes"]}


def mounts(group: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["mountPath"] for one in container(group)["volumeMounts"]}


def size(text: str) -> int:
    """Return how many bytes Kubernetes means by such a text."""
    assert re.fullmatch(r"\d+[GT]i", text), text
    return int(text[:-2]) * {"G": 1 << 30, "T": 1 << 40}[text[-2]]


def test_ray_itself_understands_the_file_for_machines_of_ones_own():
    util = pytest.importorskip("ray.autoscaler._private.util")
    prepared = util.prepare_config(ON_PREMISE)
    util.validate_config(prepared)
    (kind,) = prepared["available_node_types"].values()
    assert kind["min_workers"] == kind["max_workers"] == len(ON_PREMISE["provider"]["worker_ips"])
    with pytest.raises(jsonschema.ValidationError):  # so a key that Ray does not know is refused
        util.validate_config(prepared | {"dockr": {}})


def test_the_commands_for_machines_of_ones_own_are_options_of_ray():
    scripts = pytest.importorskip("ray.scripts.scripts")
    known = {option for each in scripts.start.params for option in each.opts}
    lines = ON_PREMISE["head_start_ray_commands"] + ON_PREMISE["worker_start_ray_commands"]
    given = {word.partition("=")[0] for line in lines for word in line.split() if "--" in word}
    assert given
    assert given <= known
    params = {f"--{name}" for group in GROUPS for name in group["rayStartParams"]}
    assert params
    assert params <= known


def test_the_manifest_has_the_fields_that_we_rely_on():
    assert (CLUSTER["apiVersion"], CLUSTER["kind"]) == ("ray.io/v1", "RayCluster")
    assert {*CLUSTER["spec"]} == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    for group in GROUPS:
        # Ray wants its own options as text.
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        user = group["template"]["spec"]["securityContext"]
        assert (user["runAsNonRoot"], user["runAsUser"]) == (True, USER)
        for probe in ("readinessProbe", "livenessProbe"):
            assert container(group)[probe]["periodSeconds"] >= 1
    head, *workers = GROUPS
    (port,) = (one["containerPort"] for one in container(head)["ports"] if one["name"] == "gcs")
    assert container(head)["readinessProbe"]["tcpSocket"]["port"] == port == 6379
    for group in workers:  # ready when what others talk to listens
        assert 1 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        listens = int(group["rayStartParams"]["node-manager-port"])
        for probe in ("readinessProbe", "livenessProbe"):
            assert container(group)[probe]["tcpSocket"]["port"] == listens


def test_all_machines_run_one_image_with_the_ray_that_is_in_it():
    images = {container(group)["image"] for group in GROUPS} | {ON_PREMISE["docker"]["image"]}
    (image,) = images
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert image == f"evergraph-cluster:{version[1]}"
    assert f"-t {image} --target cluster" in PAGE
    pinned = re.search(r"^ray==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert CLUSTER["spec"]["rayVersion"] == pinned[1]


def test_memory_adds_up():
    for group in GROUPS:
        asked = container(group)["resources"]
        assert asked["requests"] == asked["limits"]
        memory = size(asked["limits"]["memory"])
        store = int(group["rayStartParams"]["object-store-memory"])
        assert store == size(volumes(group)["store"]["emptyDir"]["sizeLimit"])
        assert store <= 0.4 * memory  # the rest is for those who compute
    pods = 1 + sum(group["replicas"] for group in WORKERS)
    cpu, memory = (container(GROUPS[0])["resources"]["limits"][key] for key in ("cpu", "memory"))
    assert f"{pods} pods of {cpu} processors and {memory[:-2]} GiB" in PAGE


def test_folders_are_the_same_everywhere():
    (shared,) = {mounts(group)["shared"] for group in GROUPS}
    assert f"VOLUME {shared}\n" in DOCKERFILE
    assert f"--volume={shared}:{shared}" in ON_PREMISE["docker"]["run_options"]
    assert f"--dataset {shared}/" in PAGE
    for group in GROUPS:
        claim = volumes(group)["shared"]["persistentVolumeClaim"]["claimName"]
        assert claim == CLAIM["metadata"]["name"]
        assert mounts(group) == {"shared": shared, "store": "/dev/shm", "spill": "/tmp/ray"}
        assert {*volumes(group)} == {*mounts(group)}
    assert CLAIM["spec"]["accessModes"] == ["ReadWriteMany"]
    assert f"useradd --uid {USER} " in DOCKERFILE


def test_all_machines_ask_for_one_token():
    given = [{one["name"]: one for one in container(group)["env"]} for group in GROUPS]
    for env in given:
        assert env["RAY_AUTH_MODE"]["value"] == "token"
        secret = env["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
        name, key = secret["name"], secret["key"]
        assert f"kubectl create secret generic {name} --from-literal={key}=" in PAGE
    options = ON_PREMISE["docker"]["run_options"]
    (place,) = (one.partition("PATH=")[2] for one in options if "RAY_AUTH_TOKEN_PATH" in one)
    assert f"--volume={place}:{place}:ro" in options
    assert place in PAGE
