# SPDX-License-Identifier: Apache-2.0
"""`quern compare`: drawn result files against figures computed here by their definitions; what is
missing, failed or no JSON; what is refused."""
import itertools, json, math, random, statistics

import pytest

import support

RATINGS = ["Great", "Good", "Average", "Weak"]


def result(custom_id, content, status=200, **usage):
    body = {
        "choices": [{
            "index": 0, "message": {"role": "assistant", "content": content},
            "finish_reason": "stop"}], "usage": usage}
    return {
        "id": "r", "custom_id": custom_id, "response": {
            "status_code": status, "request_id": "q", "body": body}, "error": None}


def answer(rng, score):
    return {
        "rating": rng.choice(RATINGS), "score": score, "reasoning": " ".join(
            rng.choice(["a", "bb", "ccc", "dddd"]) for _ in range(40)), "inner": {
                "ok": rng.random() < 0.5}}


def drawn(count=200, seed=3):
    """Answers of two models by custom_id: scores that agree more or less, and ratings that change
    now and then."""
    rng, first, second = random.Random(seed), {}, {}
    for i in range(count):
        first[f"c{i} é"] = one = answer(rng, rng.randrange(10))
        second[f"c{i} é"] = {**one, "score": one["score"] + rng.choice([0, 0, 1, 0.5])}
        if rng.random() < 0.2:
            second[f"c{i} é"] = answer(rng, rng.randrange(10))
    return first, second


def write(path, answers, shuffle=None, extra=()):
    lines = [
        result(name,
               json.dumps(value),
               prompt_tokens=10,
               completion_tokens=3,
               prompt_tokens_details={"cached_tokens": 4}) for name, value in answers.items()]
    lines += extra
    if shuffle is not None:
        random.Random(shuffle).shuffle(lines)
    path.write_bytes(support.jsonl(lines))
    return path


def compare(a, b, *arguments):
    done = support.quern("compare", a, b, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ranks(values):
    return [sum(v < x for v in values) + (sum(v == x for v in values) - 1) / 2 for x in values]


def kendall(a, b):
    same = lambda x, y: (x > y) - (x < y)
    signs = [
        (same(a[i], a[k]), same(b[i], b[k])) for i, k in itertools.combinations(range(len(a)), 2)]
    return sum(x * y for x, y in signs) / math.sqrt(
        sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs))


def kappa_of(pairs):
    """Cohen's kappa by its definition."""
    count = len(pairs)
    labels = {label for pair in pairs for label in pair}
    observed = sum(a == b for a, b in pairs) / count
    expected = sum(
        sum(a == label for a, _ in pairs) * sum(b == label for _, b in pairs)
        for label in labels) / count**2
    return (observed - expected) / (1 - expected)


def test_labels_have_a_kappa_and_scores_an_interval(tmp_path):
    first, second = drawn()
    said = compare(write(tmp_path / "a", first), write(tmp_path / "b", second, shuffle=1))
    fields = {field["name"]: field for field in said["fields"]}
    pairs = [(first[name]["rating"], second[name]["rating"]) for name in first]
    label = fields["rating"]["label"]
    assert label["rows"] == len(pairs)
    assert label["kappa"] == pytest.approx(kappa_of(pairs), abs=1e-9)
    assert label["kappa_low"] < label["kappa"] < label["kappa_high"]
    score = fields["score"]["score"]
    reach = 1.959963984540054 * math.sqrt((1 + score["spearman"]**2 / 2) / (score["rows"] - 3))
    assert score["spearman_low"] == pytest.approx(math.tanh(math.atanh(score["spearman"]) - reach))
    assert score["spearman_high"] == pytest.approx(math.tanh(math.atanh(score["spearman"]) + reach))


