# SPDX-License-Identifier: Apache-2.0
"""The answers of a batch by their fields: counts, filters, orders, search and single lines,
compared with a plain reference in Python."""
import concurrent.futures, json, os, random, shutil, subprocess, urllib.parse

import pytest

import support

LINES = int(os.environ.get("QUERN_ANSWER_LINES", "300"))
RECOMMENDATIONS = ["HIRE", "NO HIRE", "ask: again", "ümlaut ✓", ""]


def answer_of(rng, number):
    """An answer as a model could give it; some lack fields, some are no JSON."""
    if number % 17 == 0:
        return f"no JSON number {number}"
    answer = {
        "recommendation": rng.choice(RECOMMENDATIONS), "score": rng.choice([
            rng.randrange(101), round(rng.random() * 100, 3),
            None]), "is_local": rng.random() < 0.5, "skills": ["a"] * rng.randrange(5), "profile": {
                "age": rng.randrange(20, 60), "city": {"name": "Köln"}},
        "reason": "because " * rng.randrange(30) + f"of {number}", ".status": "own",
        "mixed": rng.choice([1, "one", True])}
    for name in rng.sample(sorted(answer), rng.randrange(3)):
        del answer[name]
    text = json.dumps(answer, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 2]))
    return f"```json\n{text}\n```" if number % 11 == 0 else text


def flat(answer, prefix=""):
    fields = {}
    for name, value in answer.items():
        name = prefix + "." + name if prefix or not name or name.startswith(".") else name
        if isinstance(value, dict):
            fields |= flat(value, name)
        elif isinstance(value, list):
            fields[name + ".length"] = len(value)
        elif value is not None:
            fields[name] = value
    return fields


def fields_of(result):
    """The reference: the fields of a result line."""
    fields = {".custom_id": result["custom_id"]}
    if result["error"]:
        return fields | {".outcome": result["error"]["code"]}
    body = result["response"]["body"]
    fields[".status"] = result["response"]["status_code"]
    if "error" in body:
        return fields | {".outcome": body["error"]["code"] or body["error"]["type"]}
    text = body["choices"][0]["message"]["content"]
    fields |= {
        ".outcome": body["choices"][0]["finish_reason"], ".characters": len(text),
        ".prompt_tokens": body["usage"]["prompt_tokens"],
        ".completion_tokens": body["usage"]["completion_tokens"]}
    text = text.strip()
    if text.startswith("```"):
        text = text.partition("\n")[2].strip().removesuffix("```").strip()
    try:
        answer = json.loads(text)
    except ValueError:
        return fields
    return fields | (flat(answer) if isinstance(answer, dict) else {})


def requests_of(seed, count=LINES):
    rng = random.Random(seed)
    requests = [
        support.request(f"c-{number}", answer_of(rng, number)) for number in range(1, count + 1)]
    for number in (5, 15):
        requests[number]["body"]["echo"] = {"status": 422}
    return requests


def wanted_rows(requests, results):
    """Per line in the order of the input: its number, its fields, its result."""
    by_id = {result["custom_id"]: result for part in results for result in part}
    return [(number, fields_of(by_id[request["custom_id"]]), by_id[request["custom_id"]])
            for number, request in enumerate(requests, 1) if request["custom_id"] in by_id]


class Answers:
    """The routes of one batch."""

    def __init__(self, server, batch_id):
        self.server, self.batch_id = server, batch_id

    def get(self, path, status=200, **query):
        query = urllib.parse.urlencode(query, doseq=True)
        return self.server.json("GET", f"/v1/batches/{self.batch_id}/{path}?{query}", status=status)

    def fields(self):
        """The fields once every line is in the index."""
        support.until(lambda: (got := self.get("answers/fields"))["indexed"] == got["lines"] and
                      got["lines"] == self.lines)
        return {field["name"]: field for field in self.get("answers/fields")["data"]}

    def pages(self, limit=50, **query):
        """All lines of a query, page by page, and the last page."""
        rows, after = [], {}
        while True:
            page = self.get("answers", limit=limit, **query, **after)
            assert len(page["data"]) <= limit
            rows += page["data"]
            if not page["has_more"]:
                return rows, page
            after = {"after": page["after"]}

    def numbers(self, **query):
        return [row["line"] for row in self.pages(**query)[0]]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from support.server_of_session(tmp_path_factory, "answers", "--model", "smollm2=echo")


