# SPDX-License-Identifier: Apache-2.0
"""Tables with every trap of RFC 4180 and of encodings, and a run over them that is killed again and
again."""
import csv, os, random, signal, subprocess

import support

COLUMNS = ["id", "first name", "text", "größe", "1st", "row"]
PIECES = [
    "", " ", ",", ";", "\t", '"', '""', "\n", "\r\n", "\r", "=1+1", "-5", "@x", "'", "\\", "\\n",
    "\ufeff", "é", "e\u0301", "日本語", "😀", "\u2028", "\u0085", "\u200b", "NULL", "null", "NaN",
    "#N/A", "0012", "1e5", "{{ id }}", "{% raw %}", "</s>", "plain words", "a", "\x01", "\x7f",
    "\U0010ffff", "| pipe", "  trailing  "]
PROMPT = '{{ {"text": text, "size": row["größe"], "nested": {"a": [1, 2.50]}} | tojson }}'
SCHEMA = '{"type":"object","properties":{"text":{"type":"string"},"size":{"type":"string"},"nested":{"type":"object"}},"required":["text"]}'


def trap_rows(count, seed=0):
    """Rows of texts; no row is empty in all cells, since the id never is."""
    draw = random.Random(seed)
    for number in range(1, count + 1):
        yield [f"id {number}"] + [
            "".join(draw.choices(PIECES, k=draw.choice((0, 1, 1, 2, 5)))) for _ in COLUMNS[1:]]


def write(path, rows, ends="\r\n", mark=True, delimiter=","):
    """Writes the table as Python's csv does, with quotes around a cell where they must be, and now
    and then where they need not."""
    with open(path, "w", encoding="utf-8-sig" if mark else "utf-8", newline="") as file:
        quoting = [
            csv.writer(file, quoting=how, lineterminator=ends, delimiter=delimiter)
            for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)]
        quoting[0].writerow(COLUMNS)
        for number, row in enumerate(rows):
            # Before Python 3.13 csv.writer gives no quotes to ends of lines other than its own.
            quoting[number % 3 == 0
                    or any(end in cell for cell in row for end in "\r\n")].writerow(row)


def read(path, delimiter=","):
    csv.field_size_limit(1 << 30)
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter=delimiter, strict=True))


def expected(rows):
    """The header and the rows that a run with PROMPT, SCHEMA and the echo worker gives."""
    yield COLUMNS + ["answer_text", "size", "nested", "error", "finish_reason"]
    for row in rows:
        yield row + [row[2], row[3], '{"a": [1, 2.5]}', "", "stop"]


def run_killed(command, first=1, growth=1.5):
    """Gives the same command until it ends well, killing it at its N-th call to the disk, with N
    growing. Returns how many calls died."""
    died, at = 0, first
    while True:
        done = subprocess.run(command,
                              env={**os.environ, "QUERN_FAULT": f"any:{int(at)}:KILL"},
                              stdin=subprocess.DEVNULL,
                              capture_output=True)
        assert done.returncode in (0, -signal.SIGKILL), (at, done.stderr)
        if done.returncode == 0:
            return died
        died, at = died + 1, at * growth + 1


def command(folder, source, result, *more):
    (folder / "prompt.jinja").write_text(PROMPT)
    (folder / "schema.json").write_text(SCHEMA)
    return [
        support.BINARY, "run", "-i", folder / source, "-o", folder / result, "--prompt",
        folder / "prompt.jinja", "--schema", folder / "schema.json", "--id", "id", "--model",
        "smollm2=echo", *more]
