# SPDX-License-Identifier: Apache-2.0
"""`quern run` from tables and into tables. The echo worker answers with the prompt."""
import json, os

import pytest

import support, tables


def run(folder, table, *arguments, name="in.csv", out="out.csv", prompt="{{ text }}"):
    (folder / name).write_bytes(table)
    (folder / "p.jinja").write_text(prompt)
    return support.quern("run", "-i", folder / name, "-o", folder / out, "--prompt",
                         folder / "p.jinja", "--model", "smollm2=echo", *arguments)


@pytest.mark.parametrize("ends", ["\r\n", "\n", "\r"])
@pytest.mark.parametrize("name,delimiter,mark", [("csv", ",", True), ("tsv", "\t", False),
                                                 ("csv", ";", False)])
def test_every_trap_comes_back(tmp_path, ends, name, delimiter, mark):
    rows = list(tables.trap_rows(300, seed=len(ends)))
    tables.write(tmp_path / f"in.{name}", rows, ends, mark, delimiter)
    done = support.quern(*tables.command(tmp_path, f"in.{name}", f"out.{name}",
                                         *(["--delimiter", ";"] if delimiter == ";" else []))[1:])
    assert done.returncode == 0, done.stderr
    assert tables.read(tmp_path / f"out.{name}", delimiter) == list(tables.expected(rows))
    assert not (tmp_path / f"out.{name}.quern").exists()


def test_a_null_is_told_from_an_empty_text(tmp_path):
    done = run(tmp_path, b'id,text,note\n1,a,\n2,b,""\n', "--token-columns")
    assert done.returncode == 0, done.stderr
    cells = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    assert cells[0] == [
        "id", "text", "note", "answer", "error", "finish_reason", "prompt_tokens",
        "completion_tokens"]
    assert [row[:6] for row in cells[1:]] == [["1", "a", "", "a", "", "stop"],
                                              ["2", "b", '""', "b", "", "stop"]] and all(
                                                  int(row[7]) for row in cells[1:])


def test_the_first_rows_only_and_into_jsonl(tmp_path):
    done = run(tmp_path, b"id,text\nx,a\ny,b\nz,c\n", "--limit", "2", "--id", "id", out="out.jsonl")
    assert done.returncode == 0, done.stderr
    assert [
        json.loads(line)["custom_id"]
        for line in (tmp_path / "out.jsonl").read_text().splitlines()] == ["x", "y"]


