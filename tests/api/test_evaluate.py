# SPDX-License-Identifier: Apache-2.0
"""`quern evaluate`: figures against those of single runs and of `quern compare`; interruptions; what
is refused. Most of it on the echo worker, which answers with what it is sent."""
import json, os, pathlib, random, re, signal, subprocess, sys

import pytest

import gguf_of, support

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "crash"))
import life

SEED = support.SEED


def lines_of(count, **echo):
    """Requests that name a model which nobody has."""
    lines = life.echo_lines(count)
    for line in lines:
        line["body"] |= {"model": "gpt-nobody-has"} | ({"echo": echo} if echo else {})
    return lines


def write(path, lines):
    path.write_bytes(support.jsonl(lines))
    return path


def evaluate(path, *arguments):
    done = support.quern("evaluate", path, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def results_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def rated(name, score, fit):
    """A result line of another system."""
    content = json.dumps({"score": score, "fit": fit})
    return {
        "id": "r", "custom_id": name, "response": {
            "status_code": 200, "request_id": "q", "body": {
                "choices": [{
                    "index": 0, "message": {"role": "assistant", "content": content},
                    "finish_reason": "stop"}], "usage": {
                        "prompt_tokens": 3, "completion_tokens": 4}}}, "error": None}


def answers_in(rng, count):
    """Requests whose echo is a rating, and the ratings of somebody else."""
    lines, judged = lines_of(count), []
    for line in lines:
        score, fit = rng.randrange(10), rng.choice(["yes", "no"])
        line["body"]["messages"] = [{
            "role": "user", "content": json.dumps({"score": score, "fit": fit})}]
        judged.append(
            rated(line["custom_id"], min(9, score + rng.choice([0, 0, 1])),
                  fit if rng.random() < 0.8 else "no"))
    return lines, judged


def test_every_model_runs_every_line_whatever_model_it_names(tmp_path):
    lines = lines_of(40)
    said = evaluate(write(tmp_path / "in.jsonl", lines), "--model", "a=echo", "--model", "b=echo")
    folder = tmp_path / "in.jsonl.evaluation"
    assert said == json.loads((folder / "evaluation.json").read_text()) | {
        "machine": said["machine"]}
    assert [model["name"] for model in said["models"]] == ["a", "b"]
    for model in said["models"]:
        life.judge(results_of(folder / f"{model['name']}.jsonl"), lines)
        assert (model["requests"], model["answered"], model["failed"]) == (40, 40, 0)
    [pair] = said["agreement"]
    assert (pair["agreement"], pair["equal"], pair["answered_in_both"]) == (1, 40, 40)
    assert said["choice"]["model"] in ("a", "b")
    assert any("--compare-to" in reason for reason in said["choice"]["reasons"])
    page = (folder / "report.html").read_text()
    assert "<script" not in page and "http" not in page.replace(str(tmp_path), "")


def test_counts_and_times_are_those_of_the_run(tmp_path):
    lines = lines_of(25)
    lines[3]["body"]["echo"] = {"finish_reason": "length"}
    said = evaluate(write(tmp_path / "in.jsonl", lines), "--model", "a=echo", "--watts", "50",
                    "--price-per-kwh", "0.4", "--input-price", "2", "--output-price", "3")
    [model] = said["models"]
    answers = results_of(tmp_path / "in.jsonl.evaluation/a.jsonl")
    usages = [line["response"]["body"]["usage"] for line in answers]
    assert model["prompt_tokens"] == sum(usage["prompt_tokens"] for usage in usages)
    assert model["completion_tokens"] == sum(usage["completion_tokens"] for usage in usages)
    assert model["truncated"] == sum(
        line["response"]["body"]["choices"][0]["finish_reason"] == "length" for line in answers) == 1
    whole = sorted(usage["prompt_tokens"] + usage["completion_tokens"] for usage in usages)
    assert model["tokens_per_request"] == {"p50": whole[12], "p95": whole[23], "max": whole[24]}
    summary = model["summary"]
    assert summary["context_tokens"] == 0 and set(model["context"].values()) == {None}, \
        "the echo worker has no window"
    assert model["req_s"] == summary["req_s"]
    for job in model["jobs"]:
        seconds = summary["load_seconds"] + job["requests"] / summary["req_s"]
        assert job["seconds"] == pytest.approx(seconds)
        assert job["watt_hours"] == pytest.approx(50 * seconds / 3600, rel=1e-4)
        # The summary's costs are whole nanos, few of them for a run of milliseconds.
        assert job["electricity"] == pytest.approx(0.4 * 50 * seconds / 3.6e6, rel=0.02)
        assert job["managed_api"] == pytest.approx(
            summary["costs"]["once"]["managed_api"] * job["requests"] / 25)
        assert job["rented_gpu"] is None


def test_the_share_of_the_window_is_that_of_the_models(tmp_path):
    gguf_of.convert(pathlib.Path(__file__).parents[1] / "engine/families/granite",
                    tmp_path / "m.gguf")
    lines = [{
        "custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": [5] * (i + 1), "max_tokens": 2, "ignore_eos": True,
            "temperature": 0}} for i in range(20)]
    said = evaluate(write(tmp_path / "in.jsonl", lines), "--model", f"m={tmp_path}/m.gguf",
                    "--device", "cpu", "--max-model-len", "40")
    [model] = said["models"]
    assert (model["answered"], model["summary"]["context_tokens"]) == (20, 40)
    assert model["context"] == {
        "tokens": 40, "mean_share": pytest.approx(12.5 / 40), "p95_share": pytest.approx(21 / 40),
        "max_share": pytest.approx(22 / 40)}