@pytest.fixture(scope="module")
def ended(server):
    """An ended batch with its routes and the rows that it must have."""
    requests = requests_of(1)
    batch = server.wait(server.create(support.jsonl(requests))["id"])
    answers = Answers(server, batch["id"])
    answers.lines, answers.requests = LINES, requests
    answers.rows = wanted_rows(requests, server.results(batch))
    assert len(answers.rows) == LINES
    answers.fields()
    return answers


def quoted(text):
    return urllib.parse.quote(text, safe="")


def test_fields_have_their_types_counts_values_and_histograms(ended):
    got = {  # those of arrays: test_answers_table.py
        name: field for name, field in ended.fields().items() if field["type"] != "array"}
    wanted = {}
    for _, fields, _ in ended.rows:
        for name, value in fields.items():
            wanted.setdefault(name, []).append(value)
    assert set(got) == set(wanted)
    for name, values in wanted.items():
        field = got[name]
        assert field["count"] == len(values), name
        kinds = {bool: "boolean", int: "number", float: "number", str: "string"}
        types = {kinds[type(value)] for value in values}
        assert field["type"] == (types.pop() if len(types) == 1 else "mixed"), name
        assert field["distinct"] == len({(isinstance(value, bool), value)
                                         for value in values}), name
        numbers = [
            value for value in values
            if isinstance(value, (int, float)) and not isinstance(value, bool)]
        if numbers:
            assert (field["min"], field["max"]) == (min(numbers), max(numbers)), name
            assert field["mean"] == pytest.approx(sum(numbers) / len(numbers)), name
            assert sum(field["histogram"]["counts"]) == len(numbers) and len(
                field["histogram"]["counts"]) == 20, name
    counts = {value["value"]: value["count"] for value in got["recommendation"]["values"]}
    assert counts == {text: wanted["recommendation"].count(text) for text in RECOMMENDATIONS}
    assert {value["value"]: value["count"] for value in got["is_local"]["values"]} == {
        flag: wanted["is_local"].count(flag) for flag in (True, False)}


OPERATIONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}


def fits(fields, name, op, value):
    """The reference of a filter; `value` is a text, a number or a truth value."""
    if op == "is":
        return name not in fields
    if name not in fields:
        return False
    own = fields[name]
    if op == "has":
        return isinstance(own, str) and value.lower() in own.lower()
    if isinstance(own, bool) or isinstance(value, bool):
        same = isinstance(own, bool) and isinstance(value, bool) and own == value
        return same if op == "eq" else op == "ne" and not same
    if isinstance(own, str) != isinstance(value, str):
        return op == "ne"
    if isinstance(own, str):
        own, value = own.encode(), value.encode()
    return OPERATIONS[op](own, value)


def value_key(value):
    """The place of a value in an order: numbers, truth values, short texts, long texts."""
    if isinstance(value, bool):
        return 1, value
    if isinstance(value, str):
        return (2, value.encode()) if len(value.encode()) <= 96 else (3,)
    return 0, value


def in_order(rows, name, descending):
    """Rows without the field come last in both directions; equal values stay in order of line."""
    present = [row for row in rows if name in row[1]]
    absent = [row for row in rows if name not in row[1]]
    return sorted(present, key=lambda row: value_key(row[1][name]), reverse=descending) + absent


FILTERS = [("recommendation", "eq", "HIRE"), ("recommendation", "ne", "HIRE"),
           ("recommendation", "eq", "ask: again"), ("recommendation", "eq", ""),
           ("recommendation", "has", "HIRE"), ("recommendation", "has", "hire"),
           ("recommendation", "is", "null"), ("score", "ge", 50), ("score", "lt", 49.5),
           ("score", "eq", 7),
           ("score", "le", 7), ("score", "gt", "text"), ("is_local", "eq", True),
           ("is_local", "ne", True), ("skills.length", "gt", 2), ("profile.age", "lt", 30),
           ("profile.city.name", "eq", "Köln"), ("..status", "eq", "own"), (".status", "eq", 422),
           (".outcome", "eq", "stop"), (".custom_id", "has", "C-1"), ("reason", "has", "of 12"),
           ("reason", "ne", "of 12"), ("mixed", "eq", "one"), ("mixed", "gt", 0),
           ("mixed", "is", "null"), ("nowhere", "is", "null"), ("nowhere", "eq", "x"),
           (".characters", "gt", 100)]


