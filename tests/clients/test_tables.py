# SPDX-License-Identifier: Apache-2.0
"""A table with every trap in and out of `quern run` under kills, read again by Python's csv, by pandas and by DuckDB: all equal.

QUERN_ROWS (default 20,000) is the count of rows: 1,000,000 are the proof that issue 13 asks for, in some minutes."""
import itertools, os

import duckdb, pandas, pytest

import tables

ROWS = int(os.environ.get("QUERN_ROWS", "20000"))


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    tables.write(folder / "in.csv", tables.trap_rows(ROWS))
    assert tables.run_killed(tables.command(folder, "in.csv", "out.csv")) > 5
    return folder / "out.csv"


def judge(found):
    """Compares row by row, so that a million rows are never two lists at once."""
    wanted = tables.expected(tables.trap_rows(ROWS))
    for number, (row, want) in enumerate(itertools.zip_longest(found, wanted)):
        assert row is not None and list(row) == want, f"row {number}"


def test_csv_reads_what_went_in(scored):
    judge(tables.read(scored))


def test_pandas_reads_what_went_in(scored):
    frame = pandas.read_csv(scored, dtype=str, keep_default_na=False, encoding="utf-8", lineterminator="\n")
    judge(itertools.chain([list(frame.columns)], frame.itertuples(index=False, name=None)))


def test_duckdb_reads_what_went_in(scored):
    table = duckdb.connect().execute("SELECT * FROM read_csv(?, all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"', strict_mode = true, "
                                     "max_line_size = 100000000)", [str(scored)])
    judge(itertools.chain([[column[0] for column in table.description]], ([cell or "" for cell in row] for row in rows_of(table))))


def rows_of(table):
    while rows := table.fetchmany(10000):
        yield from rows