def test_requests_become_a_table_too(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(
        support.jsonl([support.request("=a", "-1+2"),
                       support.request("b", "x,\ny")]))
    done = support.quern("run", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.csv", "--model",
                         "smollm2=echo", "--excel-safe", "--limit", "2")
    assert done.returncode == 0, done.stderr
    assert tables.read(tmp_path / "out.csv") == [["custom_id", "answer", "error", "finish_reason"],
                                                 ["'=a", "'-1+2", "", "stop"],
                                                 ["b", "x,\ny", "", "stop"]]


def test_a_failed_row_has_its_error_and_keeps_its_cells(tmp_path):
    done = run(tmp_path, b"id,text\n1,a\n2,b\n", "--body", '{"echo": {"status": 418}}')
    found = tables.read(tmp_path / "out.csv")
    assert done.returncode == 1, done.stderr
    assert [row[:3] for row in found[1:]] == [["1", "a", ""], ["2", "b", ""]], found
    assert all("told to by the request" in row[3] for row in found[1:]), found


@pytest.mark.parametrize("table,said", [
    (b"", "no header"),
    (b"id,text\n", "no rows"),
    (b"id,,text\n1,2,3\n", "line 1, column 2 has no name"),
    (b"id,text,id\n1,2,3\n", "line 1, column 3: 'id' is the name of column 1 already"),
    (b"id,text\n1,\"a\nb\"\n2\n", "line 4, column 2 ('text'): the row has 1 cells, the header 2"),
    (b"id,text\n1,2,3\n", "line 2, column 3: the row has 3 cells, the header 2"),
    (b"id,text\n1,caf\xe9\n", "line 2, byte 6: 0xE9 is not UTF-8"),
    (b"id,text\n1,a\0\n", "line 2, byte 4: 0x00 is no text"),
    ("id,text\n1,2\n".encode("utf-16"), "is UTF-16"),
    (b"id,text\n1,5\" pipe\n", "line 2, column 2: a quote inside a cell"),
    (b"id,text\n1,\"open\n", "line 2, column 2: a quote opens the cell and none closes it"),
    (b"id,name\n1,x\n", "line 2 of the table: the prompt template: line 1: 'text' is undefined"),
    (b"id,text\n1,a\n1,b\n", "row 2: duplicate_custom_id"),
    (b"id,text\n1,a\n,b\n", "line 3 of the table: column 'id' is empty"),
    (b"no,text\n1,a\n", "there is no column 'id'"),
], ids=range(15))
def test_a_table_that_is_wrong_is_refused_before_anything_runs(tmp_path, table, said):
    done = run(tmp_path, table, "--id", "id")
    assert done.returncode == 3 and said in done.stderr, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv", "p.jinja"]


@pytest.mark.parametrize("arguments,said", [
    (["-i", "in.csv", "-o", "out.csv"], "--prompt F.jinja makes requests of its rows"),
    (["-i", "in.txt", "-o", "out.csv", "--prompt", "p"], "ends in none of .csv"),
    (["-i", "in.jsonl", "-o", "out.csv", "--schema", "s"], "--schema is about the rows of a table"),
    (["-i", "in.csv", "-o", "out.jsonl", "--prompt", "p", "--excel-safe"], "out.jsonl is none"),
    (["-i", "in.csv", "-o", "out.csv", "--prompt", "p", "--delimiter", "ab"], "--delimiter"),
])
def test_options_that_mean_nothing_together_are_refused(arguments, said):
    done = support.quern("run", *arguments, "--model", "smollm2=echo")
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_another_table_prompt_or_schema_is_another_input(tmp_path):
    """The run that was killed goes on with its own table only; a change of the table, of a template
    or of an option is seen."""
    rows = list(tables.trap_rows(50))
    tables.write(tmp_path / "in.csv", rows)
    command = tables.command(tmp_path, "in.csv", "out.csv")
    prompt, table = tmp_path / "prompt.jinja", tmp_path / "in.csv"
    died = support.quern(*command[1:], env={**os.environ, "QUERN_FAULT": "rename:2:KILL"})
    assert died.returncode == -9 and (tmp_path / "out.csv.quern").exists(), died.stderr
    before = table.read_bytes(), prompt.read_text()
    table.write_bytes(before[0] + b"id new,,,,,\r\n")
    assert support.quern(*command[1:]).returncode == 7
    table.write_bytes(before[0].replace(b"id 7", b"id x7", 1))
    assert support.quern(*command[1:]).returncode == 7
    table.write_bytes(before[0])
    prompt.write_text(before[1] + "!")
    assert support.quern(*command[1:]).returncode == 7
    prompt.write_text(before[1])
    assert support.quern(*command[1:], "--max-tokens", "9").returncode == 7
    done = support.quern(*command[1:])
    assert done.returncode == 0, done.stderr
    assert tables.read(tmp_path / "out.csv") == list(tables.expected(rows))
    assert "nothing is left to do" in support.quern(*command[1:]).stderr
    assert support.quern(*command[1:],
                         "--token-columns").returncode == 7  # another form of the same results


def test_a_run_that_is_killed_at_any_call_loses_no_row(tmp_path):
    rows = list(tables.trap_rows(400, seed=5))
    tables.write(tmp_path / "in.csv", rows)
    assert tables.run_killed(tables.command(tmp_path, "in.csv", "out.csv"), growth=1.2) > 5
    assert tables.read(tmp_path / "out.csv") == list(tables.expected(rows))
