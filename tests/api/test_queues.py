# SPDX-License-Identifier: Apache-2.0
"""The queues of cards: which lines are in them, in which order, for whom; cursors that stay right
while judgements come in; the schema of the answers; exports that the commands read."""
import json

import pytest

import support
from test_judgements import LINES, fresh, judge, line_of, make, record


def cards(server, batch, query="", status=200):
    """A page of cards, asked for again while the answers of the batch are being read."""
    while True:
        got, data = server.call("GET", f"/v1/batches/{batch}/cards?{query}")
        assert got == status, data
        page = json.loads(data)
        if status != 200 or page["is_made"]:
            return page
        assert (page["data"], page["total"], page["left"],
                page["has_more"]) == ([], None, None, True) and page["indexed"] <= page["lines"]


def shown(server, batch, wanted, query=""):
    """Waits until the queue has the wanted cards, because results become cards a moment after they
    are durable."""
    support.until(lambda: walk(server, batch, f"limit=50&{query}") == wanted)


def walk(server, batch, query, between=lambda: None):
    """The custom_ids of all pages."""
    seen, after = [], ""
    while True:
        page = cards(server, batch, query + after)
        seen += [card["custom_id"] for card in page["data"]]
        if not page["has_more"]:
            return seen
        after = f"&after={page['after']}"
        between()


def test_a_card_has_the_line_and_what_curators_think(echo_server):
    batch = fresh(echo_server)
    judge(echo_server, batch, record("c-1",
                                     "first-of-ana",
                                     verdict="corrected",
                                     fields={"score": 2}))
    newest = judge(echo_server, batch, record("c-1", "second-of-ana", version=1))
    ben = judge(echo_server, batch, record("c-1", "first-of-ben", curator="Ben", verdict="skipped"))
    page = cards(echo_server, batch, "limit=2&judged=any&curator=Ana")
    assert (page["object"], page["total"], page["left"], page["has_more"]) == ("list", LINES,
                                                                               LINES - 1, True)
    first, second = page["data"]
    assert set(first) == {
        "line", "custom_id", "request", "result", "answer", "text", "uncertainty", "other",
        "judgements"}
    assert (first["line"], first["custom_id"], first["request"]) == (1, "c-0", line_of(0))
    assert first["result"]["custom_id"] == "c-0" and first["result"]["response"][
        "status_code"] == 200
    assert (first["answer"], json.loads(
        first["text"])) == ({"recommendation": "NO", "score": 0}, ) * 2
    assert (first["uncertainty"], first["other"], first["judgements"]) == (None, None, [])
    assert (second["line"], second["judgements"]) == (2, [newest, ben])


def test_a_card_has_answers_of_all_forms(echo_server):
    texts = [
        "plain é\u2028 text", '{"a": 1.50, "b": {"c": [1]}}', '```json\n{"a": 2}\n```', "[1, 2]",
        '{"a": ', " "]
    batch = make(echo_server, [line_of(i, text) for i, text in enumerate(texts)])
    page = cards(echo_server, batch, "limit=50")["data"]
    assert [card["answer"] for card in page] == [
        None, {"a": 1.5, "b": {"c": [1]}}, {"a": 2}, None, None, None]
    assert [card["text"] for card in page] == texts


def test_the_queue_all_leaves_out_what_the_curator_has_judged(echo_server):
    batch = fresh(echo_server)
    every = [f"c-{i}" for i in range(LINES)]
    assert walk(echo_server, batch, "limit=5") == every
    judge(echo_server, batch, record("c-3", "first-of-ana"))
    judge(echo_server, batch, record("c-4", "first-of-owner", curator="owner"))
    assert walk(echo_server, batch, "curator=Ana&limit=1") == [one for one in every if one != "c-3"]
    assert walk(echo_server, batch, "limit=50") == [one for one in every if one != "c-4"]
    assert walk(echo_server, batch, "judged=any&limit=7") == every
    # A judgement between two pages moves no card.
    ids = iter(every)
    assert walk(echo_server, batch, "curator=Ben&limit=3", lambda: judge(echo_server, batch, record(
        line := next(ids), f"ben-on-{line}", curator="Ben"))) == every
    assert cards(echo_server, batch, "curator=Ben")["left"] == LINES - 3


