# SPDX-License-Identifier: Apache-2.0
"""What people have judged as the reference of `quern evaluate`: raw judgements, exports of the
curation page, judgements of Label Studio, a column of the table."""
import json, os, random

import pytest

import support
from test_evaluate import SEED, answers_in, evaluate, lines_of, rated, write


def fields_of(said):
    [pair] = said["agreement"]
    return {field["name"]: (field["rows"], field["equal"]) for field in pair["fields"]}


def said_by(line):
    """What the echo worker answers to a line."""
    return json.loads(line["body"]["messages"][0]["content"])


def test_raw_judgements_are_compared_by_the_fields_that_they_have(tmp_path):
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    lines, _ = answers_in(rng, 40)
    judged, right = [], 0
    for line in lines[:30]:
        is_right = rng.random() < 0.7
        right += is_right
        score = said_by(line)["score"]
        judged.append({
            "custom_id": line["custom_id"], "judgement": {
                "score": score if is_right else score + 1}})
    path = write(tmp_path / "in.jsonl", lines)
    said = evaluate(path, "--model", "a=echo", "--compare-to",
                    write(tmp_path / "judged.jsonl", judged))
    assert fields_of(said) == {"score": (30, right)}
    assert said["agreement"][0]["agreement"] == pytest.approx(right / 30)
    assert (said["judged"]["lines"], said["judged"]["disputed"]) == (30, 0)
    assert "30 requests are judged" in (tmp_path / "in.jsonl.evaluation/report.html").read_text()


def test_values_and_texts_are_judgements_too(tmp_path):
    lines, _ = answers_in(random.Random(SEED), 6)
    judged = [{
        "custom_id": line["custom_id"], "judgement": said_by(line)["score"]} for line in lines]
    path = write(tmp_path / "in.jsonl", lines)
    numbers = write(tmp_path / "numbers.jsonl", judged)
    said = evaluate(path, "--model", "a=echo", "--compare-to", numbers, "--judgement-field",
                    "score")
    assert fields_of(said) == {"score": (6, 6)}
    done = support.quern("evaluate", path, "--model", "a=echo", "--compare-to", numbers)
    assert done.returncode == 3 and "line 1" in done.stderr and "--judgement-field" in done.stderr
    words = lines_of(5)
    texts = [{
        "custom_id": line["custom_id"],
        "judgement": line["body"]["messages"][0]["content"] if i else "another"}
             for i, line in enumerate(words)]
    said = evaluate(write(tmp_path / "words.jsonl", words), "--model", "a=echo", "--compare-to",
                    write(tmp_path / "texts.jsonl", texts))
    assert fields_of(said) == {"(text)": (5, 4)}


def test_curators_who_differ_leave_a_line_out_and_the_newest_of_each_counts(tmp_path):
    lines, _ = answers_in(random.Random(SEED), 4)
    names = [line["custom_id"] for line in lines]
    fits = [said_by(line)["fit"] for line in lines]
    other = {"yes": "no", "no": "yes"}

    def row(name, curator, value):
        return {"custom_id": name, "curator": curator, "judgement": value and {"fit": value}}

    judged = [
        row(names[0], "Ada", other[fits[0]]),
        row(names[0], "Ada", fits[0]),  # she thought again
        row(names[0], "Bo", fits[0]),
        row(names[1], "Ada", "yes"),
        row(names[1], "Bo", "no"),
        row(names[2], "Ada", None),
        row(names[3], "Ada", None),
        row(names[3], "Bo", other[fits[3]])]
    said = evaluate(write(tmp_path / "in.jsonl", lines), "--model", "a=echo", "--compare-to",
                    write(tmp_path / "judged.jsonl", judged))
    assert fields_of(said) == {"fit": (2, 1)}
    assert {
        name: said["judged"][name] for name in ("lines", "disputed", "without_opinion")} == {
            "lines": 2, "disputed": 1, "without_opinion": 1}


def test_a_column_of_the_table_is_what_is_right(tmp_path):
    rng = random.Random(SEED)
    rows, equal = ["id,text,known,fits"], 0
    for i in range(20):
        score, is_known, is_right = rng.randrange(10), i % 4 > 0, rng.random() < 0.6
        equal += is_known and is_right
        known = str(score if is_right else score + 1) if is_known else ""
        rows.append(f'p{i},"{{""score"": {score}, ""fit"": ""yes""}}",{known},yes')
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "ask.jinja").write_text("{{ text }}")
    requests = tmp_path / "in.jsonl"
    done = support.quern("table", tmp_path / "people.csv", "--prompt", tmp_path / "ask.jinja",
                         "--id", "id", "-o", requests)
    assert done.returncode == 0, done.stderr
    said = evaluate(requests, "--model", "a=echo", "--compare-to-column", "known=score",
                    "--compare-to-column", "fits=fit")
    assert fields_of(said) == {"score": (15, equal), "fit": (20, 20)}
    assert said["reference"] == "columns known, fits" and said["judged"]["lines"] == 20
    done = support.quern("evaluate", requests, "--model", "a=echo", "--compare-to-column", "none")
    assert done.returncode == 3 and "the column 'none'" in done.stderr, done.stderr


