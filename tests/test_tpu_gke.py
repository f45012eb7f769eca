"""TPU slices of GKE: JobSet and image; nothing touches a cluster."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from tpu_cloud import FOLDER, ROOT, WORDS, cloud_in


@pytest.fixture
def cloud(tmp_path):
    with cloud_in(tmp_path) as made:
        yield made


# What Kubernetes reads in the words of a container, unless it is kept from that.
DOLLARS = ["$$", "$$$(RUN_URL)", "$(RUN_URL)", "a\n$$ $(RUN_URL)", "$HOME\t\\$$"]


def as_kubernetes(word):
    """What a container gets: $$ is $, and $(NAME) is what its environment has."""

    def meant(found):
        return (
            "$" if found[0] == "$$" else {"RUN_URL": "gs://b"}.get(found[1], found[0])
        )

    return re.sub(r"\$\$|\$\((\w+)\)", meant, word)


def jobset_of(cloud, *words, **env):
    done = cloud.run("jobset_run.sh", *words, **env)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load((cloud.stub / "applied.yaml").read_text())


def test_jobset_says_the_slice_and_the_words(cloud):
    words = [*WORDS, *DOLLARS, "${IMAGE}", "# no comment", "- x: y"]
    made = jobset_of(cloud, *words, GKE_QUEUE="multislice-queue", GKE_DISK="90Gi")
    assert made["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert made["kind"] == "JobSet" and made["metadata"]["name"] == "trial"
    labels = made["metadata"]["labels"]
    assert labels == {"kueue.x-k8s.io/queue-name": "multislice-queue"}
    (part,) = made["spec"]["replicatedJobs"]
    job = part["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 16
    assert part["replicas"] == 1 and job["backoffLimit"] == 0
    pod = job["template"]["spec"]
    # Kubernetes takes a failure policy of pods with this restart policy alone.
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    assert [as_kubernetes(word) for word in container["args"]] == words
    assert "command" not in container
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert container["resources"]["limits"] == {"google.com/tpu": 4}
    assert container["resources"]["requests"] == {
        "google.com/tpu": 4,
        "ephemeral-storage": "90Gi",
    }
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
    assert container["env"] == [{"name": "RUN_URL", "value": "gs://my-bucket/trial"}]


@pytest.mark.parametrize("spot", ["0", "1"])
def test_jobset_asks_for_spot_nodes_where_told(spot, cloud):
    made = jobset_of(cloud, "true", SPOT=spot)
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    nodes = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "8x8",
    }
    if spot == "1":
        nodes["cloud.google.com/gke-spot"] = "true"
    assert pod["nodeSelector"] == nodes
    assert made["metadata"]["labels"] == {}


def test_pod_saves_reports_of_the_first_host_alone(tmp_path):
    app = tmp_path / "app"
    shutil.copytree(FOLDER, app / "tpu_scripts")
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    entry = ["bash", app / "tpu_scripts/on_worker/in_pod.sh"]
    command = "mkdir -p runs/a && echo {} >runs/a/report.json; exit 3"
    for worker in "01":
        done = subprocess.run(
            [*entry, "bash", "-c", command],
            env={
                "PATH": f"{python.parent}:{os.environ['PATH']}",
                "PYTHONPATH": os.pathsep.join(sys.path),
                "RUN_URL": f"file://{tmp_path}/bucket{worker}",
                "TPU_WORKER_ID": worker,
            },
        )
        assert done.returncode == 3
    assert (tmp_path / "bucket0/out/a/report.json").read_text() == "{}\n"
    assert not (tmp_path / "bucket1").exists()


def test_large_files_are_left_and_named(tmp_path):
    path = FOLDER / "on_worker/save_reports.py"
    spec = importlib.util.spec_from_file_location("save_reports", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "out").mkdir()
    with (tmp_path / "out/stream.npy").open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    (tmp_path / "out/report.json").write_text("{}")
    target = tmp_path / "bucket"
    assert module.save_reports(tmp_path / "out", f"file://{target}") == ["stream.npy"]
    assert [path.name for path in target.iterdir()] == ["report.json"]


def test_image_holds_what_its_file_names():
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    version = re.search(r"Python ([\d.]+)", (ROOT / "constraints.txt").read_text())
    assert version is not None and f"FROM python:{version[1]}-slim" in lines
    copied = [
        word
        for line in lines
        if line.startswith("COPY ")
        for word in line.split()[1:-1]
    ]
    assert all((ROOT / word).exists() for word in copied)
    assert "tpu_scripts/env" in (FOLDER / "Dockerfile.dockerignore").read_text().split()
