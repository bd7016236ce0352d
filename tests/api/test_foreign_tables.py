# SPDX-License-Identifier: Apache-2.0
"""Tables, side files and names as other programs leave them: endings in capitals, byte-order marks,
`sep=;`, index columns, ids of 64 bits, later members."""
import csv, json, os, subprocess

import pytest

import support

MARK = b"\xef\xbb\xbf"


def run(folder, table, *arguments, name="in.csv", out="out.csv", prompt=b"{{ text }}"):
    (folder / name).write_bytes(table)
    (folder / "p.jinja").write_bytes(prompt)
    return support.quern("run",
                         "-i",
                         name,
                         "-o",
                         out,
                         "--prompt",
                         "p.jinja",
                         "--model",
                         "smollm2=echo",
                         "-q",
                         *arguments,
                         cwd=folder)


def table(path, delimiter=","):
    return list(csv.reader(open(path, newline="", encoding="utf-8"), delimiter=delimiter))


@pytest.mark.parametrize("name,out,rows", [("IN.CSV", "OUT.CSV", b"text\na\n"),
                                           ("In.Tsv", "out.TSV", b"text\na\n"),
                                           ("in.JSONL", "out.Csv", b'{"text": "a"}\n')])
def test_endings_in_capitals_are_endings(tmp_path, name, out, rows):
    done = run(tmp_path, rows, name=name, out=out)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / out).read_text().splitlines()[0].replace(
        "\t", ",") == "text,answer,error,finish_reason"


