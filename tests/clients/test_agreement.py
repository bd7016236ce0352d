# SPDX-License-Identifier: Apache-2.0
"""Figures of `quern evaluate` next to those of scikit-learn, SciPy and statsmodels on drawn answers,
and next to those of a run of each model alone."""
import json, os, random

import numpy
import pytest
from scipy import stats
from sklearn import metrics
from statsmodels.stats import inter_rater

import support

SEED = os.environ.get("QUERN_SEED", "1")
LINES = 200


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def request(name, answer):
    """What the echo worker answers is the message."""
    return support.request(name, json.dumps(answer))


def result(name, answer):
    return {"id": "r", "custom_id": name, "error": None, "response": {
        "status_code": 200, "request_id": "q", "body": {"choices": [{
            "index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": json.dumps(answer)}}]}}}


def drawn(rng):
    """Answers of a model and of a reference: labels, and scores with and without many ties."""
    labels = [f"label {i}" for i in range(rng.randrange(2, 7))]
    places, noise, keeps = rng.choice([0, 0, 3]), rng.uniform(0, 30), rng.random()
    first, second = [], []
    for _ in range(LINES):
        score, label = rng.uniform(0, 100), rng.choice(labels)
        first.append({"score": round(score, places), "label": label})
        second.append({"score": round(score + rng.gauss(0, noise), places),
                       "label": label if rng.random() < keeps else rng.choice(labels)})
    return first, second


def interval_of(rho):
    """95 % of Spearman's rho by Bonett and Wright (2000), which none of the three libraries has."""
    reach = stats.norm.ppf(0.975) * numpy.sqrt((1 + rho ** 2 / 2) / (LINES - 3))
    return list(numpy.tanh(numpy.arctanh(rho) + numpy.array([-reach, reach])))


def near(value):
    return pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("number", range(20))
def test_agreement_is_that_of_scikit_learn_and_scipy(tmp_path, number):
    print(f"seed {SEED}")
    first, second = drawn(random.Random(f"{SEED} {number}"))
    path = write(tmp_path / "in.jsonl", [request(f"l{i}", own) for i, own in enumerate(first)])
    other = write(tmp_path / "other.jsonl", [result(f"l{i}", own) for i, own in enumerate(second)])
    done = support.quern("evaluate", path, "--json", "--model", "a=echo", "--model", "b=echo",
                         "--model", "c=echo", "--compare-to", other)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [model["answered"] for model in said["models"]] == [LINES] * 3
    pairs = [pair for pair in said["agreement"] if str(other) in json.dumps(pair)]
    assert len(pairs) == 3, said["agreement"]
    scores, labels = ([[own[name] for own in side] for side in (second, first)]
                      for name in ("score", "label"))
    for pair in pairs:
        fields = {field["name"]: field for field in pair["fields"]}
        label, score = fields["label"]["label"], fields["score"]["score"]
        assert fields["label"]["agreement"] == pytest.approx(metrics.accuracy_score(*labels))
        assert label["kappa"] == near(metrics.cohen_kappa_score(*labels))
        kappa = inter_rater.cohens_kappa(inter_rater.to_table(numpy.array(labels).T)[0])
        assert [label["kappa_low"], label["kappa_high"]] == near([kappa.kappa_low, kappa.kappa_upp])
        rho = stats.spearmanr(*scores).statistic
        assert score["spearman"] == near(rho)
        assert [score["spearman_low"], score["spearman_high"]] == near(interval_of(rho))
        assert score["kendall_tau_b"] == near(stats.kendalltau(*scores).statistic)
        shift = numpy.subtract(scores[1], scores[0])
        assert [score["shift"], score["shift_sd"]] == near([shift.mean(), shift.std(ddof=1)])


def test_counts_are_those_of_a_run_of_each_model_alone(tmp_path):
    first, _ = drawn(random.Random(SEED))
    path = write(tmp_path / "in.jsonl", [request(f"l{i}", own) for i, own in enumerate(first)])
    done = support.quern("evaluate", path, "--json", "--model", "a=echo", "--model", "b=echo")
    assert done.returncode == 0, done.stderr
    alone = support.quern("run", "-i", path, "-o", tmp_path / "alone.jsonl", "--model", "smollm2=echo",
                          "--json")
    assert alone.returncode == 0, alone.stderr
    answers = [json.loads(line) for line in (tmp_path / "alone.jsonl").read_text().splitlines()]
    usages = [answer["response"]["body"]["usage"] for answer in answers]
    for model in json.loads(done.stdout)["models"]:
        assert model["answered"] == len(answers) == LINES
        for name in ("prompt_tokens", "completion_tokens"):
            assert model[name] == sum(usage[name] for usage in usages)