def written(name, op, value):
    value = "null" if op == "is" else str(value).lower() if isinstance(value, bool) else str(value)
    return f"{quoted(name)}:{op}:{quoted(value)}"


@pytest.mark.parametrize("name,op,value", FILTERS)
def test_a_filter_finds_the_lines_of_the_reference(ended, name, op, value):
    wanted = [number for number, fields, _ in ended.rows if fits(fields, name, op, value)]
    rows, page = ended.pages(filter=written(name, op, value), limit=37)
    assert [row["line"] for row in rows] == wanted
    assert page["matched"] in (len(wanted), None)


@pytest.mark.parametrize("name", [
    "recommendation", "score", "is_local", "mixed", "reason", ".custom_id", ".characters",
    "nowhere", ".line"])
@pytest.mark.parametrize("descending", [False, True])
def test_an_order_is_that_of_the_reference_over_all_pages(ended, name, descending):
    rows = [(number, fields | {".line": number}, result) for number, fields, result in ended.rows]
    wanted = [number for number, _, _ in in_order(rows, name, descending)]
    assert ended.numbers(sort=("-" if descending else "") + quoted(name), limit=23) == wanted


def test_random_filters_and_orders_together(ended):
    rng = random.Random(7)
    for _ in range(30):
        chosen = rng.sample(FILTERS, rng.randrange(1, 4))
        name, descending = rng.choice([
            "score", "recommendation", "profile.age", ".completion_tokens"]), rng.random() < 0.5
        rows = [row for row in ended.rows if all(fits(row[1], *one) for one in chosen)]
        wanted = [number for number, _, _ in in_order(rows, name, descending)]
        got = ended.numbers(filter=[written(*one) for one in chosen],
                            sort=("-" if descending else "") + name,
                            limit=rng.choice([1, 9, 100]))
        assert got == wanted, (chosen, name, descending)


def test_a_search_looks_at_ids_and_answers(ended):
    for text in ("no json", "KÖLN".replace("Ö",
                                           "ö"), "c-12", "because because", "nothing has this"):
        wanted = []
        for number, fields, result in ended.rows:
            texts = [result["custom_id"]]
            if result["response"] and "choices" in result["response"]["body"]:
                texts.append(result["response"]["body"]["choices"][0]["message"]["content"])
            if any(text.lower() in own.lower() for own in texts):
                wanted.append(number)
        assert ended.numbers(q=text, limit=7) == wanted, text


def test_a_search_says_how_far_it_is(server):
    """A request reads 4,096 texts at most: the one answer that matches is behind them, and a client
    that goes on finds it."""
    count = 9000
    requests = [
        support.request(f"c-{number}",
                        "needle " + "x" * 200 if number == count - 5 else "straw " + "x" * 200)
        for number in range(1, count + 1)]
    batch = server.wait(server.create(support.jsonl(requests))["id"])
    answers = Answers(server, batch["id"])
    answers.lines = count
    answers.fields()
    for query in ({"q": "needle"}, {"filter": ".custom_id:has:c-8995", "q": "needle"}):
        seen, cursor, pages = [], {}, []
        while True:
            page = answers.get("answers", limit=50, **query, **cursor)
            pages.append((page["searched"], page["left"], page["has_more"]))
            seen += [row["line"] for row in page["data"]]
            if not page["has_more"]:
                break
            cursor = {"after": page["after"]}
        assert seen == [count - 5], query
        if "filter" not in query:
            assert pages == [(4096, 4904, True), (4096, 808, True), (808, 0, False)]
    page = answers.get("answers", limit=50)
    assert (page["searched"], page["left"], page["matched"]) == (None, count - 50, count)


