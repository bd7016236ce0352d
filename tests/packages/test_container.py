# SPDX-License-Identifier: Apache-2.0
"""The image of packaging/container, built by podman over a Debian made here, and run as the compose
file runs it."""
import http.client, json, os, pathlib, re, shutil, subprocess

import pytest

import support
from conftest import KEY, UNREACHABLE

FOLDER = support.ROOT / "packaging/container"


class Podman:
    """podman with a store of its own. runc: crun refuses a machine with cgroups of both
    versions."""

    def __init__(self, folder):
        self.options = [
            "--root", folder / "store", "--runroot", folder / "run", "--storage-driver", "vfs",
            "--runtime", "runc"]

    def __call__(self, *words, **keywords):
        return subprocess.run(["podman", *map(str, (*self.options, *words))],
                              capture_output=True,
                              text=True,
                              **keywords)

    def good(self, *words):
        done = self(*words)
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done.stdout.strip()


@pytest.fixture(scope="module")
def podman(deb, tmp_path_factory):
    if os.geteuid() != 0 or not all(map(shutil.which, ("podman", "runc", "mmdebstrap"))):
        pytest.skip("needs root, podman, runc and mmdebstrap")
    folder = tmp_path_factory.mktemp("podman")
    made = subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", folder / "base.tar"],
        capture_output=True,
        text=True)
    if made.returncode != 0 and UNREACHABLE.search(made.stderr):
        pytest.skip("no Debian can be fetched without network")
    assert made.returncode == 0, made.stderr[-3000:]
    podman = Podman(folder)
    podman.good("import", folder / "base.tar", "debian:bookworm-slim")
    podman.good("build", "--format", "docker", "--isolation", "chroot", "--network", "host",
                "--pull=never", "--build-arg", "BASE=localhost/debian:bookworm-slim", "-f",
                FOLDER / "Containerfile", "-t", "quern", support.ROOT)
    yield podman
    podman("rm", "-f", "-a")
    podman("rmi", "-f", "-a")


def test_a_container_serves_shut_in_and_drains(podman, tmp_path):
    (tmp_path / "key").write_text(KEY)
    podman.good("run", "-d", "--name", "server", "--read-only", "--tmpfs", "/tmp", "--network",
                "host", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ulimit",
                "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "-v",
                f"{tmp_path}/key:/run/secrets/api-keys:ro", "-e",
                "QUERN_API_KEYS_FILE=/run/secrets/api-keys", "-e", "QUERN_MODEL=smollm2=echo", "-e",
                "QUERN_HOST=127.0.0.1", "-e", "QUERN_PORT=0", "quern")
    support.until(lambda: "listening on" in podman("logs", "server").stdout, 300)
    port = int(
        re.search(r"listening on http://127.0.0.1:(\d+)",
                  podman("logs", "server").stdout)[1])

    def status(headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", "/v1/models", headers=headers)
        return connection.getresponse().status
    assert status({}) == 401 and status({"Authorization": f"Bearer {KEY}"}) == 200
    assert podman.good("exec", "server", "id", "-u") == "10001"
    assert podman("exec", "server", "touch",
                  "/etc/written").returncode != 0, "the root is read-only"
    assert podman.good("exec", "server", "stat", "-c", "%a %u", "/var/lib/quern") == "700 10001"
    podman.good("stop", "-t", "120", "server")
    assert json.loads(podman.good("inspect", "server"))[0]["State"]["ExitCode"] == 0
    said = podman("logs", "server")
    assert "drained left=nothing" in said.stdout + said.stderr


def test_the_image_says_what_it_is_and_how_it_is_well(podman):
    image = json.loads(podman.good("image", "inspect", "quern"))[0]
    assert image["Labels"]["org.opencontainers.image.title"] == "quern" and image["Labels"][
        "org.opencontainers.image.licenses"] == "Apache-2.0"
    assert image["User"] == "10001:10001" and image["Config"]["StopSignal"] == "SIGTERM"
    check = image.get("Healthcheck") or image.get("HealthCheck") or image["Config"]["Healthcheck"]
    assert check["Test"][0] == "CMD" and check["StartPeriod"] == 600 * 10**9
    podman("rm", "-f", "server")
    with support.reserved_port() as port:
        podman.good("run", "-d", "--name", "server", "--network", "host", "--ulimit",
                    "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "-e",
                    "QUERN_MODEL=smollm2=echo", "-e", "QUERN_HOST=127.0.0.1", "-e",
                    f"QUERN_PORT={port}", "quern")
        support.until(lambda: podman("exec", "server", *check["Test"][1:]).returncode == 0, 300)
        podman.good("stop", "-t", "120", "server")


def test_compose_files_are_whole():
    yaml = pytest.importorskip("yaml")
    files = {
        name: yaml.safe_load((FOLDER / name).read_text())
        for name in ("compose.yaml", "compose.gpu.yaml", "compose.metrics.yaml", "prometheus.yml")}
    quern = files["compose.yaml"]["services"]["quern"]
    assert quern["read_only"] and quern["cap_drop"] == ["ALL"] and quern["security_opt"] == [
        "no-new-privileges:true"]
    assert set(quern["secrets"]) <= set(files["compose.yaml"]["secrets"])
    assert not any("key" in name.lower() and not str(value).startswith("/run/secrets/")
                   for name, value in quern["environment"].items())
    device = files["compose.gpu.yaml"]["services"]["quern"]["deploy"]["resources"]["reservations"][
        "devices"][0]
    assert device["driver"] == "nvidia" and device["capabilities"] == [["gpu"]][0]
