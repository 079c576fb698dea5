"""The manifests for Kubernetes and KubeRay: fields that exist, our image, and commands that our parser accepts."""

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from images import DEPLOY, IMAGES, ROOT, command_of, images_of, parse_timecycle

from timecycle.cli.bulk import Bulk
from timecycle.cli.train import Train

KUBERNETES = "1.33"  # the oldest version that has every field; deploy/kubernetes/bulk.yaml says so
FILES = sorted(DEPLOY.glob("kube*/*.yaml"))

# Of the reference of ray.io/v1 in KubeRay 1.7; the templates of pods in it are checked as Kubernetes' own.
RAY_FIELDS = {
    "spec": {
        *("entrypoint", "rayClusterSpec", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "backoffLimit"),
        *("activeDeadlineSeconds", "clusterSelector", "jobId", "metadata", "runtimeEnvYAML", "submissionMode"),
        *("submitterConfig", "submitterPodTemplate", "suspend", "entrypointNumCpus", "entrypointNumGpus"),
    },
    "rayClusterSpec": {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs", "enableInTreeAutoscaling"},
    "headGroupSpec": {"rayStartParams", "template", "serviceType", "headService", "labels"},
    "workerGroupSpecs": {
        *("groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"),
        *("numOfHosts", "idleTimeoutSeconds", "labels", "suspend"),
    },
}


def read(path: Path) -> dict:
    """The one object of a file."""
    (document,) = yaml.safe_load_all(path.read_text())
    return document


def validate(document: dict) -> None:
    """Raise if Kubernetes would refuse the object, also for a field that it does not know."""
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_every_kind_of_cluster_has_a_file():
    assert {(path.parent.name, read(path)["kind"]) for path in FILES} == {("kubernetes", "Job"), ("kuberay", "RayJob")}


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parent.name == "kubernetes"], ids=lambda path: path.name
)
def test_kubernetes_accepts_the_job(path):
    document = read(path)
    validate(document)
    document["spec"]["template"]["spec"]["containers"][0]["imgae"] = "a field that does not exist"
    with pytest.raises(Exception, match="imgae"):
        validate(document)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_container_runs_our_image_as_its_user(path):
    named = images_of(path.read_text())
    assert len(named) == 1
    assert named <= set(IMAGES.values())
    for pod in pods(read(path)):
        assert {container["image"] for container in pod["containers"]} == named
        assert pod["securityContext"]["runAsUser"] == 1000  # USER of the Dockerfile
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


def pods(node: object) -> list[dict]:
    """The specifications of all pods in an object."""
    if isinstance(node, list):
        return [pod for one in node for pod in pods(one)]
    if not isinstance(node, dict):
        return []
    if "containers" in node:
        return [node]
    return [pod for one in node.values() for pod in pods(one)]


def test_each_index_of_the_job_does_its_own_share():
    spec = read(DEPLOY / "kubernetes" / "bulk.yaml")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    line = container["args"][0].replace("$JOB_COMPLETION_INDEX", "3")
    command = parse_timecycle(command_of(line))
    assert isinstance(command, Bulk)
    assert command.shard == f"3/{spec['completions']}"
    assert spec["parallelism"] == spec["maxFailedIndexes"] == spec["completions"]
    (rule,) = [rule["onExitCodes"] for rule in spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert rule["containerName"] == container["name"]


def test_training_job_starts_a_process_for_each_gpu():
    (container,) = pods(read(DEPLOY / "kubernetes" / "train.yaml"))[0]["containers"]
    (line,) = re.findall(r"exec (torchrun .*)", container["args"][0])
    command = parse_timecycle(command_of(line.replace('"$@"', "--resume")))
    assert isinstance(command, Train)
    assert f"--nproc-per-node={container['resources']['limits']['nvidia.com/gpu']}" in line
    assert f"{command.out}/train.json" in container["args"][0]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(command.cache), str(command.out.parent)} <= mounted


def test_kuberay_knows_every_field_of_the_job():
    spec = read(DEPLOY / "kuberay" / "bulk.yaml")["spec"]
    cluster = spec["rayClusterSpec"]
    head, workers = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    parts = [("spec", spec), ("rayClusterSpec", cluster), ("headGroupSpec", head)]
    for name, part in (*parts, *(("workerGroupSpecs", group) for group in workers)):
        assert set(part) <= RAY_FIELDS[name], name
    for group in (head, *workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        validate(
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "one"}, "template": group["template"]}
        )


def test_ray_of_the_manifest_is_that_of_the_image():
    pinned = re.search(r"^ray==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    assert read(DEPLOY / "kuberay" / "bulk.yaml")["spec"]["rayClusterSpec"]["rayVersion"] == pinned[1]


def test_ray_job_uses_every_core_of_its_workers():
    spec = read(DEPLOY / "kuberay" / "bulk.yaml")["spec"]
    command = parse_timecycle(command_of(spec["entrypoint"]))
    assert isinstance(command, Bulk)
    assert command.ray == "auto"
    (group,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    assert command.workers == group["replicas"] * int(container["resources"]["limits"]["cpu"]) / command.threads