@pytest.mark.parametrize("shuffle", [None, 7])
def test_figures_are_those_of_their_definitions(tmp_path, shuffle):
    first, second = drawn()
    said = compare(write(tmp_path / "a.jsonl", first), write(tmp_path / "b.jsonl", second, shuffle))
    assert said["rows_in_both"] == said["answered_in_both"] == said["json_in_both"] == 200
    assert said["equal"] == sum(first[name] == second[name] for name in first)
    fields = {field["name"]: field for field in said["fields"]}
    assert {name: field["kind"]
            for name, field in fields.items()} == {
                "rating": "label", "score": "score", "reasoning": "prose", "inner.ok": "label"}
    assert fields["rating"]["equal"] == sum(
        first[name]["rating"] == second[name]["rating"] for name in first)
    assert fields["inner.ok"]["agreement"] == pytest.approx(
        sum(first[name]["inner"] == second[name]["inner"] for name in first) / 200)
    a, b = [first[name]["score"] for name in first], [second[name]["score"] for name in first]
    score, shifts = fields["score"]["score"], [y - x for x, y in zip(a, b)]
    assert score["rows"] == 200 and score["pairs"] == 200 * 199 // 2
    assert score["mean_a"] == pytest.approx(
        statistics.mean(a)) and score["mean_b"] == pytest.approx(statistics.mean(b))
    assert score["shift"] == pytest.approx(
        statistics.mean(shifts)) and score["shift_sd"] == pytest.approx(statistics.stdev(shifts))
    assert (score["shift_min"], score["shift_max"]) == (min(shifts), max(shifts))
    assert score["mean_distance"] == pytest.approx(statistics.mean(map(abs, shifts)))
    assert score["spearman"] == pytest.approx(statistics.correlation(ranks(a), ranks(b)), abs=1e-12)
    assert score["kendall_tau_b"] == pytest.approx(kendall(a, b), abs=1e-12)
    assert score["tied_pairs_a"] == sum(x == y for x, y in itertools.combinations(a, 2))
    assert score["tied_pairs_b"] == sum(x == y for x, y in itertools.combinations(b, 2))
    labels = [
        first[name][key] == second[name][key]
        for name in first
        for key in ("rating", "score", "inner")]
    assert said["agreement"] == pytest.approx(sum(labels) / len(labels))
    for side in "ab":
        assert (said[side]["prompt_tokens"], said[side]["cached_tokens"],
                said[side]["completion_tokens"]) == (2000, 800, 600)