@pytest.mark.skipif(not shutil.which("node"), reason="no node to run the page's code")
def test_the_page_goes_on_to_the_end(tmp_path):
    """answer_page.js over a server that finds the only match in the last of its pieces."""
    (tmp_path / "answer_page.mjs").write_text(
        (support.ROOT / "src/service/pages/web/answer_page.js").read_text())
    (tmp_path / "try.mjs").write_text("""
        import {answerPage} from "./answer_page.mjs";
        const all = 200000, piece = 4096, hits = [199999, 199990];
        const ask = async (cursor, limit) => {
          const from = cursor ?? 0, to = Math.min(from + piece, all), data = [];
          let at = from;
          for (; at < to && data.length < limit; at++) if (hits.includes(at)) data.push({line: at});
          const searched = at - from, left = all - at;
          return {data, matched: null, has_more: at < all, after: at, searched, left};
        };
        const shown = [];
        const run = async (after, limit) => {
          const show = page =>
            shown.push([page.data.length, page.searched, page.left, page.isSearching]);
          const page = await answerPage(ask, after, limit, show);
          const {matched, isSearching, has_more} = page;
          return {lines: page.data.map(row => row.line), matched, isSearching, has_more,
                  after: page.after};
        };
        const whole = await run(null, 50), first = await run(null, 1);
        const second = await run(first.after, 1);
        console.log(JSON.stringify(
          {whole, first, second, shown: shown.slice(0, 2), last: shown[48]}));
    """)
    said = json.loads(
        subprocess.run(["node", tmp_path / "try.mjs"], capture_output=True, text=True,
                       check=True).stdout)
    assert said["whole"] == {
        "lines": [199990, 199999], "matched": 2, "isSearching": False, "has_more": False,
        "after": 200000}
    assert said["first"] == {
        "lines": [199990], "matched": None, "isSearching": False, "has_more": True, "after": 199991}
    assert said["second"]["lines"] == [199999] and said["second"]["matched"] is None
    assert said["shown"] == [[0, 4096, 195904, True], [0, 8192, 191808, True]] and said["last"] == [
        2, 200000, 0, False]


@pytest.mark.skipif(not shutil.which("node"), reason="no node to run the page's code")
def test_the_page_reads_each_answer_as_the_server_does(tmp_path):
    """answer.js over the cases of text/answer, which the unit tests read too."""
    cases = json.loads((support.ROOT / "tests/unit/text/answer/cases.json").read_text())
    (tmp_path / "answer.mjs").write_text(
        (support.ROOT / "src/service/pages/web/answer.js").read_text())
    (tmp_path / "cases.json").write_text(json.dumps([case["body"] for case in cases]))
    (tmp_path / "try.mjs").write_text("""
        import fs from "node:fs";
        import {answerOf, saidBy} from "./answer.mjs";
        const bodies = JSON.parse(fs.readFileSync(new URL("cases.json", import.meta.url)));
        console.log(JSON.stringify(
          bodies.map(body => [saidBy(body), answerOf({response: {body}})])));
    """)
    said = json.loads(
        subprocess.run(["node", tmp_path / "try.mjs"], capture_output=True, text=True,
                       check=True).stdout)
    assert len(said) == len(cases) > 40
    for case, (by, answer) in zip(cases, said, strict=True):
        wanted = (case["kind"], case["text"], case.get("shown",
                                                       case["text"]), case.get("thought", ""))
        assert (by["kind"], by["text"], by["shown"], by["thought"]) == wanted, case["id"]
        assert answer["isRefusal"] == (case["kind"] == "refusal"), case["id"]
        assert answer["text"] == (json.dumps(case["body"], separators=(",", ":"))
                                  if case["kind"] == "nothing" else by["shown"]), case["id"]


def test_a_page_has_the_lines_as_they_were_published(ended):
    rows, page = ended.pages()
    assert page["matched"] == LINES and page["indexed"] == page["lines"] == LINES
    for row, (number, fields, result) in zip(rows, ended.rows, strict=True):
        assert (row["line"], row["custom_id"], row["result"]) == (number, result["custom_id"],
                                                                  result)
        shown = {name: value for name, value in fields.items() if name != ".custom_id"}
        assert row["fields"] == shown


def test_a_line_has_its_request_and_its_result(ended):
    for number in (1, 2, 16, LINES):
        line = ended.get(f"lines/{number}")
        wanted = ended.rows[number - 1]
        assert line == {
            "object": "batch.line", "line": number, "custom_id": wanted[2]["custom_id"],
            "request": ended.requests[number - 1], "result": wanted[2]}
    assert ended.get(f"lines/{LINES + 1}", status=404)["error"]["param"] == "line"
    for bad in ("0", "-1", "x", "1.5"):
        assert ended.get(f"lines/{bad}", status=400)["error"]["param"] == "line"


