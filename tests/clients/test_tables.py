# SPDX-License-Identifier: Apache-2.0
"""A table with every trap in and out of `quern run` under kills, read again by Python's csv, by
pandas and by DuckDB: all equal.

QUERN_ROWS (default 20,000) is the count of rows: 1,000,000 are the proof that issue 13 asks for, in
some minutes."""
import datetime, decimal, itertools, json, os, subprocess, sys, uuid

import duckdb, pandas, pyarrow, pyarrow.parquet, pytest

import support, tables

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
    frame = pandas.read_csv(scored,
                            dtype=str,
                            keep_default_na=False,
                            encoding="utf-8",
                            lineterminator="\n")
    judge(itertools.chain([list(frame.columns)], frame.itertuples(index=False, name=None)))


def test_duckdb_reads_what_went_in(scored):
    table = duckdb.connect().execute(
        "SELECT * FROM read_csv(?, all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"', strict_mode = true, "
        "max_line_size = 100000000)", [str(scored)])
    judge(
        itertools.chain([[column[0] for column in table.description]],
                        ([cell or "" for cell in row] for row in rows_of(table))))


def rows_of(table):
    while rows := table.fetchmany(10000):
        yield from rows


# --- Parquet ---

ARROW = {
    "id": pyarrow.array([1, 2**62, -5]), "unsigned": pyarrow.array(
        [2**64 - 1, None, 3], pyarrow.uint64()), "float": pyarrow.array([0.1,
                                                                         float("inf"), None]),
    "small float": pyarrow.array([0.1, None, 3], pyarrow.float32()), "bool": pyarrow.array([
        True, None, False]), "text": pyarrow.array(["", "x\ny", None]), "date": pyarrow.array([
            datetime.date(2020, 1, 2), None,
            datetime.date(1, 1, 1)]), "nanoseconds": pyarrow.array([1577934245123456789, None, -1],
                                                                   pyarrow.timestamp("ns")),
    "zoned": pyarrow.array([1577934245123456, None, 0], pyarrow.timestamp(
        "us", "UTC")), "time": pyarrow.array([1, None, 86399999999], pyarrow.time64("us")),
    "duration": pyarrow.array([1, 2, None], pyarrow.duration("ms")), "decimal": pyarrow.array(
        [decimal.Decimal("1.10"), None,
         decimal.Decimal("-99999999999999.99")], pyarrow.decimal128(20, 2)), "list": pyarrow.array(
             [[1, 2], None, []], pyarrow.list_(pyarrow.int32())), "struct": pyarrow.array(
                 [{"a": 1, "when": datetime.datetime(2020, 1, 1)}, None, {"a": None, "when": None}],
                 pyarrow.struct([("a", pyarrow.int8()),
                                 ("when", pyarrow.timestamp("us"))])), "dictionary": pyarrow.array([
                                     "a", "b", "a"]).dictionary_encode(), "nothing": pyarrow.array([
                                         None, None, None]), }


