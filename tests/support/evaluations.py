# SPDX-License-Identifier: Apache-2.0
"""`quern evaluate` killed on its way: moments that are shares of all results, and what a report
must say whatever happened to its command."""
import contextlib, json, os, pathlib, re, signal, subprocess, time

import support

PIECE = 1 << 16
LASTING = ("name", "requests", "answered", "failed", "truncated", "empty", "valid_share",
           "prompt_tokens", "completion_tokens", "tokens_per_request", "context")


def _records(path):
    """Results in a segment of a log, whose rest is zeros."""
    count, last = 0, b""
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            count += (last + piece).count(b'"custom_id"')
            last = piece[-10:]
            if not piece.strip(b"\0"):
                break
    return count


def results_so_far(folder, names):
    """Results of all models of an evaluation that are on the disk."""
    count = 0
    for name in names:
        with contextlib.suppress(OSError):  # files come and go
            whole = pathlib.Path(folder, f"{name}.jsonl")
            logs = [] if whole.exists() else whole.with_name(f"{name}.jsonl.quern").glob(
                "batches/*/seg-*.log")
            count += whole.read_bytes().count(b"\n") if whole.exists() else sum(map(_records, logs))
    return count


def kill_at(command, folder, names, results, later_s):
    """Kills the command with all its processes `later_s` after that many results are there. Returns
    how many there were, or None if the command had ended."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)
    while process.poll() is None and results_so_far(folder, names) < results:
        time.sleep(0.002)
    time.sleep(later_s)
    has_ended = process.poll() is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not has_ended or process.returncode == 0, process.returncode
    return None if has_ended else results_so_far(folder, names)


def kill_all_along(command, folder, names, lines, rng, times=10, later_s=0.02):
    """Starts the command `times` times, and kills it in each of as many equal parts of its results
    once, at a drawn moment. Returns the results that each death found."""
    whole = lines * len(names)
    moments = [int((i + rng.random()) * whole / times) for i in range(times)]
    found = [kill_at(command, folder, names, moment, rng.random() * later_s) for moment in moments]
    return [results for results in found if results is not None]


def lasting(report):
    """A report without what is of its time: rates, seconds, costs, and how much of prompts was
    shared by lines that ran together."""
    reasons = [re.sub(r"[\d.e+]+ requests per second", "", reason)
               for reason in report["choice"]["reasons"] if "interrupted" not in reason]
    return {
        "requests": report["requests"], "reference": report["reference"],
        "models": [{name: model[name] for name in LASTING} for model in report["models"]],
        "agreement": report["agreement"], "choice": [report["choice"]["model"], reasons]}


def answers(folder, names):
    """All result lines, without what differs between two runs."""
    return {
        name: [support.masked(json.loads(line))
               for line in pathlib.Path(folder, f"{name}.jsonl").read_text().splitlines()]
        for name in names}


def wrong_times(report, seconds):
    """What the report says of time that cannot be so, if all calls together took so many seconds."""
    wrong = []
    for model in report["models"]:
        summary, jobs = model["summary"], model["jobs"]
        before = summary["seconds_before"]
        if before is None:
            wrong.append(f"{model['name']}: the time of earlier calls is not known")
            continue
        whole = before + summary["seconds"]
        # The summary has milliseconds.
        rate = (model["requests"] - 0.5) / (whole + 0.001), max(
            (model["requests"] + 0.5) / max(whole - 0.001, 1e-9), summary["req_s"])
        if not rate[0] <= (model["req_s"] or 0) <= rate[1] and whole > 0.01:
            wrong.append(f"{model['name']}: {model['req_s']} requests/s in {whole} s")
        if not 0 <= whole <= seconds:
            wrong.append(f"{model['name']}: {whole} s of {seconds} s")
        if model["req_s"] and not all(job["seconds"] > 0 for job in jobs):
            wrong.append(f"{model['name']}: {jobs}")
    return wrong
