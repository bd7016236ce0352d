# SPDX-License-Identifier: Apache-2.0
"""`quern table`: requests of a table, and a table of requests and results in any order."""
import csv, io, random

import pytest

import support, tables


def made(folder, *arguments):
    return support.quern("table", *arguments, "--overwrite", cwd=folder)


def test_a_table_goes_through_a_server_and_back(tmp_path):
    """The server's part is played by quern run; its results are shuffled and in two files, as some
    servers give them."""
    rows = list(tables.trap_rows(300, seed=9))
    tables.write(tmp_path / "in.csv", rows)
    command = tables.command(tmp_path, "in.csv", "requests.jsonl")
    done = support.quern("table", tmp_path / "in.csv", *command[4:-2])
    assert done.returncode == 0, done.stderr
    assert support.quern("run", "-i", tmp_path / "requests.jsonl", "-o", tmp_path / "results.jsonl",
                         "--model", "smollm2=echo").returncode == 0
    lines = (tmp_path / "results.jsonl").read_bytes().splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines[:100]))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines[100:]).rstrip(b"\n"))
    done = made(tmp_path, "requests.jsonl", "a.jsonl", "b.jsonl", "-o", "out.csv")
    assert done.returncode == 0, done.stderr
    assert tables.read(tmp_path / "out.csv") == list(tables.expected(rows))
    done = made(tmp_path, "requests.jsonl", "a.jsonl", "-o", "out.tsv", "--token-columns")
    found = tables.read(tmp_path / "out.tsv", "\t")
    assert done.returncode == 1 and "200 requests have no result" in done.stderr
    assert len(found) == 301 and sum(row[9] == "no_result: No file of results has this line."
                                     for row in found) == 200


@pytest.mark.parametrize("arguments,status,said", [
    (["in.csv", "-o", "r.jsonl"], 2, "--prompt F.jinja makes requests"),
    (["in.csv", "--prompt", "p.jinja", "-o", "r.csv"], 2, "is the name of a table"),
    (["in.csv", "x.jsonl", "--prompt", "p.jinja", "-o", "r.jsonl"], 2, "x.jsonl is a second file"),
    (["r.jsonl", "-o", "out.csv"], 2, "RESULTS.jsonl is missing"),
    (["r.jsonl", "r.jsonl", "-o", "out.jsonl"], 2, "ends in .csv"),
    (["r.jsonl", "r.jsonl", "-o", "out.csv", "--limit", "3"], 2, "--limit"),
    (["r.jsonl", "nowhere.jsonl", "-o", "out.csv"], 4, "nowhere.jsonl"),
    (["r.jsonl", "twice.jsonl", "-o", "out.csv"
      ], 3, "twice.jsonl: line 2: an earlier result has its custom_id"),
    (["r.jsonl", "in.csv", "-o", "out.csv"], 3, "in.csv: line 1 has no custom_id"),
    (["in.csv", "--prompt", "p.jinja", "-o", "new.jsonl", "--id", "no"
      ], 3, "there is no column 'no'"), ])
def test_what_cannot_be_is_refused_and_leaves_nothing(tmp_path, arguments, status, said):
    (tmp_path / "in.csv").write_text("id,text\n1,x\n")
    (tmp_path / "p.jinja").write_text("{{ text }}")
    (tmp_path / "r.jsonl").write_bytes(support.jsonl([support.request("a", "x")]))
    (tmp_path / "twice.jsonl").write_text('{"custom_id": "a"}\n{"custom_id": "a"}\n')
    before = sorted(p.name for p in tmp_path.iterdir())
    done = support.quern("table", *arguments, cwd=tmp_path)
    assert done.returncode == status and said in done.stderr, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_file_that_exists_is_replaced_on_request_only(tmp_path):
    (tmp_path / "in.csv").write_text("id,text\n1,x\n")
    (tmp_path / "p.jinja").write_text("{{ text }}")
    (tmp_path / "r.jsonl").write_text("mine\n")
    arguments = ["in.csv", "--prompt", "p.jinja", "-o", "r.jsonl"]
    assert support.quern(
        "table", *arguments,
        cwd=tmp_path).returncode == 7 and (tmp_path / "r.jsonl").read_text() == "mine\n"
    assert made(
        tmp_path, *
        arguments).returncode == 0 and '"content":"x"' in (tmp_path / "r.jsonl").read_text()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    yield from support.server_of_session(tmp_path_factory, "tables", "--model", "smollm2=echo")