def test_a_sample_is_the_same_for_every_curator(echo_server):
    batch = make(echo_server, [line_of(i) for i in range(200)])
    one = walk(echo_server, batch, "queue=sampled&size=20&seed=7&limit=6")
    assert len(one) == len(set(one)) == 20 and one == sorted(one, key=lambda id: int(id[2:]))
    assert walk(echo_server, batch, "queue=sampled&size=20&seed=7&curator=Ben&limit=50") == one
    other = walk(echo_server, batch, "queue=sampled&size=20&seed=8&limit=50")
    assert len(other) == 20 and other != one
    judge(echo_server, batch, record(one[3], "ben-on-the-sample", curator="Ben"))
    page = cards(echo_server, batch, "queue=sampled&size=20&seed=7&curator=Ben")
    assert (page["total"], page["left"]) == (20, 19) and one[3] not in [
        card["custom_id"] for card in page["data"]]
    assert cards(echo_server, batch, "queue=sampled&size=1000000")["total"] == 200


def test_a_sample_has_every_line_equally_often(echo_server):
    batch, counts = fresh(echo_server), {}
    for seed in range(300):
        for card in cards(echo_server, batch, f"queue=sampled&size=3&seed={seed}")["data"]:
            counts[card["custom_id"]] = counts.get(card["custom_id"], 0) + 1
    assert len(counts) == LINES and min(counts.values()) > 40 and max(
        counts.values()) < 120, counts  # 75 each, deviation 7.5


def test_lines_on_which_curators_disagree(echo_server):
    batch = fresh(echo_server)
    said = [("c-0", "Ana", "accepted", None), ("c-0", "Ben", "accepted", None),
            ("c-1", "Ana", "accepted", None), ("c-1", "Ben", "corrected", {"score": 7}),
            ("c-2", "Ana", "corrected", {"score": 1}), ("c-2", "Ben", "corrected", {"score": 2}),
            ("c-3", "Ana", "accepted", None), ("c-3", "Ben", "skipped", None),
            ("c-4", "Ana", "corrected", {"a": 1, "b": 2}),
            ("c-4", "Ben", "corrected", {"b": 2, "a": 1})]
    for i, (line, curator, verdict, fields) in enumerate(said):
        judge(echo_server, batch,
              record(line, f"judgement-{i}", curator=curator, verdict=verdict, fields=fields))
    query = "queue=curators_disagree&curator=Cleo"
    assert walk(echo_server, batch, query) == ["c-1", "c-2"]
    assert cards(echo_server, batch, "queue=curators_disagree&curator=Ana")["left"] == 0
    judge(echo_server, batch,
          record("c-1", "ana-joins-ben", version=1, verdict="corrected", fields={"score": 7}))
    assert walk(echo_server, batch, query) == ["c-2"]


def test_lines_on_which_two_runs_disagree(echo_server):
    answers = [{"pick": "A", "n": 1}, {"pick": "A", "n": 1.0}, {"pick": "A", "why": "x" * 100}, {
        "n": 1, "pick": "A"}, "text", "text", {"deep": {"a": [1, 2]}}]
    others = [{"pick": "B", "n": 1}, {"pick": "A", "n": 1}, {"pick": "A", "why": "y" * 100}, {
        "pick": "A", "n": 1}, "text", "other", {"deep": {"a": [2, 1]}}]
    text = lambda answer: answer if isinstance(answer, str) else json.dumps(answer)
    one = make(echo_server,
               [line_of(i, text(answer)) for i, answer in enumerate(answers)] + [line_of(99)])
    two = make(echo_server,
               [line_of(i, text(answer)) for i, answer in reversed(list(enumerate(others)))])
    assert walk(echo_server, one, f"queue=runs_disagree&with={two}&limit=1") == [
        "c-0", "c-5", "c-6"]
    assert walk(echo_server, two, f"queue=runs_disagree&with={one}") == ["c-6", "c-5", "c-0"]
    first = cards(echo_server, one, f"queue=runs_disagree&with={two}")["data"][0]
    assert (first["answer"], first["other"]) == (answers[0], {
        "batch_id": two, "line": 7, "answer": others[0], "text": text(others[0])})
    assert cards(echo_server, one, f"queue=runs_disagree&with={one}")["total"] == 0
    assert cards(echo_server, one, "queue=runs_disagree", 400)["error"]["param"] == "with"
    assert cards(echo_server, one, f"queue=all&with={two}", 400)["error"]["param"] == "with"
    error = cards(echo_server, one, "queue=runs_disagree&with=batch_none", 404)["error"]
    assert error["param"] == "with" and "batch_none" in error["message"]


