# SPDX-License-Identifier: Apache-2.0
"""Drawn damage to files of results, through table, results, compare and label-studio: each row is
right or named, never silent.

What is right is computed here, with Python's json: `readable` says what a line is, `wanted` what
its row shows."""
import concurrent.futures, csv, json, os, random, re, shutil, subprocess

import pytest

import support
from label_studio_server import LabelStudio
from openai_server import OpenAIServer

FILES, PIECES, LANES = 1000, 10, 8
SEED = support.SEED
MOST = FILES if support.IS_NIGHTLY else 400  # which take 20 s of CPU time
SEEDS = random.Random(SEED).sample(range(FILES), min(MOST, round(FILES * support.SHARE)))
IDS = ["a", "b é", "c", "d", "e"]


# --- damage ---

def choice(content, index=0, finish="stop", **message):
    return {
        "index": index, "message": {"role": "assistant", "content": content, **message},
        "finish_reason": finish}


def good(custom_id, *choices):
    return {
        "id": "r", "custom_id": custom_id, "response": {
            "status_code": 200, "request_id": "q", "body": {
                "choices": list(choices) or [choice(f"answer of {custom_id}")]}}, "error": None}


CALLS = [{"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"x": 1}'}}]
ERRORS = [
    "boom", {"message": "m"}, {"code": 429, "message": "m"}, {"code": "c", "message": None}, {
        "error": {"message": "inner"}}, ["x"], 7, {}, {"type": "t", "message": "m"}]


def reshape(draw, line):
    """Another content, as other servers give it."""
    name = line["custom_id"]
    body = line["response"]["body"]
    what = draw.randrange(12)
    if what == 0:
        body["choices"] = [choice(f"second of {name}", 1), choice(f"first of {name}", 0)]
    elif what == 1:
        body["choices"] = [choice("", tool_calls=CALLS)]
    elif what == 2:
        body["choices"] = [choice(None, finish=draw.choice(["stop", "content_filter", None]))]
    elif what == 3:
        body["choices"] = [choice(f"text of {name}", tool_calls=CALLS)]
    elif what == 4:
        body["choices"] = draw.choice([[], None, {}, "x"])
    elif what == 5:
        line["response"] = draw.choice([
            None, {"status_code": 200, "body": draw.choice([None, "text", []])}])
    elif what == 6:
        line["response"] = {
            "status_code": draw.choice([400, 500, 503]), "body": draw.choice([{
                "error": draw.choice(ERRORS)}, {"detail": "d"}, "<html>", None, {}])}
    elif what == 7:
        line["error"] = draw.choice(ERRORS)
    elif what == 8:
        line.update(response=None, error=draw.choice(ERRORS))
    elif what == 9:
        line.pop("response")
    elif what == 10:
        body["choices"] = [choice("", finish=draw.choice(["stop", "length"]))]
    else:
        body["cost"] = draw.choice([float("nan"), float("inf"), 10**30])


def spoil(draw, lines):
    """Other bytes: what disks, editors and broken transfers do."""
    at = draw.randrange(len(lines))
    line = lines[at]
    what = draw.randrange(12) if line else 3
    if what == 0:
        lines[at] = line[:draw.randrange(len(line))]
    elif what == 1:
        del lines[at:]
    elif what == 2:
        byte = draw.randrange(len(line))
        lines[at] = line[:byte] + bytes([draw.randrange(256)]) + line[byte + 1:]
    elif what == 3:
        lines.insert(
            at,
            draw.choice([
                b"<html>502</html>", b"null", b"[]", b"{}", b'{"custom_id": 7}', b"\x00\x00\x00",
                b"   ", b""]))
    elif what == 4:
        lines.insert(at, line)
    elif what == 5:
        lines[at] = line.replace(b'"custom_id": "', b'"custom_id": "z', 1)
    elif what == 6:
        del lines[at]
    elif what == 7:
        lines[at] = b"\xef\xbb\xbf" + line
    elif what == 8:
        lines[at] = line + b"\r"
    elif what == 9:
        lines[at] = line[:-1] + b', "deep": ' + b"[" * 200 + b"]" * 200 + b"}"
    elif what == 10:
        lines[at] = line.replace(b"answer",
                                 draw.choice([b"\xff\xfe", b"\\ud800", b"\\u0000", b"\n", b"\x01"]),
                                 1)
    elif at + 1 < len(lines):
        lines[at:at + 2] = [line + lines[at + 1]]  # an LF is lost
    return lines or [b""]


def drawn(seed):
    draw = random.Random(seed)
    lines = [good(name) for name in IDS]
    draw.shuffle(lines)
    for _ in range(draw.randrange(3)):
        reshape(
            draw,
            draw.choice([
                line for line in lines
                if line.get("response") and isinstance(line["response"].get("body"), dict)]
                        or [good("spare")]))
    texts = [json.dumps(line).encode() for line in lines]
    for _ in range(draw.randrange(4)):
        texts = spoil(draw, texts)
    return b"\n".join(texts) + (b"\n" if draw.random() < 0.8 else b"")


# --- what is right ---

def no_constant(word):
    raise ValueError(word)


def depth(value):
    inner = list(value.values()) if isinstance(value,
                                               dict) else value if isinstance(value, list) else []
    return 1 + max(map(depth, inner), default=0)


def readable(raw):
    """The result in a line, or None."""
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, parse_constant=no_constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # no lone surrogate
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("custom_id"),
                                                           str) and depth(value) < 128 else None


def lines_of(content):
    lines = [line.strip(b" \t\r\n") for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    return [line for line in lines if line]


def first_choice(result):
    response = result.get("response")
    body = response.get("body") if isinstance(response, dict) else None
    body = body.get("answer", body) if isinstance(body, dict) else body
    choices = body.get("choices") if isinstance(body, dict) else None
    choices = [each for each in choices
               if isinstance(each, dict)] if isinstance(choices, list) else []
    return min(choices, key=lambda each: each.get("index", 0), default=None)


def wanted(result):
    """The cell `answer`: a text, calls as objects, or None."""
    message = (first_choice(result) or {}).get("message") or {}
    content, calls = message.get("content"), message.get("tool_calls")
    return content if content or not calls else calls


def is_answered(result):
    """An answer without any word against it."""
    response = result.get("response")
    is_good = isinstance(
        response, dict) and response.get("status_code") == 200 and result.get("error") in (None, {})
    return is_good and isinstance(wanted(result), (str, list))


# --- the commands ---

def check_table(folder, content, seed):
    done = support.quern("table",
                         "in.jsonl",
                         "results.jsonl",
                         "-o",
                         "out.csv",
                         "--overwrite",
                         cwd=folder)
    lines, out, rest = lines_of(content), folder / "out.csv", folder / "out.csv.rest.jsonl"
    try:
        if done.returncode == 3:
            assert re.search(r"results\.jsonl: line \d+",
                             done.stderr) and not out.exists() and not rest.exists(), (seed,
                                                                                       done.stderr)
            return
        assert done.returncode in (0, 1), (seed, done)
        kept = rest.read_bytes().split(b"\n") if rest.exists() else []
        rows = {
            row["custom_id"]: row
            for row in csv.DictReader(open(out, newline="", encoding="utf-8"))}
        assert list(rows) == IDS, seed
        results = [(raw, readable(raw)) for raw in lines]
        by_id = {result["custom_id"]: result for _, result in results if result}
        for name, row in rows.items():
            answer = wanted(by_id[name]) if name in by_id else None
            shown = json.loads(
                row["answer"]) if isinstance(answer, list) and row["answer"] else row["answer"]
            assert shown == ("" if answer is None else answer.replace("\0", "\ufffd") if isinstance(
                answer, str) else answer), (seed, name, row)
            assert row["error"] or answer is not None and is_answered(by_id[name]), (seed, name,
                                                                                     row)
        for raw, result in results:
            assert raw in kept or result and result["custom_id"] in rows, (seed, raw)
        choices = [
            name for name in rows if name in by_id and "second of" in json.dumps(by_id[name])]
        assert all(
            any(f"second of {name}" in line.decode() or json.dumps(name)[1:-1] in line.decode()
                for line in kept)
            for name in choices), (seed, kept)
        is_whole = set(by_id) == set(IDS) and all(result for _, result in results)
        assert done.returncode == (0 if is_whole else 1) and (is_whole or done.stderr), (seed, done)
    finally:
        for path in (out, rest):
            path.unlink(missing_ok=True)


def check_compare(folder, content, seed):
    done = support.quern("compare", "whole.jsonl", "results.jsonl", "--json", cwd=folder)
    results = [readable(raw) for raw in lines_of(content)]
    ids = [result["custom_id"] for result in results if result]
    if done.returncode == 3:
        assert re.search(r"results\.jsonl, line \d+: |results\.jsonl: |no custom_id in common",
                         done.stderr), (seed, done.stderr)
        return
    assert done.returncode == 0 and None not in results and len(ids) == len(set(ids)), (seed, done)
    said = json.loads(done.stdout)
    assert said["b"]["rows"] == len(ids) and said["b"]["not_in_other"] == len(
        set(ids) - set(IDS)) and said["a"]["not_in_other"] == len(set(IDS) - set(ids)), (seed, said)


def check_results(server, content, seed):
    server.files[f"file-{seed}"] = content
    server.batches[f"batch_{seed}"] = ({
        "id": f"batch_{seed}", "object": "batch", "status": "completed",
        "output_file_id": f"file-{seed}", "request_counts": {
            "total": len(IDS), "completed": len(IDS), "failed": 0}}, [], [])
    done = subprocess.run([support.BINARY, "results", f"batch_{seed}", "--base-url", server.url],
                          capture_output=True)
    results = [readable(raw) for raw in lines_of(content)]
    is_whole = None not in results and len({result["custom_id"] for result in results}) >= len(IDS)
    assert done.stdout.rstrip(b"\n") == content.rstrip(b"\n"), seed
    assert done.returncode == (0 if is_whole else 1) and (
        is_whole or b" missing" in done.stderr or b"cannot be read as" in done.stderr), (seed, done.stderr)


def check_label_studio(studio, folder, content, seed):
    done = support.quern(
        "label-studio",
        "push",
        f"run-{seed}",
        "-i",
        "in.jsonl",
        "--results-file",
        "results.jsonl",
        "--json",
        cwd=folder,
        env={**os.environ, "LABEL_STUDIO_URL": studio.url, "LABEL_STUDIO_API_KEY": studio.token})
    by_id = {}
    results = [readable(raw) for raw in lines_of(content)]
    for result in filter(None, results):
        by_id[result["custom_id"]] = result
    if done.returncode != 0:
        assert re.search(r"line \d+ of the results|the result of ",
                         done.stderr), (seed, done.stderr)
        return
    said = json.loads(done.stdout)
    tasks = [
        task for task in list(studio.tasks.values()) if task["meta"]["batch_id"] == f"run-{seed}"]
    answered = [name for name in IDS if name in by_id and is_answered(by_id[name])]
    assert sorted(
        task["meta"]["custom_id"] for task in tasks) == sorted(answered), (seed, done.stderr)
    assert said["pushed"] == len(answered) and said["unanswered"] == len(IDS) - len(answered), (
        seed, said)
    assert said["unused_results"] == len(results) - len(set(by_id) & set(IDS)) and (
        not said["unused_results"] or "not used: no request has" in done.stderr), (seed, said)


@pytest.fixture(scope="module")
def servers():
    with OpenAIServer() as server, LabelStudio() as studio:
        yield server, studio


def check(servers, folder, seed):
    content = drawn(seed)
    folder.mkdir()
    (folder / "in.jsonl").write_bytes(
        support.jsonl([support.request(name, f"question {name}") for name in IDS]))
    (folder / "whole.jsonl").write_bytes(support.jsonl([good(name) for name in IDS]))
    (folder / "results.jsonl").write_bytes(content)
    check_table(folder, content, seed)
    check_compare(folder, content, seed)
    check_results(servers[0], content, seed)
    check_label_studio(servers[1], folder, content, seed)
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
def test_each_row_is_right_or_named(tmp_path, servers, piece):
    """One file per seed; QUERN_SHARE of the seeds, MOST at most, are drawn with QUERN_SEED."""
    print(f"QUERN_SHARE={support.SHARE} QUERN_SEED={SEED}")
    with concurrent.futures.ThreadPoolExecutor(
            LANES) as lanes:  # most of the time is the wait for a list of tasks
        list(
            lanes.map(lambda seed: check(servers, tmp_path / str(seed), seed),
                      SEEDS[piece::PIECES]))