def test_a_batch_of_a_server_becomes_a_table(server, tmp_path):
    rows = list(tables.trap_rows(200, seed=3))
    tables.write(tmp_path / "in.csv", rows)
    assert support.quern("table", tmp_path / "in.csv",
                         *tables.command(tmp_path, "in.csv",
                                         "requests.jsonl")[4:-2]).returncode == 0
    batch = server.wait(server.create((tmp_path / "requests.jsonl").read_bytes())["id"])
    where = ["--base-url", server.url]
    done = support.quern("results", batch["id"], "-o", tmp_path / "out.csv", *where)
    assert done.returncode == 0, done.stderr
    assert tables.read(tmp_path / "out.csv") == list(tables.expected(rows))
    done = support.quern("results", batch["id"], "--csv", *where)
    assert done.returncode == 0 and done.stdout.encode() != b"" and done.stdout.startswith(
        "id,first name,text,")
    done = support.quern("results", batch["id"], "--tsv", "-o", tmp_path / "named", *where)
    assert done.returncode == 0 and tables.read(tmp_path / "named", "\t") == list(
        tables.expected(rows))
    assert support.quern("results", batch["id"], "-o", tmp_path / "out.csv", *where).returncode == 7
    assert support.quern("results", batch["id"], "-o", tmp_path / "out.csv", "--overwrite",
                         *where).returncode == 0
    assert support.quern("results", batch["id"], "--excel-safe", *where).returncode == 2
    assert support.quern("results", "batch_none", "-o", tmp_path / "none.csv",
                         *where).returncode == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "in.csv", "named", "out.csv", "prompt.jinja", "requests.jsonl", "schema.json"]


def test_a_schema_makes_columns_of_answers_to_any_requests(tmp_path):
    """`quern results --schema` and `quern table --schema`, for lines that no table made."""
    texts = ['{"score": 7, "why": "so"}', "no object"]
    lines = [support.request(f"r{i}", text) for i, text in enumerate(texts)]
    schema = tmp_path / "schema.json"
    schema.write_text('\ufeff{"properties": {"score": {"type": "integer"}, "why": {}}}')
    (tmp_path / "in.jsonl").write_bytes(support.jsonl(lines))
    (tmp_path / "empty.json").write_text("{}")
    with support.serving(tmp_path / "state", "--model", "smollm2=echo") as server:
        batch = server.wait(server.create(support.jsonl(lines))["id"])["id"]
        results = ("results", batch, "--base-url", server.url)
        table = support.quern(*results, "--csv", "--schema", schema)
        head, first, second = csv.reader(io.StringIO(table.stdout))
        assert head == ["custom_id", "score", "why", "error", "finish_reason"]
        assert first == ["r0", "7", "so", "", "stop"]
        assert second[:3] == ["r1", "", ""] and "no object" in second[3]
        assert next(csv.reader(io.StringIO(support.quern(*results, "--csv").stdout))) == [
            "custom_id", "answer", "error", "finish_reason"]
        for words, said in ((("--schema", schema), "is about tables"), (
            ("--csv", "--schema", tmp_path / "empty.json"), "no properties"), (
                ("--csv", "--schema", "/nowhere"), "/nowhere")):
            refused = support.quern(*results, *words)
            assert refused.returncode != 0 and said in refused.stderr, refused
        support.quern(*results, "-o", tmp_path / "out.jsonl")
    joined = support.quern("table", tmp_path / "in.jsonl", tmp_path / "out.jsonl", "-o",
                           tmp_path / "joined.csv", "--schema", schema)
    assert joined.returncode == 0 and (tmp_path / "joined.csv").read_text() == table.stdout