BAD = [("filter", "score"), ("filter", "score:eq"), ("filter", "score:like:3"),
       ("filter", "score:is:5"), ("filter", ".unknown:eq:3"), ("filter", ":eq:3"),
       ("filter", "score:eq:%2"), ("filter", ["score:ge:1"] * 17), ("sort", ""), ("sort", "-"),
       ("sort", ".unknown"), ("sort", "%zz"), ("limit", "0"), ("limit", "1001"), ("limit", "x"),
       ("after", "x"), ("after", "0"), ("after", "3.q"), ("after", "3.n12"),
       ("after", "99999999999"), ("q", "x" * 1025)]


@pytest.mark.parametrize("name,value", BAD)
def test_a_bad_parameter_is_refused_by_its_name(ended, name, value):
    assert ended.get("answers", status=400, **{name: value})["error"]["param"] == name


def test_a_cursor_of_another_order_is_refused(ended):
    after = ended.get("answers", sort="score", limit=2)["after"]
    assert ended.get("answers", status=400, after=after)["error"]["param"] == "after"


def test_an_unknown_batch_is_not_found(server):
    for path in ("answers", "answers/fields", "lines/1"):
        Answers(server, "batch_0123456789abcdef0123456789abcdef").get(path, status=404)


def test_a_running_batch_is_followed_and_its_pages_stay_stable(server):
    """Lines come while pages are taken: a page holds rows that fit, and no line comes twice over
    all pages of one order."""
    requests = requests_of(2, 200)
    for request in requests:
        request["body"].setdefault("echo", {})["each_ms"] = 5
    answers = Answers(server, server.create(support.jsonl(requests))["id"])
    seen, after, partial = [], {}, 0
    while len(seen) < 200:
        page = answers.get("answers", limit=10, **after)
        partial += page["indexed"] < 200
        seen += [row["line"] for row in page["data"]]
        if page["after"]:
            after = {"after": page["after"]}
        if not page["has_more"] and server.batch(
                answers.batch_id)["status"] in support.TERMINAL and page["indexed"] == 200:
            break
    assert len(seen) == len(set(seen)) and seen == sorted(seen)
    answers.lines = 200
    answers.fields()
    rows = wanted_rows(requests, server.results(server.wait(answers.batch_id)))
    for name, op, value in FILTERS:
        wanted = [number for number, fields, _ in rows if fits(fields, name, op, value)]
        assert answers.numbers(filter=written(name, op, value)) == wanted, (name, op, value)


def test_a_line_without_a_result_has_its_request(server):
    requests = [support.request("a", "first"), support.request("b", "second", echo={"hang": True})]
    answers = Answers(server, server.create(support.jsonl(requests))["id"])
    support.until(lambda: answers.get("answers")["indexed"] == 1)
    line = answers.get("lines/2")
    assert line["request"] == requests[1] and line["result"] is None and line["custom_id"] == "b"
    assert [row["line"] for row in answers.get("answers")["data"]] == [1]
    server.json("POST", f"/v1/batches/{answers.batch_id}/cancel")
    server.wait(answers.batch_id)
    answers.lines = 2
    fields = answers.fields()
    assert {value["value"] for value in fields[".outcome"]["values"]} == {"stop", "batch_cancelled"}
    assert answers.numbers(filter=".outcome:eq:batch_cancelled") == [2]


def test_results_that_were_deleted_are_not_found(server):
    batch = server.wait(server.create(support.jsonl(requests_of(3, 20)))["id"])
    answers = Answers(server, batch["id"])
    answers.lines = 20
    answers.fields()
    after = answers.get("answers", limit=5)["after"]
    for key in ("output_file_id", "error_file_id"):
        if batch[key]:
            server.json("DELETE", f"/v1/files/{batch[key]}")
    assert "no longer available" in answers.get("answers", after=after,
                                                status=404)["error"]["message"]
    assert answers.get("lines/1")["result"] is None
    server.json("DELETE", f"/v1/files/{batch['input_file_id']}")
    assert answers.get("lines/1")["request"] is None


