# SPDX-License-Identifier: Apache-2.0
"""The files that start nodes: their form, and that each names options, paths and values that exist.
No Kubernetes, KEDA, SLURM, SkyPilot or Ray runs here."""
import ast, json, pathlib, re, subprocess, urllib.parse

import pytest
import yaml

import support

PACKAGING, NODES = support.ROOT / "packaging", support.ROOT / "examples/nodes"


@pytest.fixture(scope="module")
def manifests():
    """The objects of the manifest by kind and name."""
    found = {}
    for one in yaml.safe_load_all((PACKAGING / "kubernetes/quern.yaml").read_text()):
        assert one["apiVersion"] and one["metadata"]["namespace"] == "quern"
        assert found.setdefault((one["kind"], one["metadata"]["name"]), one) is one
    return found


def options_of(command):
    done = support.quern(command, "--help")
    return set(re.findall(r"--[a-z][a-z-]+", done.stdout + done.stderr))


def check_variables(names, command):
    known = options_of(command)
    for name in names:
        if name in ("QUERN_API_KEYS_FILE", "QUERN_QUEUE_PASSWORD_FILE"):
            continue
        assert "--" + name.removeprefix("QUERN_").lower().replace("_", "-") in known, name


def pods(manifests):
    return {
        name: one["spec"]["template"]
        for (kind, name), one in manifests.items() if kind in ("Deployment", "StatefulSet")}


def test_the_pods_are_shut_in_and_select_themselves(manifests):
    assert set(pods(manifests)) == {"quern-queue", "quern", "quern-worker"}
    for (kind, name), one in manifests.items():
        if kind in ("Deployment", "StatefulSet"):
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
        if kind == "Service":
            selected = pods(manifests)[name]
            assert one["spec"]["selector"].items() <= selected["metadata"]["labels"].items()
            ports = {port["containerPort"] for port in selected["spec"]["containers"][0]["ports"]}
            assert {port["port"] for port in one["spec"]["ports"]} == ports
    for name, pod in pods(manifests).items():
        spec, container = pod["spec"], pod["spec"]["containers"][0]
        assert spec["securityContext"]["runAsNonRoot"] and not spec["automountServiceAccountToken"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]}}, name
        volumes = {volume["name"] for volume in spec["volumes"]} | {
            claim["metadata"]["name"]
            for claim in manifests.get(("StatefulSet", name), {}).get("spec", {}).get(
                "volumeClaimTemplates", [])}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes, name


def test_server_and_nodes_are_one_cluster_with_different_rights(manifests):
    for name, command, user in (("quern", "serve", "server"), ("quern-worker", "worker", "node")):
        spec = pods(manifests)[name]["spec"]
        container = spec["containers"][0]
        assert container["args"] == [command]
        env = {one["name"]: one["value"] for one in container["env"]}
        check_variables(env, command)
        url = urllib.parse.urlsplit(env["QUERN_QUEUE"])
        assert (url.username, url.hostname, url.query) == (user, "quern-queue", "cluster=prod")
        secret = next(volume["secret"] for volume in spec["volumes"] if volume["name"] == "secrets")
        files = {item["path"] for item in secret["items"]}
        folder = next(mount["mountPath"] for mount in container["volumeMounts"]
                      if mount["name"] == "secrets")
        # A group of the pod may read these files, which quern allows in this folder alone.
        assert folder.startswith("/run/secrets/")
        for variable, value in env.items():
            if variable.endswith("_FILE"):
                assert pathlib.PurePath(value).parent == pathlib.PurePath(folder)
                assert pathlib.PurePath(value).name in files
        assert f"queue-{user}-password" in files and len(files) == (2 if command == "serve" else 1)
        grace, drain = spec["terminationGracePeriodSeconds"], env.get("QUERN_DRAIN_SECONDS", "30")
        assert grace >= int(drain) + 10


def test_keda_reads_the_number_that_the_server_tells(manifests, tmp_path):
    scaled = manifests["ScaledObject", "quern-worker"]["spec"]
    assert ("Deployment", scaled["scaleTargetRef"]["name"]) in manifests
    assert scaled["minReplicaCount"] == 0 and scaled["maxReplicaCount"] == 48
    assert "replicas" in manifests["Deployment", "quern-worker"]["spec"]
    trigger, = scaled["triggers"]
    meta = trigger["metadata"]
    assert trigger["type"] == "metrics-api" and trigger["metricType"] == "AverageValue"
    assert all(isinstance(value, str) for value in meta.values()), "KEDA takes texts alone"
    assert (meta["format"], meta["targetValue"], meta["authMode"]) == ("json", "1", "bearer")
    keys = manifests["TriggerAuthentication", trigger["authenticationRef"]["name"]]["spec"][
        "secretTargetRef"]
    assert [key["parameter"] for key in keys] == ["token"]
    url = urllib.parse.urlsplit(meta["url"])
    assert url.hostname == "quern.quern" and url.port == 8080
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        answer = server.json("GET", f"{url.path}?{url.query}")
        assert isinstance(answer[meta["valueLocation"]], int)


