# SPDX-License-Identifier: Apache-2.0
"""The package on a bare Debian 12 whose process 1 is systemd: what the unit promises, by a real
service manager. In this order."""
import json, os, pathlib, re, signal, subprocess

import support
from conftest import KEY


def requests(count, tokens=48):
    return [
        support.request(f"line-{i:03d}",
                        f"Tell a story about number {i}.",
                        temperature=0,
                        max_tokens=tokens,
                        ignore_eos=True) for i in range(count)]


def half_way(server, batch, at_least=3):
    support.until(lambda: server.batch(batch)["request_counts"]["completed"] >= at_least, 600)
    return server.batch(batch)["request_counts"]["completed"]


def ends_whole(server, batch, count):
    ended = server.wait(batch, 1200)
    output, errors = server.results(ended)
    assert ended["status"] == "completed" and errors == []
    assert [line["custom_id"] for line in output] == [f"line-{i:03d}" for i in range(count)]


def test_the_package_is_there_and_wrong_settings_are_said_once(debian):
    assert debian.good("quern", "--version").startswith("quern ")
    assert debian.good("stat", "-c", "%a %U", "/var/lib/quern", "/var/cache/quern").split() == [
        "700", "quern", "755", "quern"]
    environment = (debian.folder / "etc/quern/quern.env").read_text()
    debian.write("/etc/quern/quern.env", environment + "QUERN_MODEL=of-nobody\n")
    assert debian.run("systemctl", "start", "quern").returncode != 0
    debian.write("/etc/quern/quern.env", environment)
    assert debian.show("ExecMainStatus") == "2" and debian.show(
        "NRestarts") == "0", "wrong settings are not tried again"
    assert "of-nobody" in debian.good("journalctl", "-u", "quern", "--no-pager")


def test_it_starts_shut_in_and_takes_keys_from_credentials(debian):
    environment = (debian.folder / "etc/quern/quern.env").read_text()
    debian.write(
        "/etc/quern/quern.env", environment +
        "QUERN_MODEL=smollm2\nQUERN_DRAIN_SECONDS=5\nQUERN_LOOKAHEAD_LINES=8\nQUERN_MAX_NUM_SEQS=4\n"
    )
    debian.good("systemctl", "start", "quern")
    assert debian.show("ActiveState") == "active"
    server = debian.server()
    assert server.call("GET", "/v1/models")[0] == 200
    assert server.call("GET", "/v1/models", headers={"Authorization": "Bearer sk-wrong"})[0] == 401
    found = re.search(r"event=sandbox landlock=(\d+) seccomp=1", server.log_text())
    assert found and (
        int(found[1]) > 0
        or not pathlib.Path("/sys/kernel/security/landlock").exists()), server.log_text()
    for pid in debian.good("systemctl", "show", "quern", "-p", "MainPID", "--value").split():
        status = debian.good("cat", f"/proc/{pid}/status")
        assert re.search(r"^CapEff:\s+0+$", status, re.M) and re.search(
            r"^NoNewPrivs:\s+1$", status, re.M) and re.search(r"^Seccomp:\s+2$", status, re.M)
    support.until(lambda: re.match(r"idle; \d+ lines done", debian.show("StatusText")))


def test_a_restart_in_the_middle_of_a_batch_loses_nothing(debian):
    server = debian.server()
    batch = server.create(support.jsonl(requests(40)))["id"]
    counted = half_way(server, batch)
    debian.good("systemctl", "restart", "quern")
    assert server.batch(batch)["request_counts"]["completed"] >= counted
    support.until(lambda: re.search(r"recovered \d+ of 40 lines", debian.show("StatusText")))
    ends_whole(server, batch, 40)
    assert debian.show("NRestarts") == "0" and debian.show("Result") == "success"