def test_an_index_is_made_again_after_a_kill_and_a_cursor_goes_on(tmp_path):
    requests = requests_of(4, 150)
    for request in requests:
        request["body"].setdefault("echo", {})["each_ms"] = 10
    state = tmp_path / "state"
    with support.serving(state, "--model", "smollm2=echo") as server:
        answers = Answers(server, server.create(support.jsonl(requests))["id"])
        support.until(lambda: answers.get("answers")["indexed"] >= 40)
        first = answers.get("answers", sort=".custom_id", limit=5)
        server.kill()
    with support.serving(state, "--model", "smollm2=echo") as server:
        answers = Answers(server, answers.batch_id)
        rows = wanted_rows(requests, server.results(server.wait(answers.batch_id)))
        answers.lines = len(rows)
        answers.fields()
        behind = sorted((row[1][".custom_id"]
                         for row in rows
                         if row[1][".custom_id"] > first["data"][-1]["custom_id"]))
        got = [
            row["custom_id"] for row in answers.get(
                "answers", sort=".custom_id", limit=1000, after=first["after"])["data"]]
        assert got == behind
        for name, op, value in FILTERS:
            wanted = [number for number, fields, _ in rows if fits(fields, name, op, value)]
            assert answers.numbers(filter=written(name, op, value)) == wanted, (name, op, value)
        assert server.stop() == 0
    support.fsck(state)
    names = {path.name for path in state.glob("batches/*/*")}
    assert names == {"order.idx"}, "the index leaves nothing in the state directory"


HOSTILE = {
    "a million names": "{" + ",".join(f'"f{number}":{number}' for number in range(100_000)) + "}",
    "deep": '{"a":' * 120 + "1" + "}" * 120, "a long name": json.dumps({
        "n" * 100_000: 1}), "a long text": json.dumps({"t": "x" * 10_000_000}),
    "cut": '{"a": 1, "b": [1, {"c": ', "markup": json.dumps({
        "<script>alert(1)</script>": "</script><img src=x onerror=alert(1)>",
        "rtl": "\u202egnp.exe", "nul": "a\u0000b"}), "names of the line's own fields": json.dumps({
            ".status": 1, ".line": 2, "": {"status": 3}, "a": {"": 4}}),
    "numbers": '{"big": 1e308, "huge": 1e999, "tiny": 1e-320, "minus": -0.0, "digits": 0.1234567890123456789012345678901234567890}',
    "equal names": '{"a": 1, "a": "two"}'}


def test_hostile_answers_have_rows_and_bounded_answers(server):
    requests = [support.request(name, text) for name, text in HOSTILE.items()] + [
        support.request("x" * 300, "{}"),
        support.request("ü\u2028", "{}")]
    batch = server.wait(server.create(support.jsonl(requests))["id"])
    assert batch["request_counts"]["completed"] == len(requests)
    answers = Answers(server, batch["id"])
    answers.lines = len(requests)
    fields = answers.fields()
    assert len(fields) <= 64 and answers.get("answers/fields")["left_out"] > 0
    rows, page = answers.pages()
    assert [row["line"] for row in rows] == list(range(1, len(requests) + 1))
    by_id = {row["custom_id"]: row for row in rows}
    status, data = server.call("GET", f"/v1/batches/{batch['id']}/answers")
    assert status == 200 and len(data) < 6_000_000
    long = by_id["a long text"]
    assert long["result"] is None and long["result_bytes"] > 10_000_000
    assert len(
        answers.get(f"lines/{long['line']}")["result"]["response"]["body"]["choices"][0]["message"]
        ["content"]) > 10_000_000
    assert by_id["markup"]["fields"][
        "<script>alert(1)</script>"] == "</script><img src=x onerror=alert(1)>"
    assert by_id["names of the line's own fields"]["fields"][".status"] == 200
    assert answers.numbers(filter="t:has:xxx") == [long["line"]]
    assert "x" * 300 in by_id and "ü\u2028" in by_id
    assert answers.numbers(filter=f".custom_id:eq:{'x' * 300}") == [len(requests) - 1]


def test_two_readers_at_once_get_the_same(ended):
    wanted = ended.numbers(sort="-score", limit=7)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: ended.numbers(sort="-score", limit=7), range(8)):
            assert got == wanted