def test_the_compose_file_joins_a_queue_a_server_and_nodes():
    services = yaml.safe_load((PACKAGING / "container/compose.workers.yaml").read_text())
    base = yaml.safe_load((PACKAGING / "container/compose.yaml").read_text())
    queue, server, worker = (services["services"][name] for name in ("queue", "quern", "worker"))
    words = queue["command"]
    assert words[words.index("--maxmemory-policy") + 1] == "noeviction"
    assert words[words.index("--appendonly") + 1] == "no"
    assert server["environment"]["QUERN_QUEUE"] == worker["environment"]["QUERN_QUEUE"]
    check_variables(worker["environment"], "worker")
    check_variables(server["environment"], "serve")
    assert worker["command"] == ["worker"] and worker["cap_drop"] == ["ALL"]
    assert {mount.split(":")[0] for mount in worker["volumes"]} & set(base["volumes"])
    for service in (queue, server, worker):
        assert "nodes" in service["networks"]
    assert int(worker["stop_grace_period"].rstrip("s")) >= int(
        worker["environment"]["QUERN_DRAIN_SECONDS"]) + 10
    assert "ports" not in queue, "the queue has no password"


def test_the_compose_file_joins_a_label_studio_and_the_button_for_it():
    both = yaml.safe_load((PACKAGING / "container/compose.label-studio.yaml").read_text())
    base = yaml.safe_load((PACKAGING / "container/compose.yaml").read_text())
    server, studio = both["services"]["quern"], both["services"]["label-studio"]
    check_variables(server["environment"], "serve")
    assert server["environment"]["QUERN_LABEL_STUDIO_URL"] == "http://label-studio:8080"
    secret = server["environment"]["QUERN_LABEL_STUDIO_TOKEN_FILE"].removeprefix("/run/secrets/")
    assert secret in server["secrets"] and secret in both["secrets"]
    assert set(base["services"]["quern"]["secrets"]) <= set(server["secrets"])
    assert studio["environment"]["LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN"] == "true"
    [port] = studio["ports"]
    assert port.startswith("127.0.0.1:") and port.endswith(":8080")
    assert studio["volumes"][0].split(":")[0] in both["volumes"]


def test_the_unit_of_nodes_differs_from_the_servers_in_what_a_node_needs_less():
    def rows(name):
        text = (PACKAGING / "systemd" / name).read_text()
        return {row for row in text.splitlines() if row and not row.startswith("#")}
    server, node = rows("quern.service.in"), rows("quern-worker@.service.in")
    assert "ExecStart=@bindir@/quern worker" in node and "Type=exec" in node
    assert "EnvironmentFile=-/etc/quern/worker-%i.env" in node
    only = {row.split("=")[0] for row in server - node}
    assert only == {
        "Description", "Documentation", "Type", "ExecStart", "ExecReload", "EnvironmentFile",
        "Environment", "StateDirectory", "StateDirectoryMode", "WorkingDirectory", "LoadCredential",
        "TimeoutStartSec", "WatchdogSec", "SuccessExitStatus", "IPAddressDeny", "IPAddressAllow"}


def test_the_scripts_are_whole_and_use_options_that_exist():
    known = options_of("worker")
    script = NODES / "slurm.sh"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    text = script.read_text()
    assert re.search(r"^#SBATCH --signal=B:TERM@120$", text, re.M)
    assert int(re.search(r"--drain-seconds (\d+)", text)[1]) <= 110
    task = yaml.safe_load((NODES / "skypilot.yaml").read_text())
    assert task["resources"]["use_spot"] is True and "pip install quern" in task["setup"]
    assert task["secrets"] == {"QUEUE_PASSWORD": None}, "no secret stands in the file"
    check_variables([name for name in task["envs"] if name.startswith("QUERN_")], "worker")
    ray = (NODES / "ray_nodes.py").read_text()
    ast.parse(ray)
    for words in (text.split("exec quern worker")[1], task["run"].split("quern worker")[1],
                  ray.split('"worker"')[1].split("\n")[0]):
        assert set(re.findall(r"--[a-z-]+", words)) <= known


def test_an_actor_of_the_ray_example_starts_a_node_and_drains_it(tmp_path):
    program = tmp_path / "bin/quern"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{support.BINARY}" "$@"\n')
    program.chmod(0o755)
    code = """
import json, sys, threading, time
sys.path.insert(0, sys.argv[1])
from ray_nodes import QuernNode
node = QuernNode("redis://127.0.0.1:9/", "m=echo", ["--drain-seconds", "0"])
thread = threading.Thread(target=node.run)
thread.start()
while not node.process or node.process.poll() is None and not open(f"/proc/{node.process.pid}/cmdline").read().count("worker"):
    time.sleep(0.01)
node.drain()
thread.join(60)
print(json.dumps({"status": node.process.returncode, "alive": thread.is_alive()}))
"""
    done = subprocess.run(["python3", "-c", code, NODES],
                          env={"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(tmp_path)},
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["alive"] is False
