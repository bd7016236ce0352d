# SPDX-License-Identifier: Apache-2.0
"""`make demo`, with a small file and the echo worker: a line per phase, a table of verdicts, and everything else in the log."""
import json, re, subprocess, sys

import support


def demo(folder, *arguments, answer='{"recommendation": "Strong Yes", "reasoning": "…"}'):
    source = folder / "in.jsonl"
    texts = [answer, '{"recommendation": "No"}', "Maybe, since the profile does not say.", "Such a fine day."]
    source.write_bytes(support.jsonl([support.request(f"candidate-{i:06}", texts[i % 4]) for i in range(8)]))
    command = [sys.executable, support.ROOT / "tools/demo", "--quern", support.BINARY, "--model", "smollm2=echo", "--input", source,
               "--output", folder / "out.jsonl", "--log", folder / "demo.log", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)


def test_a_line_per_phase_then_verdicts_results_and_what_is_next(tmp_path):
    done = demo(tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    shown = done.stdout
    phases = re.findall(r"^  (\w+) +\S", shown, re.M)
    assert [p for p in dict.fromkeys(phases)][:4] == ["start", "upload", "evaluate", "tokens"], shown
    for verdict, count in (("Strong Yes", 2), ("No", 2), ("Maybe", 2), ("no verdict", 2)):
        assert re.search(rf"^  {verdict} +{count}  #+ +00000\d, ", shown, re.M), shown
    assert "8 of 8 candidates evaluated, 0 failed" in shown and "event=" not in shown
    for word in ("out.jsonl", "demo.log", "preflight", " run -i ", " serve "):
        assert word in shown[shown.index("verdict"):], word
    assert "event=" in (tmp_path / "demo.log").read_text()
    assert len([json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]) == 8
    assert max(map(len, shown.splitlines())) < 160


def test_a_failure_is_a_sentence_and_the_end_of_the_log(tmp_path):
    done = demo(tmp_path, "--model", "no-such-model")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "quern serve did not start" in done.stdout and "no-such-model" in done.stdout and "demo.log" in done.stdout
