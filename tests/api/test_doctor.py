# SPDX-License-Identifier: Apache-2.0
"""quern doctor: each thing that can be wrong is found, with its remedy, and nothing is changed."""
import json, os, pathlib, shutil

import support
from openai_server import OpenAIServer

IS_ROOT = os.geteuid() == 0


def doctor(folder, *settings, arguments=(), environment=None):
    """Exit status and findings, by area, for these lines of a settings file."""
    config = pathlib.Path(folder) / "config"
    config.write_text("".join(line + "\n" for line in settings))
    clean = {
        "PATH": "/usr/bin:/bin", "HOME": str(folder), "XDG_CACHE_HOME": str(folder),
        **(environment or {})}
    done = support.quern("doctor", "--config", config, "--json", *arguments, env=clean, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    told = json.loads(done.stdout)
    found = {}
    for finding in told["findings"]:
        assert finding["text"] and finding["verdict"] in ("good", "hint", "wrong")
        assert finding["remedy"] or finding["verdict"] != "wrong" or finding[
            "area"] == "disk", finding
        found.setdefault(finding["area"], []).append((finding["verdict"], finding["text"]))
    assert (done.returncode == 1) == (told["wrong"] > 0) == any(v == "wrong"
                                                                for rows in found.values()
                                                                for v, _ in rows)
    return done.returncode, found


def wrong(found, area):
    return " ".join(text for verdict, text in found.get(area, []) if verdict == "wrong")


def test_a_sound_installation(tmp_path):
    with support.reserved_port() as port:
        status, found = doctor(tmp_path, "model = m=echo", f"port = {port}",
                               f"state-dir = {tmp_path}/state")
        only = {area for area, rows in found.items() for verdict, _ in rows if verdict == "wrong"}
        assert only <= {"open files", "clock", "disk", "device"}, found  # the machine's own
        assert ("good", "the settings of quern serve are valid") in found["settings"]
        speed = " ".join(text for _, text in found.get("speed", []))
        assert "portable C" in str(found["processor"]) or (
            "billion operations" in speed and "GB/s of memory" in speed and "load of" in speed)
        assert "does not exist yet" in found["state directory"][0][1] and not (tmp_path /
                                                                               "state").exists()
        text = support.quern("doctor",
                             "--config",
                             tmp_path / "config",
                             env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
                             timeout=300)
        assert "\x1b" not in text.stdout and " wrong, " in text.stdout.splitlines()[-1]


def test_a_running_server(tmp_path):
    with support.serving(tmp_path / "state", "--model", "m=echo") as server:
        _, found = doctor(tmp_path, "model = m=echo", f"port = {server.port}",
                          f"state-dir = {tmp_path}/state")
        assert ("good", f"a server runs with {tmp_path}/state") in found["state directory"]
        assert any("runs quern" in text
                   for _, text in found["server"]) and any("takes work" in text
                                                           for _, text in found["server"])
        assert "port" not in found
        server.json("GET", "/v1/batches")  # and it was left alone


def test_wrong_settings(tmp_path):
    _, found = doctor(tmp_path, "modle = x")
    assert "modle" in wrong(found, "settings")
    _, found = doctor(tmp_path, "model = m=echo", "profile = other", "port = 0")
    assert "profile" in wrong(found, "settings")
    _, found = doctor(tmp_path, "port = 0")
    assert any(verdict == "hint" and "no setting names a model" in text
               for verdict, text in found["settings"])


def test_state_directories(tmp_path):
    plain = tmp_path / "file"
    plain.write_text("")
    _, found = doctor(tmp_path, "port = 0", f"state-dir = {plain}")
    assert "is no folder" in wrong(found, "state directory")
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    _, found = doctor(tmp_path, "port = 0", f"state-dir = {loose}")
    assert "may be written by other users" in wrong(found, "state directory")
    if not IS_ROOT:
        shut = tmp_path / "shut"
        shut.mkdir(0o500)
        assert "may not write" in wrong(
            doctor(tmp_path, "port = 0", f"state-dir = {shut}")[1], "state directory")
        assert "may not make it" in wrong(
            doctor(tmp_path, "port = 0", f"state-dir = {shut}/new")[1], "state directory")
    (loose / "dumps").mkdir()
    (loose / "dumps/engine-1.txt").write_text("x")
    _, found = doctor(tmp_path, "port = 0", f"state-dir = {loose}")
    assert any(verdict == "hint" and "1 dumps" in text for verdict, text in found["engines"])


def test_secrets(tmp_path):
    key = tmp_path / "key"
    key.write_text("sk-secret-word\n")
    key.chmod(0o644)
    _, found = doctor(tmp_path, "port = 0", f"api-key-file = {key}",
                      f"webhook-secret-file = {tmp_path}/none")
    assert "mode 644" in wrong(found, "secrets") and "webhook-secret-file" in wrong(
        found, "secrets")
    key.chmod(0o600)
    status, found = doctor(tmp_path, "port = 0", f"api-key-file = {key}")
    assert not wrong(found, "secrets") and "sk-secret-word" not in str(found)
    key.write_text("\n")
    assert "is empty" in wrong(doctor(tmp_path, "port = 0", f"api-key-file = {key}")[1], "secrets")
    assert "cannot read" in wrong(
        doctor(tmp_path, "port = 0", f"ssl-certfile = {tmp_path}/none.pem")[1], "secrets")


def test_models(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    _, found = doctor(tmp_path, "port = 0", "model = nothing-of-this-name", f"model = {broken}")
    assert "nothing-of-this-name" in wrong(found, "models") and "broken" in wrong(found, "models")


def test_ports_and_upstreams(tmp_path):
    with support.reserved_port() as nobody, OpenAIServer(key="sk-1") as other:
        _, found = doctor(tmp_path, "port = 0", f"upstream = away=http://127.0.0.1:{nobody}/v1",
                          f"upstream = keyed={other.url}", "upstream = nonsense")
        told = wrong(found, "upstreams")
        assert "away" in told and "cannot be reached" in told and "keyed" in told and "refuses the key" in told, found
        _, found = doctor(tmp_path,
                          "port = 0",
                          arguments=["--base-url", f"http://127.0.0.1:{nobody}"])
        assert "cannot be reached" in wrong(found, "server")
        taken_port = other.httpd.server_port
        _, found = doctor(tmp_path, f"port = {taken_port}", f"state-dir = {tmp_path}/state")
        assert any(
            verdict == "hint" and "is taken" in text for verdict, text in found["port"]), found


def test_a_card_without_cublaslt_is_told(tmp_path):
    """The plugin is a stub, and any library stands for cuBLASLt: no GPU is needed."""
    settings = ("port = 0", "model = m=echo", f"device-plugin = {support.plugin('cuda')}")
    folder = tmp_path / "lib"
    folder.mkdir()
    shutil.copy(support.plugin("good"), folder / "libcublasLt.so.12")
    _, found = doctor(tmp_path, *settings, environment={"LD_LIBRARY_PATH": str(folder)})
    assert any(verdict == "good" and "cuBLASLt is libcublasLt.so" in text
               for verdict, text in found["device"]), found
    (folder / "libcublasLt.so.12").write_text("no library")
    _, found = doctor(tmp_path, *settings, environment={"LD_LIBRARY_PATH": str(folder)})
    if not any("cuBLASLt is" in text
               for _, text in found["device"]):  # else this machine has CUDA's own
        assert "libcublasLt.so.12 cannot be loaded" in wrong(found, "device"), found


def test_a_card_that_is_asked_for_and_is_not_here(tmp_path):
    _, found = doctor(tmp_path, "port = 0", "model = m=echo", "device = cuda",
                      f"device-plugin = {tmp_path}/none.so")
    assert wrong(found, "device")