def test_the_window_is_known_of_a_run_that_was_killed_when_all_requests_were_done(tmp_path):
    gguf_of.convert(pathlib.Path(__file__).parents[1] / "engine/families/granite",
                    tmp_path / "m.gguf")
    path, deaths = write(tmp_path / "in.jsonl", [{
        "custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {
            "model": "m", "prompt": [5, 6], "max_tokens": 2, "temperature": 0}}]), []
    command = ["run", "-i", path, "-o", tmp_path / "out.jsonl", "--model", f"m={tmp_path}/m.gguf",
               "--device", "cpu", "--max-model-len", "40", "--json", "--overwrite"]
    for number in range(1, 30):
        died = support.quern(*command, env={
            **os.environ, "QUERN_FAULT": f"rename:{number}:KILL"})
        if died.returncode == 0:
            break
        said = json.loads(support.quern(*command).stdout)
        deaths.append(said["done_before"])
        assert said["context_tokens"] == 40, number
    assert died.returncode == 0 and 1 in deaths, (deaths, died.stderr)


def test_agreement_with_a_file_is_that_of_compare(tmp_path):
    print(f"seed {SEED}")
    lines, judged = answers_in(random.Random(SEED), 60)
    write(tmp_path / "judged.jsonl", judged)
    said = evaluate(write(tmp_path / "in.jsonl", lines), "--model", "a=echo", "--compare-to",
                    tmp_path / "judged.jsonl")
    done = support.quern("compare", tmp_path / "judged.jsonl",
                         tmp_path / "in.jsonl.evaluation/a.jsonl", "--json", "--top", "10")
    wanted = json.loads(done.stdout)
    [pair] = said["agreement"]
    assert {field["name"] for field in pair["fields"]} == {"score", "fit"}
    assert pair == {name: wanted[name] for name in wanted if name not in "ab"} | {
        "a": str(tmp_path / "judged.jsonl"), "b": "a"}
    assert said["choice"]["model"] == "a"