def test_the_rows_that_differ_most_come_first(tmp_path):
    first, second = drawn()
    said = compare(write(tmp_path / "a.jsonl", first), write(tmp_path / "b.jsonl", second, 5),
                   "--top", 1000)
    scores = [value["score"] for value in (*first.values(), *second.values())]
    width = max(scores) - min(scores)

    def distance(name):
        a, b = first[name], second[name]
        return ((a["rating"] != b["rating"]) +
                (a["inner"] != b["inner"]) + abs(a["score"] - b["score"]) / width) / 3

    told = [(row["custom_id"], row["distance"]) for row in said["differ_most"]]
    assert {name for name, _ in told} == {name for name in first if first[name] != second[name]}
    for name, value in told:
        assert value == pytest.approx(distance(name), abs=1e-6)
    assert [value for _, value in told] == sorted((value for _, value in told), reverse=True)
    for row in said["differ_most"]:
        a = json.loads(row["a"])
        assert a["rating"] == first[row["custom_id"]]["rating"] and json.loads(
            row["b"])["score"] == second[row["custom_id"]]["score"]
    assert compare(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--top",
                   3)["differ_most"] == said["differ_most"][:3]
    assert compare(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--top", 0)["differ_most"] == []


def test_missing_failed_and_other_rows_are_told_apart(tmp_path):
    failed = {
        "id": "r", "custom_id": "x", "response": {"status_code": 500, "body": {"error": {}}},
        "error": None}
    expired = {
        "id": "r", "custom_id": "y", "response": None, "error": {
            "code": "batch_expired", "message": "late"}}
    a = write(tmp_path / "a.jsonl", {"one": {"k": 1}, "two": {"k": 1}, "x": {"k": 1}},
              extra=[expired, result("t", "words"),
                     result("only", "7")])
    b = write(tmp_path / "b.jsonl", {"one": {"k": 1}, "two": {"m": 2}, "y": {"k": 3}},
              extra=[failed, result("t", "other words"),
                     result("z", "1")])
    said = compare(a, b)
    assert (said["rows_in_both"], said["answered_in_both"], said["answered_in_a_only"],
            said["answered_in_b_only"]) == (5, 3, 1, 1)
    assert (said["a"]["not_in_other"], said["b"]["not_in_other"], said["a"]["failed"],
            said["b"]["failed"]) == (1, 1, 1, 1)
    fields = {field["name"]: field for field in said["fields"]}
    assert (fields["k"]["rows"], fields["k"]["equal"], fields["k"]["only_a"],
            fields["m"]["only_b"]) == (2, 1, 1, 1)
    assert fields["(text)"]["equal"] == 0 and fields["k"]["score"]["spearman"] is None
    done = support.quern("compare", a, b)
    assert done.returncode == 0 and "only" in done.stdout and "1 not in the other file" in done.stdout


@pytest.mark.parametrize("arguments, costs", [
    ((), (None, None)), (("--input-price", 2), (None, None)),
    (("--input-price", 2, "--output-price", 10), (0.005, 0.005)),
    (("--input-price", 2, "--cached-price", 1, "--output-price", 10, "--batch-discount", 0.5),
     (0.0023, 0.0023)),
    (("--input-price", 2, "--cached-price", 1, "--output-price", 10, "--b-input-price", 4),
     (0.0046, 0.007)),
    (("--input-price", 2, "--output-price", 10, "--b-cached-price", 1, "--b-output-price", 0),
     (0.005, 0.0016))])
def test_tokens_cost_what_the_prices_say(tmp_path, arguments, costs):
    answers = {str(i): {"k": i} for i in range(100)}
    a, b = write(tmp_path / "a.jsonl", answers), write(tmp_path / "b.jsonl", answers)
    said = compare(a, b, *arguments, "--currency", "CHF")
    assert tuple(said[side]["cost"] for side in "ab") == costs and said["a"]["currency"] == "CHF"
    assert ("CHF" in support.quern("compare", a, b, *map(str, arguments), "--currency",
                                   "CHF").stdout) == (costs[0] is not None)


def test_a_least_agreement_is_an_exit_status(tmp_path):
    a, b = write(tmp_path / "a.jsonl", {"1": {"k": "x", "l": 1}}), write(
        tmp_path / "b.jsonl", {"1": {"k": "y", "l": 1}})
    assert support.quern("compare", a, b, "--agreement-min", 0.5).returncode == 0
    assert support.quern("compare", a, b, "--agreement-min", 0.6).returncode == 1


def test_an_answer_cannot_draw_on_the_terminal(tmp_path):
    a, b = write(tmp_path / "a.jsonl", {}, extra=[result("\x1b[31m", "a\x1b[2Jb\nc")]), write(
        tmp_path / "b.jsonl", {}, extra=[result("\x1b[31m", "other")])
    done = support.quern("compare", a, b)
    assert done.returncode == 0 and "\x1b" not in done.stdout


@pytest.mark.parametrize("line, sentence",
                         [(b"{", "line 2: not a JSON object"),
                          (b'{"id": 1}', "line 2: it has no custom_id"),
                          (b'{"custom_id": "1"}', "line 2: an earlier line has its custom_id")])
@pytest.mark.parametrize("bad", ["a", "b"])
def test_a_file_that_is_no_result_file_is_refused(tmp_path, line, sentence, bad):
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", {"1": {"k": 1}})
    with open(tmp_path / f"{bad}.jsonl", "ab") as file:
        file.write(line + b"\n")
    done = support.quern("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert done.returncode == 3 and f"{bad}.jsonl, {sentence}" in done.stderr


def test_what_is_not_there_is_told(tmp_path):
    a, b = write(tmp_path / "a.jsonl", {"1": {}}), write(tmp_path / "b.jsonl", {"2": {}})
    assert support.quern("compare", a, tmp_path / "none").returncode == 4
    assert support.quern("compare", a).returncode == 2
    done = support.quern("compare", a, b)
    assert done.returncode == 3 and "no custom_id in common" in done.stderr
