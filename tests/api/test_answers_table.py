# SPDX-License-Identifier: Apache-2.0
"""What the page shows of answers, from the server: values of arrays, histograms that one outlier
does not squeeze, the answers as CSV; and batches by name and state."""
import csv, io, json, urllib.parse, urllib.request

import pytest

import support

TEXTS = ['=HYPERLINK("http://x")', "+1+2", "-5", "@cmd", 'a "b", c\nd', "ünï", "", " x", "1e9"]
COUNT = 60
csv.field_size_limit(1 << 30)


def answer_of(number):
    return {
        "tags": ["red", "blue", "red"] if number % 3 == 0 else ["blue"] if number % 3 == 1 else [],
        "levels": [number % 2, True], "score": 1_000_000 if number == 7 else number,
        "large": 12345678901234567890 + number, "note": TEXTS[number % len(TEXTS)],
        "inner": {"deep": number % 2 == 0}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from support.server_of_session(tmp_path_factory, "tables", "--model", "smollm2=echo")


@pytest.fixture(scope="module")
def batch(server):
    """An ended batch whose last two lines are a text and an error."""
    lines = [
        support.request(f"c-{number}", json.dumps(answer_of(number))) for number in range(COUNT)]
    lines.append(support.request("plain", "=no JSON"))
    lines.append(support.request("bad", "x", echo={"status": 422}))
    made = server.wait(server.create(support.jsonl(lines))["id"])
    support.until(lambda: fields(server, made["id"], "indexed") == COUNT + 2)
    return made["id"]


def get(server, path, **query):
    return server.json("GET", f"{path}?{urllib.parse.urlencode(query, doseq=True)}")


def fields(server, batch, member="data"):
    return get(server, f"/v1/batches/{batch}/answers/fields")[member]


def lines_of(server, batch, *filters):
    page = get(server, f"/v1/batches/{batch}/answers", limit=1000, filter=filters)
    return [row["line"] - 1 for row in page["data"]]


def test_values_in_arrays_are_counted_and_are_filters(server, batch):
    found = {field["name"]: field for field in fields(server, batch)}
    assert found["tags"]["type"] == "array" and found["tags"]["count"] == 40
    assert {value["value"]: value["count"] for value in found["tags"]["values"]} == {
        "red": 20, "blue": 40}
    assert {value["value"]: value["count"] for value in found["levels"]["values"]} == {
        "0": 30, "1": 30, "true": 60}
    assert found["tags.length"]["max"] == 3
    red = [number for number in range(COUNT) if number % 3 == 0]
    assert lines_of(server, batch, "tags:eq:red") == red
    assert lines_of(server, batch, "tags:has:RE") == red
    assert lines_of(server, batch, "tags:ne:red") == [
        number for number in range(COUNT) if number % 3 == 1]
    assert lines_of(server, batch, "levels:eq:1") == list(range(1, COUNT, 2))
    assert lines_of(server, batch, "tags:gt:a") == []
    assert [number for number in lines_of(server, batch, "tags:is:null") if number < COUNT] == [
        number for number in range(COUNT) if number % 3 == 2]
    ordered = get(server, f"/v1/batches/{batch}/answers", limit=1000, sort="tags")["data"]
    assert len(ordered) == COUNT + 2
    seen, after = [], {}
    while True:
        page = get(server, f"/v1/batches/{batch}/answers", limit=7, sort="-tags", **after)
        seen += [row["line"] for row in page["data"]]
        if not page["has_more"]:
            break
        after = {"after": page["after"]}
    assert sorted(seen) == list(range(1, COUNT + 3))


def test_an_outlier_has_a_bar_of_its_own_and_squeezes_none(server, batch):
    found = {field["name"]: field for field in fields(server, batch)}
    shown = found["score"]["histogram"]
    assert (shown["from"], shown["to"]) == (0, 1_000_000) and len(shown["edges"]) == 21
    assert shown["is_clipped_above"] and not shown["is_clipped_below"]
    assert sum(shown["counts"]) == COUNT and shown["counts"][-1] == 1
    assert max(shown["counts"]) <= 5
    for at, number in enumerate(shown["counts"]):
        op = "le" if at == 19 else "lt"
        ends = (f"score:ge:{shown['edges'][at]!r}", f"score:{op}:{shown['edges'][at + 1]!r}")
        assert len(lines_of(server, batch, *ends)) == number, at


def pages_of(server, batch, **query):
    """The answers as CSV, page by page."""
    pages, after = [], {}
    while True:
        text = urllib.parse.urlencode({"format": "csv", **query, **after}, doseq=True)
        url = f"{server.site}/v1/batches/{batch}/answers?{text}"
        with urllib.request.urlopen(url) as response:
            assert response.headers["content-type"] == "text/csv; charset=utf-8"
            pages.append(response.read().decode())
            if response.headers["x-incomplete"] == "false":
                return pages
            after = {"after": response.headers["x-after"]}


def rows_of(pages):
    whole = "".join(pages)
    assert whole.startswith("\ufeff") and whole.count("\ufeff") == 1
    return list(csv.DictReader(io.StringIO(whole[1:], newline="")))


def test_a_filtered_view_is_a_table_in_pages(server, batch):
    rows = rows_of(pages_of(server, batch))
    assert [row["custom_id"] for row in rows] == [f"c-{number}" for number in range(COUNT)] + [
        "plain", "bad"]
    for number in range(COUNT):
        row, answer = rows[number], answer_of(number)
        assert row["large"] == str(answer["large"]) and json.loads(row["tags"]) == answer["tags"]
        assert row["inner.deep"] == json.dumps(answer["inner"]["deep"])
        plain = answer["note"] in ("-5", "1e9")
        wanted = answer["note"] if plain or answer["note"][:1] not in tuple(
            "=+-@") or not answer["note"] else "'" + answer["note"]
        assert row["note"] == wanted and row["answer"] == ""
        assert row[".line"] == str(number + 1) and row[".outcome"] == "stop"
    assert rows[-2]["answer"] == "'=no JSON" and rows[-1]["answer"] and rows[-1]["score"] == ""
    few = pages_of(server, batch, filter="score:lt:10", sort="-score", columns="score,tags",
                   limit=4)
    assert len(few) == 3
    wanted = [number for number in range(9, -1, -1) if number != 7]
    rows = rows_of(few)
    assert [int(row["score"]) for row in rows] == wanted
    assert list(rows[0]) == ["custom_id", "score", "tags", "answer"]
    found = rows_of(pages_of(server, batch, q="no json"))
    assert [row["custom_id"] for row in found] == ["plain"]


def test_a_page_ends_after_a_mebibyte_and_the_next_goes_on(server):
    texts = [f"{number:02}" + "x" * 300_000 for number in range(8)] + ["9" * 3_000_000]
    made = server.wait(
        server.create(support.jsonl([
            support.request(f"l-{number}", text) for number, text in enumerate(texts)]))["id"])
    support.until(lambda: fields(server, made["id"], "indexed") == len(texts))
    pages = pages_of(server, made["id"])
    assert len(pages) >= 3 and all(len(page) < 1_400_000 for page in pages[:-1])
    assert [row["answer"] for row in rows_of(pages)] == texts


def test_wrong_tables_are_refused_by_name(server, batch):
    for query, param in ((("format", "xml"), "format"), (("after", "x.y"), "after")):
        path = f"/v1/batches/{batch}/answers?format=csv&" + urllib.parse.urlencode([query])
        path = path if param == "after" else path.replace("format=csv&", "")
        assert server.json("GET", path, status=400)["error"]["param"] == param
    for wrong in (",".join(f"c{number}" for number in range(69)), "a%25", "x" * 2000):
        path = f"/v1/batches/{batch}/answers?format=csv&columns={wrong}"
        assert server.json("GET", path, status=400)["error"]["param"] == "columns", wrong


def test_batches_are_found_by_name_file_and_state(server, batch):
    made = []
    for number in range(5):
        file = server.upload(support.jsonl([support.request("a", "x")]),
                             filename=f"March-{number}.jsonl")
        made.append(
            server.json(
                "POST", "/v1/batches", {
                    "input_file_id": file["id"], "endpoint": "/v1/chat/completions",
                    "completion_window": "24h", "metadata": {"name": f"Intake {number % 2}"}})["id"])
    for one in made:
        server.wait(one)
    find = lambda **query: [one["id"] for one in get(server, "/v1/batches", **query)["data"]]
    assert find(q="march") == made[::-1] and find(q="MARCH-3") == [made[3]]
    assert find(q="intake 1") == [made[3], made[1]] and find(q=made[2]) == [made[2]]
    assert find(q="nothing of this name") == [] and batch in find(status="completed")
    assert find(q="march", status=["failed", "cancelled"]) == []
    first = get(server, "/v1/batches", q="march", status="completed", limit=3)
    assert first["has_more"] and first["after"] == first["last_id"] == made[2]
    rest = get(server, "/v1/batches", q="march", limit=3, after=first["after"])
    assert [one["id"] for one in rest["data"]] == made[1::-1]
    assert rest["after"] is None and not rest["has_more"]
    assert "after" not in get(server, "/v1/batches")
    assert server.json("GET", "/v1/batches?status=no", status=400)["error"]["param"] == "status"