def test_two_runs_are_compared_while_one_of_them_runs(echo_server):
    one = make(echo_server, [line_of(i) for i in range(4)])
    late = {
        "echo": {"delay_ms": 600000}
    # In both: the cancel ends one after the other, and the second must not be answered in between
    }
    two = echo_server.create(
        support.jsonl([
            line_of(3),
            line_of(0, '{"score": 7}'),
            line_of(1, **late),
            line_of(2, '{"score": 8}', **late)]))["id"]
    support.until(lambda: echo_server.batch(two)["request_counts"]["completed"] >= 2)
    shown(echo_server, one, ["c-0"], f"queue=runs_disagree&with={two}")
    page = cards(echo_server, one, f"queue=runs_disagree&with={two}")
    assert (page["total"], page["left"], page["indexed"],
            page["lines"]) == (1, 1, 4, 4) and page["with"]["indexed"] < 4
    shown(echo_server, two, ["c-0"], f"queue=runs_disagree&with={one}")
    assert echo_server.call("POST", f"/v1/batches/{two}/cancel")[0] == 200
    echo_server.wait(two)
    # Lines that never ran have no answer, and differ from those that have one.
    shown(echo_server, one, ["c-0", "c-1", "c-2"], f"queue=runs_disagree&with={two}")
    assert [
        card["other"]["answer"]
        for card in cards(echo_server, one, f"queue=runs_disagree&with={two}")["data"]] == [{
            "score": 7}, None, None]


def logprobs(*values):
    return {"logprobs": {"content": [{"token": "a", "logprob": value} for value in values]}}


def test_the_most_uncertain_answers_come_first(echo_server):
    told = [(-1,), (-3, -2), (0,), None, (-1,), (-9,)]
    batch = make(echo_server, [
        line_of(i, **({"echo": logprobs(*values)} if values else {}))
        for i, values in enumerate(told)])
    wanted = ["c-5", "c-1", "c-0", "c-4", "c-2"]
    assert walk(echo_server, batch, "queue=uncertain&limit=2") == wanted
    page = cards(echo_server, batch, "queue=uncertain")
    assert [card["uncertainty"] for card in page["data"]] == [9, 2.5, 1, 1, 0]
    ids = iter(wanted)
    judged = lambda: judge(echo_server, batch, record(line := next(ids), f"ana-on-{line}"))
    assert walk(echo_server, batch, "queue=uncertain&limit=1&curator=Ana", judged) == wanted
    page = cards(echo_server, batch, "queue=uncertain&curator=Ana")
    assert (page["total"], page["left"], [card["custom_id"] for card in page["data"]]) == (5, 1, [
        "c-2"])
    assert cards(echo_server, batch, "queue=uncertain&after=1", 400)["error"]["param"] == "after"