def test_a_reload_in_the_middle_of_a_batch_loses_nothing(debian):
    """systemd keeps a credential as it was at the start; a file of keys is read again."""
    server = debian.server()
    debian.write("/etc/quern/keys", f"{KEY}\nsk-reload-one\n", 0o600)
    debian.good("chown", "quern:quern", "/etc/quern/keys")
    debian.write("/etc/quern/config", "api-key-file = /etc/quern/keys\n")
    debian.good("systemctl", "restart", "quern")
    pid, status = debian.show("MainPID"), lambda key: server.call(
        "GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})[0]
    batch = server.create(support.jsonl(requests(40, 200)))["id"]
    half_way(server, batch, 1)
    for name in ("sk-reload-two", "sk-reload-three"):
        debian.write("/etc/quern/keys", f"{KEY}\n{name}\n", 0o600)
        debian.good("systemctl", "reload", "quern")
        support.until(lambda: status(name) == 200,
                      300)  # ExecReload sends the signal and does not wait for the server
        assert status("sk-reload-one") == 401
    assert server.batch(batch)["status"] == "in_progress", "the reloads came after the batch"
    ends_whole(server, batch, 40)
    assert debian.show("MainPID") == pid and debian.show("ActiveState") == "active" and debian.show(
        "Result") == "success"
    assert "reload_failed" not in server.log_text()


def test_a_kill_is_followed_by_a_start_that_goes_on(debian):
    server, before = debian.server(), int(debian.show("NRestarts"))
    batch = server.create(support.jsonl(requests(40)))["id"]
    half_way(server, batch)
    debian.good("systemctl", "kill", "-s", "KILL", "--kill-who=main", "quern")
    support.until(
        lambda: int(debian.show("NRestarts")) > before and debian.show("ActiveState") == "active",
        600)
    ends_whole(server, batch, 40)


def test_a_server_that_gives_no_beat_is_started_again(debian):
    server = debian.server()
    debian.write("/etc/systemd/system/quern.service.d/watchdog.conf", "[Service]\nWatchdogSec=20\n")
    debian.good("systemctl", "daemon-reload")
    debian.good("systemctl", "restart", "quern")
    debian.good("systemctl", "kill", "-s", "STOP", "--kill-who=main", "quern")
    support.until(
        lambda: int(debian.show("NRestarts")) > 0 and debian.show("ActiveState") == "active", 600)
    assert "Watchdog timeout" in debian.good("journalctl", "-u", "quern", "--no-pager")
    assert server.call("GET", "/health")[0] == 200
    (debian.folder / "etc/systemd/system/quern.service.d/watchdog.conf").unlink()
    debian.good("systemctl", "daemon-reload")


def test_a_machine_that_loses_its_power_goes_on_after_its_boot(debian):
    server = debian.server()
    debian.good("systemctl", "enable", "quern")
    debian.good("systemctl", "restart", "quern")
    batch = server.create(support.jsonl(requests(40)))["id"]
    half_way(server, batch)
    debian.power_off()
    debian.boot()
    support.until(lambda: debian.show("ActiveState") == "active", 600)
    ends_whole(server, batch, 40)
    debian.good("systemctl", "stop", "quern")
    assert debian.show("Result") == "success"
    support.fsck(debian.folder / "var/lib/quern")


def test_an_installation_again_restarts_it_and_a_purge_leaves_the_results(debian, deb):
    debian.good("systemctl", "start", "quern")
    pid = debian.show("MainPID")
    debian.good("dpkg", "--force-confold", "-i", f"/root/{deb.name}")
    assert debian.show("ActiveState") == "active" and debian.show("MainPID") != pid
    assert "QUERN_MODEL=smollm2" in (debian.folder / "etc/quern/quern.env").read_text()
    debian.good("dpkg", "--purge", "quern")
    assert not (debian.folder / "usr/bin/quern").exists() and not (debian.folder /
                                                                   "etc/quern/quern.env").exists()
    assert not (debian.folder / "var/cache/quern").exists() and (debian.folder /
                                                                 "var/lib/quern/meta.db").exists()
