# SPDX-License-Identifier: Apache-2.0
"""`make demo`, with a small file and the echo worker: a line per phase, a table of verdicts, and
everything else in the log."""
import json, re, subprocess, sys

import support


def demo(folder, *arguments, answer='{"recommendation": "Strong Yes", "reasoning": "…"}'):
    source = folder / "in.jsonl"
    texts = [
        answer, '{"recommendation": "No"}', "Maybe, since the profile does not say.",
        "Such a fine day."]
    source.write_bytes(
        support.jsonl([
            support.request(f"candidate-{i:06}", texts[i % 4], max_tokens=16) for i in range(8)]))
    command = [
        sys.executable, support.ROOT / "tools/demo", "--quern", support.BINARY, "--model",
        "smollm2=echo", "--input", source, "--output", folder / "out.jsonl", "--decisions",
        folder / "decided.jsonl", "--log", folder / "demo.log", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)


def test_a_line_per_phase_then_verdicts_results_and_what_is_next(tmp_path):
    done = demo(tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    shown = done.stdout
    phases = re.findall(r"^  (\w+) +\S", shown, re.M)
    assert [p for p in dict.fromkeys(phases)][:4] == ["start", "upload", "evaluate",
                                                      "tokens"], shown
    for verdict, count in (("Strong Yes", 2), ("No", 2), ("Maybe", 2), ("no verdict", 2)):
        assert re.search(rf"^  {verdict} +{count}  #+ +00000\d, ", shown, re.M), shown
    assert "8 of 8 candidates evaluated, 0 failed" in shown and "event=" not in shown
    for word in ("out.jsonl", "demo.log", "preflight", " run -i ", " serve "):
        assert word in shown[shown.index("verdict"):], word
    assert "event=" in (tmp_path / "demo.log").read_text()
    assert len([
        json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]) == 8
    assert max(map(len, shown.splitlines())) < 180
    # The echo has no model, so that the second pass is asked and refused.
    assert "decide" in phases and "0 of 8 candidates asked" in shown and "decided.jsonl" in shown
    asked = [json.loads(line) for line in (tmp_path / "decided.jsonl").read_text().splitlines()]
    assert len(asked) == 8 and all(line["response"]["body"]["error"]["code"] == "unsupported_model"
                                   for line in asked)


def test_the_second_pass_decides_what_the_first_one_wrote(tmp_path):
    done = demo(tmp_path, "--model", "smollm2", answer="Answer Yes.")
    assert done.returncode == 0 and not done.stderr, done.stderr
    decided = [
        json.loads(line)["response"]["body"]["answers"][0]
        for line in (tmp_path / "decided.jsonl").read_text().splitlines()]
    assert len(decided) == 8 and {answer["name"] for answer in decided} == {"recommendation"}
    assert re.search(
        r"^  decide +8 of 8 candidates asked for the recommendation alone, as probabilities: \d+ new tokens, in \d+:\d\d instead of",
        done.stdout, re.M), done.stdout
    counts = dict(
        re.findall(r"(Strong Yes|Yes|Maybe|No) (\d+)",
                   re.search(r"^  decided +(.*);", done.stdout, re.M)[1]))
    assert sum(map(int, counts.values())) == 8


def test_a_failure_is_a_sentence_and_the_end_of_the_log(tmp_path):
    done = demo(tmp_path, "--model", "no-such-model")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "quern serve did not start" in done.stdout and "no-such-model" in done.stdout and "demo.log" in done.stdout
