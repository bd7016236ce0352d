# SPDX-License-Identifier: Apache-2.0
"""`quern run` on a terminal: a progress line that fits, an interrupt that says how to go on, a
resumed run that counts its own work."""
import json, os, re, signal, subprocess

import pytest

import support, upstream
from terminal import Terminal


def lines(count, **echo):
    return support.jsonl([
        support.request(f"id{i}", f"text {i}", **({"echo": echo} if echo else {}))
        for i in range(count)])


def one_after_the_other(count, step_ms):
    """Lines that all wait from the start, the i-th for i steps."""
    return support.jsonl([
        support.request(f"id{i}", f"text {i}", echo={"delay_ms": (i + 1) * step_ms})
        for i in range(count)])


def terminal_of(folder, columns, content, **terminal):
    """A run in a terminal of so many columns."""
    (folder / "in.jsonl").write_bytes(content)
    return Terminal(columns, "run", "-i", folder / "in.jsonl", "-o", folder / "out.jsonl",
                    "--model", "smollm2=echo", **terminal)


@pytest.mark.parametrize("columns", [20, 40, 79, 200])
def test_a_drawn_line_fits_the_terminal(tmp_path, columns):
    terminal = terminal_of(tmp_path, columns, one_after_the_other(60, 30))
    assert terminal.end() == 0
    drawn = [line for line in terminal.drawn() if "done" in line]
    assert len(drawn) > 1 and all(len(line) < columns for line in drawn), max(drawn, key=len)
    assert all(re.search(r"\d+/60 done", line) for line in drawn)
    assert ("tokens in" in drawn[-1]) == (columns == 200) and ("[#" in drawn[-1]) == (columns >= 79)


def test_a_terminal_that_grows_gets_more(tmp_path):
    terminal = terminal_of(tmp_path, 30, one_after_the_other(400, 50))
    support.until(lambda: b"done" in terminal.text)
    assert b"tokens in" not in terminal.text
    terminal.resize(180)
    support.until(lambda: b"tokens in" in terminal.text)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130


def test_a_dumb_terminal_gets_no_escape_sequences(tmp_path):
    terminal = terminal_of(tmp_path, 80, one_after_the_other(20, 30), term="dumb")
    assert terminal.end() == 0 and b"\x1b" not in terminal.text and b"20 of 20" in terminal.text


def test_an_interrupt_tells_what_is_done_and_the_next_run_counts_its_own(tmp_path):
    terminal = terminal_of(tmp_path, 100,
                           lines(40) + lines(80, hang=True).replace(b'"id', b'"slow'))
    support.until(lambda: b"40/120 done" in terminal.text)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    said = terminal.text.decode().splitlines()[-1]
    assert "stopped with 40 of 120 requests done" in said and "same command goes on" in said
    again = terminal_of(tmp_path, 100, (tmp_path / "in.jsonl").read_bytes())
    support.until(lambda: b"40/120 done" in again.text)
    assert re.search(rb"40/120 done, 0 failed, 0\.00 req/s",
                     again.text), "what was done before is no work of this run"
    again.process.send_signal(signal.SIGINT)
    assert again.end() == 130


def test_the_summary_of_a_resumed_run_counts_this_run(tmp_path):
    first = terminal_of(tmp_path, 100, one_after_the_other(60, 150))
    support.until(lambda: re.search(rb"(\d\d)/60 done", first.text))
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 130
    before = int(re.search(r"stopped with (\d+) of 60", first.text.decode())[1])
    assert 10 <= before < 60
    noted = float((tmp_path / "out.jsonl.quern/seconds").read_text().split()[0])
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                         "--model", "smollm2=echo", "--json", "--rent-per-hour", "3600")
    summary = json.loads(done.stdout)
    assert done.returncode == 0 and (summary["requests"], summary["completed"]) == (60, 60)
    assert summary["seconds_before"] == noted > before * 0.14, "each answer waits 150 ms longer"
    whole = noted + summary["seconds"] + summary["load_seconds"]
    assert summary["costs"]["once"]["rented_gpu"] == pytest.approx(whole, rel=0.01)
    assert before == summary["done_before"] < 60
    assert summary["req_s"] == pytest.approx((60 - summary["done_before"]) / summary["seconds"],
                                             rel=0.01)


def test_after_an_interrupt_nothing_more_is_sent_and_the_number_is_that_of_the_next_run(tmp_path):
    """Each request that the upstream has got is answered and kept before the run ends; all others
    are still to do."""
    fake = upstream.Upstream()
    words = ["--upstream", f"up={fake.url},models=fake,concurrency=2"]
    (tmp_path / "in.jsonl").write_bytes(
        support.jsonl([
            support.request(f"id{i}", f"text {i} ms=40", model="fake") for i in range(300)]))
    command = [
        support.BINARY, "run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    support.until(lambda: len(fake.behaviour.bodies) > 20)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    told, sent = int(re.search(r"stopped with (\d+) of 300", said)[1]), len(fake.behaviour.bodies)
    assert 20 <= told == sent < 300
    done = support.quern(*command[1:], "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["done_before"] == told and len(
        fake.behaviour.bodies) == 300
    fake.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_is_no_crash_of_the_engine(tmp_path, number):
    content = support.jsonl([
        support.request(f"id{i}", "x", model="tiny", max_tokens=200, ignore_eos=True)
        for i in range(2000)])
    (tmp_path / "in.jsonl").write_bytes(content)
    process = subprocess.Popen([
        support.BINARY, "run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model",
        f"tiny={support.SHARED / 'tiny/llama3'}"],
                               stderr=subprocess.PIPE,
                               text=True,
                               start_new_session=True)
    support.until(lambda: (tmp_path / "out.jsonl.quern/batches").exists() and any(
        (tmp_path / "out.jsonl.quern/batches").rglob("seg-*.log")))
    os.killpg(process.pid, number)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 130 and "stopped with" in said
    assert "engine" not in said.replace(str(tmp_path), ""), said