def test_a_parquet_table_keeps_its_types(tmp_path):
    helper = tmp_path / "quern-parquet"
    helper.write_text(
        f"#!{sys.executable}\nimport sys; sys.path.insert(0, {str(support.ROOT / 'packaging/python')!r})\nfrom quern.parquet import main; main()\n"
    )
    helper.chmod(0o755)
    pyarrow.parquet.write_table(pyarrow.table(ARROW), tmp_path / "in.parquet")
    (tmp_path / "p.jinja").write_text("{{ {'score': id / 2, 'label': text or '-'} | tojson }}")
    (tmp_path / "s.json").write_text('{"properties": {"score": {}, "label": {}}}')
    done = subprocess.run([
        support.BINARY, "run", "-i", "in.parquet", "-o", "out.parquet", "--prompt", "p.jinja",
        "--schema", "s.json", "--model", "smollm2=echo"],
                          capture_output=True,
                          text=True,
                          cwd=tmp_path,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    before, after = pyarrow.parquet.read_table(tmp_path / "in.parquet"), pyarrow.parquet.read_table(
        tmp_path / "out.parquet")
    for name in ARROW:
        assert after[name].combine_chunks().equals(before[name].combine_chunks()), name
    assert after["score"].to_pylist() == [0.5, 2.0**61, -2.5] and after["label"].to_pylist() == [
        "-", "x\ny", "-"] and after["error"].null_count == 3


def went_through(folder, **columns):
    """The columns as they come back through `quern-parquet rows` and `quern-parquet table --like`,
    and the rows between; or what was said."""
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "in.parquet")
    module = {**os.environ, "PYTHONPATH": str(support.ROOT / "packaging/python")}
    made = subprocess.run([sys.executable, "-m", "quern.parquet", "rows", "in.parquet"],
                          cwd=folder,
                          env=module,
                          capture_output=True,
                          text=True)
    if made.returncode:
        return None, made.stderr
    (folder / "rows.jsonl").write_text(made.stdout)
    subprocess.run([
        sys.executable, "-m", "quern.parquet", "table", "rows.jsonl", "out.parquet", "--like",
        "in.parquet"],
                   cwd=folder,
                   env=module,
                   check=True)
    return pyarrow.parquet.read_table(folder / "out.parquet"), [
        json.loads(line) for line in made.stdout.splitlines()]


def test_times_of_old_zones_come_back(tmp_path):
    """Offsets of old zones have seconds (+00:19:32), which no text of ISO 8601 has: such times are
    written in UTC, others in their zone."""
    amsterdam = pyarrow.array([-2840140800000000, None, 0],
                              pyarrow.timestamp("us", "Europe/Amsterdam"))
    nested = pyarrow.array(
        [{"t": [datetime.datetime(1890, 1, 1, 12, tzinfo=datetime.timezone.utc)]}, None, {"t": []}],
        pyarrow.struct([("t", pyarrow.list_(pyarrow.timestamp("ms", "Africa/Monrovia")))]))
    found, rows = went_through(tmp_path, a=amsterdam, n=nested)
    assert found.column("a").combine_chunks().equals(amsterdam) and found.column(
        "n").combine_chunks().equals(nested)
    assert [row["a"] for row in rows] == [
        "1880-01-01 00:00:00.000000Z", None, "1970-01-01 01:00:00.000000+0100"]
    assert rows[0]["n"] == {"t": ["1890-01-01 12:00:00.000Z"]}


@pytest.mark.parametrize("values", [
    pyarrow.array([0, 2932897], pyarrow.date32()),
    pyarrow.array([0, 253402300800000000], pyarrow.timestamp("us")),
    pyarrow.array([0, 2**62], pyarrow.timestamp("us")),
    pyarrow.array([0, 253402300800], pyarrow.timestamp("s", "Europe/Berlin"))],
                         ids=lambda values: str(values.type))
def test_a_far_date_is_refused_before_anything_runs(tmp_path, values):
    found, said = went_through(tmp_path, x=values)
    assert found is None and "column 'x', row 2: " in said and "has no text from which" in said, said


def test_uuids_json_and_views_of_text_are_texts(tmp_path):
    inner = pyarrow.ExtensionArray.from_storage(
        pyarrow.uuid(), pyarrow.array([uuid.UUID(int=8).bytes], pyarrow.binary(16)))
    columns = {
        "u": pyarrow.array([uuid.UUID(int=7).bytes, None],
                           pyarrow.uuid()), "j": pyarrow.array(['{"a": 1}', None], pyarrow.json_()),
        "v": pyarrow.array(["é", None], pyarrow.string_view()), "l": pyarrow.ListArray.from_arrays(
            pyarrow.array([0, 1, 1], pyarrow.int32()), inner)}
    found, rows = went_through(tmp_path, **columns)
    assert rows[0] == {
        "u": str(uuid.UUID(int=7)), "j": '{"a": 1}', "v": "é", "l": [str(uuid.UUID(int=8))]
    } and rows[1] == {"u": None, "j": None, "v": None, "l": []}
    for name, values in columns.items():
        assert found.column(name).type == values.type and found.column(
            name).combine_chunks().to_pylist() == values.to_pylist(), name