def test_side_files_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "s.jinja").write_bytes(MARK + b"Be short.")
    (tmp_path /
     "s.json").write_bytes(MARK + b'{"type": "object", "properties": {"text": {"type": "string"}}}')
    (tmp_path / "b.json").write_bytes(MARK + b'{"seed": 7}')
    (tmp_path / "in.csv").write_bytes(MARK + b"text\na\n")
    (tmp_path / "p.jinja").write_bytes(MARK + b"{{ text }}")
    done = support.quern("table",
                         "in.csv",
                         "--prompt",
                         "p.jinja",
                         "--system",
                         "s.jinja",
                         "--schema",
                         "s.json",
                         "--body",
                         "b.json",
                         "-o",
                         "r.jsonl",
                         cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    body = json.loads((tmp_path / "r.jsonl").read_text())["body"]
    assert [message["content"] for message in body["messages"]] == [
        "Be short.", "a"] and body["seed"] == 7 and "\ufeff" not in json.dumps(body,
                                                                               ensure_ascii=False)
    (tmp_path / "config").write_bytes(MARK + b"log-level = error\n")
    done = support.quern("config", "check", "--config", tmp_path / "config")
    assert done.returncode == 0, done.stderr


def test_a_key_file_may_begin_with_a_byte_order_mark(tmp_path):
    from openai_server import OpenAIServer
    (tmp_path / "key").write_bytes(MARK + b"sk-secret\r\n")
    (tmp_path / "key").chmod(0o600)
    with OpenAIServer(key="sk-secret") as server:
        done = support.quern("list", "--base-url", server.url, "--api-key-file", tmp_path / "key")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("first,delimiter", [(b"sep=;\r\n", ";"), (MARK + b"sep=;\n", ";"),
                                             (b"SEP=\t\n", "\t"), (b"sep=,\n", ",")])
def test_a_line_that_names_the_separator_is_followed(tmp_path, first, delimiter):
    done = run(tmp_path, first + f"id{delimiter}text\n1{delimiter}\"a{delimiter}b\"\n".encode(),
               "--id", "id")
    assert done.returncode == 0, done.stderr
    assert table(tmp_path / "out.csv") == [["id", "text", "answer", "error", "finish_reason"],
                                           ["1", f"a{delimiter}b", f"a{delimiter}b", "", "stop"]]


def test_lines_are_counted_behind_the_one_that_names_the_separator(tmp_path):
    done = run(tmp_path, b"sep=;\nid;text\n1;a;b\n")
    assert done.returncode == 3 and "line 3, column 3: the row has 3 cells" in done.stderr, done.stderr
    done = run(tmp_path, b"sep=;\nid|text\n1|a\n", "--delimiter", "|")  # the option wins
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("rows,name,advice", [(b"id;text\n1;a\n", "in.csv", "--delimiter ';'"),
                                              (b"id\ttext\n1\ta\n", "in.csv", "--delimiter '\\t'"),
                                              (b"id,text\n1,a\n", "in.tsv", "--delimiter ','")])
def test_a_table_with_another_separator_is_refused_with_the_option(tmp_path, rows, name, advice):
    done = run(tmp_path, rows, name=name, prompt=b"{{ row }}")
    assert done.returncode == 3 and "line 1: the header is one cell" in done.stderr and advice in done.stderr, done.stderr
    assert not (tmp_path / "out.csv").exists()


def test_a_header_of_one_cell_is_taken_if_it_is_quoted_or_its_separator_is_said(tmp_path):
    assert run(tmp_path, b'"a;b"\nx\n', prompt=b"{{ row['a;b'] }}").returncode == 0
    assert run(tmp_path, b"a;b\nx\n", "--delimiter", ",", "--overwrite",
               prompt=b"{{ row['a;b'] }}").returncode == 0
    assert table(tmp_path / "out.csv")[1][:2] == ["x", "x"]


@pytest.mark.parametrize("head", [b",text\n", b'"","text"\n'])
def test_the_index_column_of_pandas_and_r_has_no_name(tmp_path, head):
    done = run(tmp_path, head + b"0,a\n1,b\n", prompt=b"{{ row[''] }} {{ text }}")
    assert done.returncode == 0, done.stderr
    assert table(tmp_path / "out.csv") == [["", "text", "answer", "error", "finish_reason"],
                                           ["0", "a", "0 a", "", "stop"],
                                           ["1", "b", "1 b", "", "stop"]]


def test_members_of_later_rows_are_columns(tmp_path):
    rows = [{"name": "A"}, {"email": "b@x", "name": "B", "tags": [1]}, {"name": "C", "email": None}]
    done = run(tmp_path,
               support.jsonl(rows),
               name="in.jsonl",
               prompt=b"{{ name }} {{ email or 'none' }}")
    assert done.returncode == 0, done.stderr
    assert table(tmp_path / "out.csv") == [[
        "name", "email", "tags", "answer", "error", "finish_reason"],
                                           ["A", "", "", "A none", "", "stop"],
                                           ["B", "b@x", "[1]", "B b@x", "", "stop"],
                                           ["C", "", "", "C none", "", "stop"]]


def test_a_stream_names_the_member_that_comes_too_late(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/quern-parquet").write_text('#!/bin/sh\ncat "$2"\n')
    (tmp_path / "bin/quern-parquet").chmod(0o755)
    (tmp_path / "in.parquet").write_text('{"name": "A"}\n{"name": "B", "email": "b"}\n')
    (tmp_path / "p.jinja").write_text("{{ name }}")
    done = support.quern("run",
                         "-i",
                         "in.parquet",
                         "-o",
                         "out.csv",
                         "--prompt",
                         "p.jinja",
                         "--model",
                         "smollm2=echo",
                         cwd=tmp_path,
                         env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    assert done.returncode == 3 and "line 2: the row has the member 'email'" in done.stderr, done.stderr


def test_numbers_stand_as_they_are(tmp_path):
    rows = b'{"id": 12345678901234567890, "x": {"big": [-9223372036854775809, 1e400, 0.10]}, "text": "12345678901234567890 \\" 1e400"}\n'
    done = run(tmp_path,
               rows,
               "--id",
               "id",
               name="in.jsonl",
               prompt=b"{{ id }} {{ x.big[0] }} {{ x.big[1] }} {{ x.big[2] }} {{ text }}")
    assert done.returncode == 0, done.stderr
    row, = table(tmp_path / "out.csv")[1:]
    assert row[:3] == [
        "12345678901234567890", '{"big": [-9223372036854775809, 1e400, 0.10]}',
        '12345678901234567890 " 1e400']
    assert row[
        3] == '12345678901234567890 -9223372036854775809 1e400 0.1 12345678901234567890 " 1e400'


@pytest.mark.parametrize("line", [b"\f\n", b"\v\n", b"\f%s\n", b"%s\v\n"])
def test_a_form_feed_is_no_space_for_run_nor_for_preflight(tmp_path, line):
    one, two = (support.jsonl([support.request(name, name)]).strip() for name in "ab")
    (tmp_path / "in.jsonl").write_bytes(one + b"\n" + (line % two if b"%s" in line else line) +
                                        (b"" if b"%s" in line else two + b"\n"))
    ran = support.quern("run",
                        "-i",
                        "in.jsonl",
                        "-o",
                        "out.jsonl",
                        "--model",
                        "smollm2=echo",
                        "-q",
                        cwd=tmp_path)
    checked = support.quern("preflight", "in.jsonl", "--model", "smollm2=echo", cwd=tmp_path)
    assert ran.returncode == 3 and "line 2: invalid_json_line" in ran.stderr, ran.stderr
    assert "line 2 gets an error" in checked.stdout + checked.stderr, checked


# --- standard input and output ---

LINES = support.jsonl([support.request(name, f"text of {name}") for name in "abc"])


def test_a_run_reads_standard_input_and_writes_standard_output(tmp_path):
    command = [support.BINARY, "run", "-i", "-", "-o", "-", "--model", "smollm2=echo", "-q"]
    done = subprocess.run(command, input=LINES, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["custom_id"] for line in done.stdout.splitlines()] == list("abc")
    assert not list(tmp_path.iterdir())
    bad = subprocess.run(command, input=b"{}\n", capture_output=True, cwd=tmp_path)
    assert bad.returncode == 3 and b"line 1" in bad.stderr and not list(tmp_path.iterdir())


def test_a_killed_run_goes_on_with_the_same_standard_input_only(tmp_path):
    command = [support.BINARY, "run", "-i", "-", "-o", "-", "--model", "smollm2=echo", "-q"]
    died = subprocess.run(command,
                          input=LINES,
                          capture_output=True,
                          cwd=tmp_path,
                          env={**os.environ, "QUERN_FAULT": "rename:2:KILL"})
    assert died.returncode == -9 and list(tmp_path.iterdir())
    other = subprocess.run(command,
                           input=LINES.replace(b"text of a", b"TEXT"),
                           capture_output=True,
                           cwd=tmp_path)
    assert other.returncode == 7 and other.stdout == b"", other.stderr
    done = subprocess.run(command, input=LINES, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0 and len(
        done.stdout.splitlines()) == 3 and not list(tmp_path.iterdir()), done.stderr


def test_results_stay_if_standard_output_closes(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(LINES)
    command = [support.BINARY, "run", "-i", "in.jsonl", "-o", "-", "--model", "smollm2=echo", "-q"]
    with open("/dev/full", "wb") as full:
        broken = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path)
    assert broken.returncode != 0 and b"the same command sends them again" in broken.stderr, broken.stderr
    done = subprocess.run(command, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3 and [
        path.name for path in tmp_path.iterdir()] == ["in.jsonl"], done.stderr


@pytest.mark.parametrize("arguments,said", [
    (["run", "-i", "in.jsonl", "-o", "-", "--json"], "both print on standard output"),
    (["run", "-i", "-", "-o", "out.csv", "--prompt", "p.jinja"], "does not show the kind"),
])
def test_a_stream_that_means_nothing_is_refused(tmp_path, arguments, said):
    done = support.quern(*arguments, "--model", "smollm2=echo", cwd=tmp_path, input="")
    assert done.returncode == 2 and said in done.stderr and not list(
        tmp_path.iterdir()), done.stderr


def test_requests_of_a_table_go_to_standard_output(tmp_path):
    (tmp_path / "in.csv").write_text("text\na\n")
    (tmp_path / "p.jinja").write_text("{{ text }}")
    done = support.quern("table", "in.csv", "--prompt", "p.jinja", "-o", "-", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["row"] == {
        "text": "a"} and not (tmp_path / "-").exists(), done.stderr