def test_judgements_of_label_studio_are_corrections_of_the_results_that_they_are_of(tmp_path):
    lines, _ = answers_in(random.Random(SEED), 6)
    results = [rated(line["custom_id"], **said_by(line)) for line in lines]
    pulled = [{
        "id": f"judgement-{i}", "custom_id": line["custom_id"], "curator": "ana@example.test",
        "verdict": ["accepted", "corrected", "skipped"][i % 3]} |
              ({"fields": {"score": said_by(line)["score"] + 1}} if i % 3 == 1 else {})
              for i, line in enumerate(lines)]
    path = write(tmp_path / "in.jsonl", lines)
    judgements = write(tmp_path / "pulled.jsonl", pulled)
    said = evaluate(path, "--model", "a=echo", "--compare-to", judgements, "--judged-results",
                    write(tmp_path / "results.jsonl", results))
    assert fields_of(said) == {"score": (4, 2), "fit": (4, 4)}
    assert said["judged"]["without_opinion"] == 2
    done = support.quern("evaluate", path, "--model", "a=echo", "--compare-to", judgements)
    assert done.returncode == 3 and "--judged-results" in done.stderr, done.stderr


def as_raw(line):
    return {"custom_id": line["custom_id"], "judgement": {"score": said_by(line)["score"]}}


def as_pulled(line):
    return {"custom_id": line["custom_id"], "curator": "ana@example.test", "verdict": "accepted"}


def as_result(line):
    return rated(line["custom_id"], **said_by(line))


@pytest.mark.parametrize("form", [as_raw, as_pulled, as_result])
def test_a_sample_has_the_judged_lines_first_and_keeps_them(tmp_path, form):
    lines, _ = answers_in(random.Random(SEED), 60)
    judged = [lines[i] for i in (7, 8, 9, 51)]  # at equal distances it would have one of them
    path, reference = write(tmp_path / "in.jsonl", lines), tmp_path / "reference.jsonl"
    results = write(tmp_path / "results.jsonl", [as_result(line) for line in lines])
    of = ["--judged-results", results] if form is as_pulled else []

    def taken():
        said = evaluate(path, "--model", "a=echo", "--sample", "6", "--compare-to",
                        write(reference, [form(line) for line in judged]), *of)
        requests = (tmp_path / "in.jsonl.evaluation/requests.jsonl").read_text().splitlines()
        return said["agreement"][0], [json.loads(line)["custom_id"] for line in requests]

    agreement, names = taken()
    assert len(names) == 6 and {line["custom_id"] for line in judged} <= set(names)
    assert [field["rows"] for field in agreement["fields"]][0] == 4
    judged += lines[20:26]  # more is judged; the answers that are there stay of use
    agreement, names_then = taken()
    assert names_then == names
    del judged[:]
    judged += lines[:1]
    assert taken()[1] == names


def test_an_outer_field_that_was_corrected_takes_the_place_of_its_inner_ones(tmp_path):
    """The answers have {"a": {"b": 1, "c": 2}}; the order in which the fields stand does not count."""
    lines = [support.request(f"c{i}", json.dumps({"a": {"b": 1, "c": 2}, "d": i})) for i in range(3)]
    path = write(tmp_path / "in.jsonl", lines)
    evaluate(path, "--model", "a=echo")
    fields = [{"a": {"b": 5}, "a.b": 7}, {"a.b": 7, "a": {"b": 5}}, {"a.b": 1}]
    judged = [{"custom_id": f"c{i}", "verdict": "corrected", "fields": field}
              for i, field in enumerate(fields)]
    said = evaluate(path, "--model", "a=echo", "--compare-to",
                    write(tmp_path / "judged.jsonl", judged), "--judged-results",
                    tmp_path / "in.jsonl.evaluation/a.jsonl")
    assert said["judged"]["lines"] == 3
    assert fields_of(said) == {"a.b": (3, 1), "a.c": (1, 1), "d": (3, 3)}


@pytest.mark.parametrize("text, words", [
    ('{"custom_id": "a", "judgement": {"x": 1}}\n{"judgement": {"x": 1}}\n', "judged.jsonl, line 2"),
    ('{"custom_id": "a", "judgement": {"x": 1}}\nnot json\n', "judged.jsonl, line 2"),
    ('{"custom_id": "a", "judgement": null}\n', "no line has a judgement"),
    ('{"custom_id": "a", "verdict": "maybe"}\n', "none of accepted, corrected and skipped")])
def test_what_is_no_judgement_is_named_with_its_line(tmp_path, text, words):
    (tmp_path / "judged.jsonl").write_text(text)
    done = support.quern("evaluate", write(tmp_path / "in.jsonl", lines_of(2)), "--model", "a=echo",
                         "--compare-to", tmp_path / "judged.jsonl")
    assert done.returncode == 3 and words in done.stderr, done.stderr


def test_drawn_bytes_in_a_file_of_judgements_end_with_a_sentence_or_a_report(tmp_path):
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    lines, _ = answers_in(rng, 3)
    path = write(tmp_path / "in.jsonl", lines)
    good = support.jsonl([{
        "custom_id": line["custom_id"], "curator": "Ada", "judgement": said_by(line)}
                          for line in lines])
    evaluate(path, "--model", "a=echo")  # so that the model has run
    for _ in support.drawn(range(40)):
        damaged = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice(b'{}[]":,0n\\\xff\x00 \n')
        (tmp_path / "judged").write_bytes(damaged)
        done = support.quern("evaluate", path, "--model", "a=echo", "--json", "--compare-to",
                             tmp_path / "judged")
        assert done.returncode in (0, 3) and (done.returncode == 0 or done.stderr), bytes(damaged)