def test_a_sample_has_lines_at_equal_distances(tmp_path):
    lines = lines_of(23)
    evaluate(write(tmp_path / "in.jsonl", lines), "--model", "a=echo", "--sample", "5", "-o",
             tmp_path / "out")
    taken = [line["custom_id"] for line in results_of(tmp_path / "out/a.jsonl")]
    assert taken == [lines[i * 23 // 5]["custom_id"] for i in range(5)]


def test_a_model_of_another_server_takes_part_and_can_be_the_reference(tmp_path):
    lines = lines_of(30)
    with support.serving(tmp_path / "far", "--model", "big=echo") as far:
        said = evaluate(write(tmp_path / "in.jsonl", lines), "--model", "small=echo", "--upstream",
                        f"big={far.url}", "--compare-to", "big")
    assert [model["answered"] for model in said["models"]] == [30, 30]
    assert said["agreement"][0]["agreement"] == 1
    assert said["choice"]["model"] == "small"


def test_a_model_whose_figures_were_lost_with_its_command_is_run_again(tmp_path):
    """A run that was killed when its results were in place had told nobody its figures."""
    lines = lines_of(20)
    path = write(tmp_path / "in.jsonl", lines)
    wanted = evaluate(path, "--model", "a=echo")
    (tmp_path / "in.jsonl.evaluation/a.run.json").unlink()
    [model] = evaluate(path, "--model", "a=echo")["models"]
    assert (model["answered"], model["prompt_tokens"]) == (20, wanted["models"][0]["prompt_tokens"])
    assert model["req_s"] > 0 and model["summary"]["requests"] == 20


def test_the_rate_of_an_interrupted_run_is_that_of_all_its_calls_or_of_its_last_one(tmp_path):
    path, kept = write(tmp_path / "in.jsonl", lines_of(20)), "in.jsonl.evaluation/a.run.json"
    evaluate(path, "--model", "a=echo")
    own = json.loads((tmp_path / kept).read_text())
    for before, rate in [(1.5, 8), (9, 5), (None, 5)]:
        (tmp_path / kept).write_text(json.dumps(own | {
            "done_before": 15, "seconds": 1, "req_s": 5, "seconds_before": before}))
        assert evaluate(path, "--model", "a=echo")["models"][0]["req_s"] == rate


def test_a_server_that_does_not_answer_is_told_and_ctrl_c_ends_the_evaluation(tmp_path):
    path = write(tmp_path / "in.jsonl", lines_of(5))
    with support.serving(tmp_path / "far", "--model", "big=echo") as far:
        command = [
            support.BINARY, "evaluate", path, "--model", "a=echo", "--upstream",
            f"big={far.url}/none"]
        # A terminal sends Ctrl-C to the evaluation and to its run.
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        said = process.stderr.readline()
        assert said.startswith("quern evaluate: big: upstream=big") and "status 404" in said
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(60) == 130 and "the same command goes on from here" in rest, rest


def test_judgements_of_the_curation_page_are_a_reference(tmp_path):
    lines, _ = answers_in(random.Random(SEED), 12)
    path = write(tmp_path / "in.jsonl", lines)
    for line in lines:
        line["body"]["model"] = "smollm2"
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        batch = server.wait(server.create(support.jsonl(lines))["id"])["id"]
        for number, line in enumerate(lines[:8]):
            score = json.loads(line["body"]["messages"][0]["content"])["score"]
            right = {"verdict": "accepted"} if number < 6 else {
                "verdict": "corrected", "fields": {"score": score + 1}}
            status, said = server.call("POST", f"/v1/batches/{batch}/judgements", right | {
                "custom_id": line["custom_id"], "id": f"judgement-{number}", "version": 0,
                "curator": "Ada"})
            assert status == 200, said
        files = {form: server.call("GET", f"/v1/batches/{batch}/judgements/export?format={form}")[1]
                 for form in ("compare", "jsonl")}
    for form, content in files.items():
        (tmp_path / form).write_bytes(content)
    said = evaluate(path, "--model", "a=echo", "--compare-to", tmp_path / "compare")
    [pair] = said["agreement"]
    assert pair["answered_in_both"] == 8
    assert {field["name"]: field["equal"] for field in pair["fields"]} == {"score": 6, "fit": 8}
    said = evaluate(path, "--model", "a=echo", "--compare-to", tmp_path / "jsonl")
    assert said["agreement"][0]["fields"] == pair["fields"] and said["judged"]["lines"] == 8


@pytest.mark.parametrize("arguments, words", [
    (["--model", "a=echo", "--model", "a=echo"], "two models are called 'a'"),
    (["--model", "a=echo", "--compare-to", "none"], "neither one of the models nor a file"),
    (["--model", "a=echo", "--alias", "x=a"], "each model runs all lines"),
    (["--model", "a=echo", "--max-num-seqs", "3"], "with other options"),
    (["--model", "a=echo", "--sample", "2"], "an evaluation of other requests"),
    ([], "--model")])
def test_what_it_cannot_do_it_says(tmp_path, arguments, words):
    path = write(tmp_path / "in.jsonl", lines_of(3))
    evaluate(path, "--model", "a=echo")
    done = support.quern("evaluate", path, *arguments)
    assert done.returncode in (2, 3) and words in done.stderr, done.stderr


def test_a_pipe_is_refused_and_not_taken_for_an_empty_file(tmp_path):
    path = write(tmp_path / "in.jsonl", lines_of(3))
    for arguments in (["/dev/stdin", "-o", tmp_path / "out"], [path, "--compare-to", "/dev/stdin"]):
        done = support.quern("evaluate", *arguments, "--model", "a=echo",
                             input=path.read_text())
        assert done.returncode == 3 and "is not a file that can be read twice" in done.stderr


def test_a_model_that_cannot_run_is_named_and_the_others_are_kept(tmp_path):
    path = write(tmp_path / "in.jsonl", lines_of(3))
    (tmp_path / "bad.gguf").write_bytes(b"GGUF no model")
    done = support.quern("evaluate", path, "--model", "a=echo", "--model",
                         f"bad={tmp_path}/bad.gguf")
    assert done.returncode == 3 and "bad" in done.stderr, done.stderr
    assert evaluate(path, "--model", "a=echo")["models"][0]["answered"] == 3


def test_a_line_that_cannot_run_is_named_in_the_file_that_the_error_names(tmp_path):
    lines = lines_of(3)
    del lines[1]["url"]
    done = support.quern("evaluate", write(tmp_path / "in.jsonl", lines), "--model", "a=echo")
    assert done.returncode == 3, done.stderr
    assert "nothing was run: line 2: " in done.stderr
    [name] = re.findall(r"all it said is in (\S+)", done.stderr)
    assert "line 2" in pathlib.Path(name).read_text()