def test_after_a_restart_every_queue_is_the_same(tmp_path):
    count, arguments = 5000, ("--model", "smollm2=echo")
    with support.serving(tmp_path / "state", *arguments) as server:
        one = make(server, [line_of(i, echo=logprobs(-(i * 7919 % count))) for i in range(count)])
        two = make(server, [
            line_of(i) if i % 100 else line_of(i, '{"score": -1}') for i in reversed(range(count))])
        for i in (3, 4):
            judge(server, one, record(f"c-{i}", f"ana-on-{i}"))
        judge(server, one,
              record("c-4", "ben-on-4", curator="Ben", verdict="corrected", fields={"score": 1}))
        queries = ("queue=all", "queue=sampled&size=100", "queue=uncertain",
                   f"queue=runs_disagree&with={two}", "queue=curators_disagree")
        before = [cards(server, one, query + "&limit=50") for query in queries]
        assert [page["total"] for page in before] == [count, 100, count, count // 100, 1]
        assert [page["data"][0]["custom_id"] for page in before[2:]] == [
            f"c-{next(i for i in range(count) if i * 7919 % count == count - 1)}", "c-0", "c-4"]
        after = cards(server, one, f"queue=uncertain&limit=50&after={before[2]['after']}")
        assert server.stop() == 0
    with support.serving(tmp_path / "state", *arguments) as server:
        assert cards(server, one, f"queue=uncertain&limit=50&after={before[2]['after']}") == after
        assert [cards(server, one, query + "&limit=50") for query in queries] == before
        assert server.stop() == 0


def test_without_the_results_there_are_no_cards_and_no_judgements(echo_server):
    batch, other = fresh(echo_server), make(echo_server,
                                            [line_of(i, "another answer") for i in range(LINES)])
    assert cards(echo_server, other, f"queue=runs_disagree&with={batch}")["total"] == LINES
    assert echo_server.call("DELETE",
                            f"/v1/files/{echo_server.batch(batch)['output_file_id']}")[0] == 200
    assert "deleted or has expired" in cards(echo_server, batch, status=404)["error"]["message"]
    assert "deleted or has expired" in judge(echo_server, batch, record("c-1", "never-kept"),
                                             404)["error"]["message"]
    assert "deleted or has expired" in cards(
        echo_server, other, f"queue=runs_disagree&with={batch}", 404)["error"]["message"]
    assert cards(echo_server, other)["total"] == LINES


@pytest.mark.parametrize("query, param", [("queue=none", "queue"), ("judged=yes", "judged"),
                                          ("seed=-1", "seed"), ("size=0", "size"),
                                          ("limit=51", "limit"), ("after=x", "after"),
                                          ("after=u-0-1", "after"),
                                          ("after=a-0-99999999999", "after"),
                                          ("after=a--", "after"), ("curator=", "curator"),
                                          ("curator=" + "x" * 65, "curator"),
                                          ("size=1000001", "size")])
def test_a_query_that_is_wrong_is_refused(echo_server, query, param):
    batch = fresh(echo_server)
    error = cards(echo_server, batch, query, 400)["error"]
    assert error["param"] == param and param in error["message"]


def test_a_page_of_long_answers_is_cut_and_goes_on(echo_server):
    batch = make(echo_server, [line_of(i, "x" * (1 << 20)) for i in range(6)])
    page = cards(echo_server, batch, "limit=50")
    assert 1 <= len(page["data"]) < 6 and page["has_more"]
    assert walk(echo_server, batch, "limit=50") == [f"c-{i}" for i in range(6)]


def test_a_running_batch_has_cards_of_its_done_lines(echo_server):
    lines = [line_of(0), line_of(1), line_of(2, echo={"delay_ms": 600000})]
    batch = echo_server.create(support.jsonl(lines))["id"]
    support.until(lambda: echo_server.batch(batch)["request_counts"]["completed"] == 2)
    shown(echo_server, batch, ["c-0", "c-1"])
    assert echo_server.call("POST", f"/v1/batches/{batch}/cancel")[0] == 200
    echo_server.wait(batch)
    shown(echo_server, batch, ["c-0", "c-1", "c-2"])
    page = cards(echo_server, batch)
    assert (page["data"][2]["answer"], page["data"][2]["text"]) == (
        None, "") and page["data"][2]["result"]["error"]["code"] == "batch_cancelled"


def schema_of(server, batch):
    told = {}
    while not told.get("is_made"):
        told = server.json("GET", f"/v1/batches/{batch}/schema")
        assert set(told) == {"schema", "is_made", "indexed", "lines"
                             } and (told["is_made"] or told["schema"] is None)
    return told["schema"]


SCHEMA = {"type": "object", "properties": {"é": {"type": "string"}, "n": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "judge", "parameters": SCHEMA}}


@pytest.mark.parametrize(
    "body",
    [{"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}, {
        "structured_outputs": {"json": SCHEMA}}, {"guided_json": SCHEMA}, {"json_schema": SCHEMA}, {
            "response_format": {"type": "json_object", "schema": SCHEMA}}, {"tools": [TOOL]}, {
                "tools": [{"type": "function", "function": {"name": "no", "parameters": {}}}, TOOL],
                "tool_choice": {"type": "function", "function": {"name": "judge"}}}],
    ids=str)
def test_the_schema_of_all_lines(echo_server, body):
    batch = make(echo_server, [line_of(i, **body) for i in range(3)])
    assert schema_of(echo_server, batch) == SCHEMA
    mixed = make(echo_server, [line_of(0, **body), line_of(1)])
    assert schema_of(echo_server, mixed) is None


def test_without_a_schema_there_is_none(echo_server):
    assert schema_of(echo_server, fresh(echo_server)) is None


# --- exports ---

def exported(server, batch, form):
    status, data = server.call("GET", f"/v1/batches/{batch}/judgements/export?format={form}")
    assert status == 200, data
    assert data.isascii()
    return [json.loads(line) for line in data.decode().splitlines()]


@pytest.fixture(scope="module")
def judged(echo_server):
    """A batch with judgements of all kinds: (id, its output file's lines)."""
    lines = [line_of(i) for i in range(8)] + [
        line_of(8, "a text é\u2028"),
        line_of(9, '```json\n{"score": 1.50, "recommendation": "NO"}\n```')]
    batch = make(echo_server, lines)
    said = [("c-0", "Ana", "accepted", None),
            ("c-1", "Ana", "corrected", {"score": 0.1, "new é": [None]}),
            ("c-2", "Ana", "skipped", None), ("c-3", "Ana", "accepted", None),
            ("c-3", "Ben", "corrected", {"score": 7}), ("c-4", "Ana", "accepted", None),
            ("c-4", "Ben", "skipped", None), ("c-5", "Ben", "corrected", {"recommendation": "NO"}),
            ("c-8", "Ana", "corrected", {".text": "better é\u2028"}),
            ("c-9", "Ana", "corrected", {"recommendation": "YES"})]
    for i, (line, curator, verdict, fields) in enumerate(said):
        judge(echo_server, batch,
              record(line, f"judgement-{i}", curator=curator, verdict=verdict, fields=fields))
    judge(
        echo_server, batch,
        record("c-5",
               "ben-thinks-again",
               version=1,
               curator="Ben",
               verdict="corrected",
               fields={"score": 1}))
    return batch, echo_server.results(echo_server.batch(batch))[0]


RIGHT = {
    "c-0": '{"recommendation": "NO", "score": 0}',
    "c-1": '{"recommendation": "HIRE", "score": 0.1,"new é":[null]}',
    "c-4": '{"recommendation": "NO", "score": 4}', "c-5": '{"recommendation": "HIRE", "score": 1}',
    "c-8": "better é\u2028", "c-9": '```json\n{"score": 1.50, "recommendation": "YES"}\n```'}


def test_an_export_as_jsonl_has_every_newest_judgement(echo_server, judged):
    batch, _ = judged
    rows = exported(echo_server, batch, "jsonl")
    assert [(row["custom_id"], row["judgement"]["curator"]) for row in rows] == [("c-0", "Ana"),
                                                                                 ("c-1", "Ana"),
                                                                                 ("c-2", "Ana"),
                                                                                 ("c-3", "Ana"),
                                                                                 ("c-3", "Ben"),
                                                                                 ("c-4", "Ana"),
                                                                                 ("c-4", "Ben"),
                                                                                 ("c-5", "Ben"),
                                                                                 ("c-8", "Ana"),
                                                                                 ("c-9", "Ana")]
    assert rows[7]["judgement"]["id"] == "ben-thinks-again"
    assert rows[1]["request"] == line_of(1) and rows[1]["result"]["response"]["body"]["choices"][0][
        "message"]["content"] == json.dumps({"recommendation": "HIRE", "score": 1})
    assert (rows[1]["answer"], rows[1]["text"], rows[1]["line"]) == ({
        "recommendation": "HIRE", "score": 0.1, "new é": [None]}, RIGHT["c-1"], 2)
    assert (rows[8]["answer"], rows[8]["text"]) == (None, RIGHT["c-8"])
    assert rows[3]["answer"]["score"] == 3 and rows[4]["answer"]["score"] == 7


def test_an_export_as_few_shot_has_chats_that_end_with_the_right_answer(echo_server, judged):
    rows = exported(echo_server, judged[0], "few_shot")
    assert [row["messages"][-1]["content"] for row in rows] == list(RIGHT.values())
    for row, line in zip(rows, RIGHT, strict=True):
        request = next(one for one in [line_of(i) for i in range(8)] + [None]
                       if one is None or one["custom_id"] == line)
        assert set(row) == {"messages"} and [message["role"] for message in row["messages"]] == [
            "user", "assistant"]
        assert request is None or row["messages"][:1] == request["body"]["messages"]
    # They are messages that the server itself takes.
    got, data = echo_server.call("POST", "/v1/chat/completions", {
        "model": "smollm2", "messages": rows[1]["messages"] + [{"role": "user", "content": "next"}]
    })
    assert got == 200, data


def test_compare_reads_an_export_and_finds_what_curators_changed(echo_server, judged, tmp_path):
    batch, lines = judged
    rows = exported(echo_server, batch, "compare")
    assert [row["custom_id"] for row in rows] == list(RIGHT)
    for row in rows:
        was = next(line for line in lines if line["custom_id"] == row["custom_id"])
        was["response"]["body"]["choices"][0]["message"]["content"] = RIGHT[row["custom_id"]]
        assert row == was
    (tmp_path / "right.jsonl").write_bytes(support.jsonl(rows))
    (tmp_path / "model.jsonl").write_bytes(
        support.jsonl(echo_server.results(echo_server.batch(batch))[0]))
    done = support.quern("compare", tmp_path / "model.jsonl", tmp_path / "right.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    fields = {field["name"]: field for field in told["fields"]}
    assert fields["score"][
        "rows"] == 5 and fields["score"]["equal"] == 3  # c-1 and c-5 were corrected
    assert fields["recommendation"]["rows"] == 5 and fields["recommendation"]["equal"] == 4  # c-9


def test_without_judgements_an_export_is_empty_and_another_format_refused(echo_server):
    batch = fresh(echo_server)
    for form in ("jsonl", "few_shot", "calibrate", "compare"):
        assert exported(echo_server, batch, form) == []
    status, data = echo_server.call("GET", f"/v1/batches/{batch}/judgements/export?format=xml")
    assert status == 400 and json.loads(data)["error"]["param"] == "format"


def test_without_the_files_the_judgements_are_exported_alone(echo_server):
    batch = fresh(echo_server)
    judge(echo_server, batch,
          record("c-1", "before-it-goes", verdict="corrected", fields={"score": 5}))
    row = echo_server.batch(batch)
    assert echo_server.call("DELETE", f"/v1/files/{row['output_file_id']}")[0] == 200
    assert echo_server.call("DELETE", f"/v1/files/{row['input_file_id']}")[0] == 200
    rows = exported(echo_server, batch, "jsonl")
    assert [(row["custom_id"], row["judgement"]["fields"], row["result"], row["answer"])
            for row in rows] == [("c-1", {"score": 5}, None, None)]
    for path in ("judgements/export?format=few_shot", "cards"):
        status, data = echo_server.call("GET", f"/v1/batches/{batch}/{path}")
        assert status == 404 and "deleted or has expired" in json.loads(
            data)["error"]["message"], data
