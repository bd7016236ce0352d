# SPDX-License-Identifier: Apache-2.0
"""Parquet files as rows of JSON and back, for `quern run`: the program `quern-parquet` of the wheel, with pyarrow (pip install 'quern[parquet]').

  quern-parquet rows IN.parquet               writes one JSON object per row to standard output
  quern-parquet table ROWS.jsonl OUT.parquet [--like IN.parquet]

Types that JSON does not have travel as texts: dates and times in ISO 8601, decimals, unsigned 64-bit integers, NaN and infinities. The way back
gives the columns of IN their types again; other columns have the types of their values, and a column of mixed kinds holds JSON texts.
"""
from __future__ import annotations

import json
import math
import sys
from typing import Any, Dict, Iterator, List, Optional

ROWS_PER_PIECE = 8192


def plain_type(pa: Any, kind: Any, column: str) -> Any:
    """The Arrow type whose values JSON has, next to `kind`."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(pa, kind.value_type, column)
    if types.is_temporal(kind) and not types.is_duration(kind) and not types.is_interval(kind) or types.is_decimal(kind) or types.is_uint64(kind):
        return pa.string()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(pa, field.type, column)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(plain_type(pa, kind.value_type, column))
    if types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_string(kind) or types.is_large_string(kind):
        return kind
    raise SystemExit(f"quern-parquet: column '{column}' has the type {kind}, which no row of JSON can hold; leave it out")


def as_json(value: Any) -> Any:
    """Floats that JSON does not have become texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return value


def built(pa: Any, kind: Any, values: List[Any]) -> Any:
    """A column of type `kind` from the values that `rows` wrote for one."""
    types = pa.types
    if types.is_struct(kind):
        members = [built(pa, field.type, [None if value is None else value.get(field.name) for value in values]) for field in kind]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=pa.array([value is None for value in values], pa.bool_()))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        whole = pa.array([None if value is None else len(value) * [None] for value in values], pa.list_(pa.null()))
        inner = built(pa, kind.value_type, [each for value in values if value is not None for each in value])
        return pa.ListArray.from_arrays(whole.offsets, inner, mask=whole.is_null()).cast(kind)
    if types.is_time(kind):
        return pa.array([None if value is None else ticks(value, kind.unit) for value in values], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    if types.is_floating(kind):
        return pa.array([float(value.replace("Infinity", "inf")) if isinstance(value, str) else value for value in values], kind)
    if types.is_dictionary(kind):
        return built(pa, kind.value_type, values).dictionary_encode().cast(kind)
    return pa.array(values, plain_type(pa, kind, "")).cast(kind)


def ticks(text: str, unit: str) -> int:
    """A time of day as a count of its unit; Arrow casts no text to one."""
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    hours, minutes, seconds = text.split(":")
    whole, _, part = seconds.partition(".")
    per_second: int = 10**digits
    return (int(hours) * 3600 + int(minutes) * 60 + int(whole)) * per_second + (int(part.ljust(digits, "0")[:digits]) if digits else 0)


def rows(pa: Any, pq: Any, path: str) -> None:
    file = pq.ParquetFile(path)
    schema = file.schema_arrow
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    if repeated:
        raise SystemExit(f"quern-parquet: {path} has several columns with the name '{sorted(repeated)[0]}'")
    plain = pa.schema([pa.field(field.name, plain_type(pa, field.type, field.name)) for field in schema])
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    for batch in file.iter_batches(batch_size=ROWS_PER_PIECE):
        for row in pa.Table.from_batches([batch]).cast(plain).to_pylist():
            sys.stdout.write(json.dumps(as_json(row), ensure_ascii=False, allow_nan=False) + "\n")


def pieces(path: str) -> Iterator[List[Dict[str, Any]]]:
    piece: List[Dict[str, Any]] = []
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            piece.append(json.loads(line))
            if len(piece) == ROWS_PER_PIECE:
                yield piece
                piece = []
    if piece:
        yield piece


def kind_of(value: Any) -> str:
    """What a column's type is found from: nested values are JSON texts, as in a CSV."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(2**63) <= value < 2**63 else "text"
    return "float" if isinstance(value, float) else "text"


def guessed(pa: Any, kinds: Any) -> Any:
    kinds = kinds - {""}
    if kinds == {"bool"}:
        return pa.bool_()
    if kinds == {"int"}:
        return pa.int64()
    return pa.float64() if kinds and kinds <= {"int", "float"} else pa.string()


def text_of(value: Any, is_mixed: bool) -> Optional[str]:
    if value is None or isinstance(value, str) and not is_mixed:
        return value
    return json.dumps(value, ensure_ascii=False)


def table(pa: Any, pq: Any, source: str, target: str, like: Optional[str]) -> None:
    known = {field.name: field for field in pq.ParquetFile(like).schema_arrow} if like else {}
    kinds: Dict[str, Any] = {}
    for piece in pieces(source):
        for row in piece:
            for name, value in row.items():
                kinds.setdefault(name, set()).add(kind_of(value))
    wanted = pa.schema([known.get(name) or pa.field(name, guessed(pa, found)) for name, found in kinds.items()])
    mixed = {name for name, found in kinds.items() if name not in known and len(found - {""}) > 1 and not found - {""} <= {"int", "float"}}
    with pq.ParquetWriter(target, wanted) as writer:
        for piece in pieces(source):
            columns = []
            for field in wanted:
                if field.name in known:
                    columns.append(built(pa, field.type, [row.get(field.name) for row in piece]))
                elif pa.types.is_string(field.type):
                    columns.append(pa.array([text_of(row.get(field.name), field.name in mixed) for row in piece], field.type))
                else:
                    columns.append(pa.array([row.get(field.name) for row in piece], field.type))
            writer.write_table(pa.Table.from_arrays(columns, schema=wanted))


def main(arguments: Optional[List[str]] = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    like = words[words.index("--like") + 1] if "--like" in words[:-1] else None
    words = words[: words.index("--like")] if like else words
    if (words[:1], len(words)) not in ((["rows"], 2), (["table"], 3)):
        raise SystemExit(__doc__)
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise SystemExit("quern-parquet: pyarrow is missing: pip install 'quern[parquet]'") from None
    try:
        if words[0] == "rows":
            rows(pyarrow, pyarrow.parquet, words[1])
        else:
            table(pyarrow, pyarrow.parquet, words[1], words[2], like)
    except BrokenPipeError:
        raise SystemExit(1) from None
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise SystemExit(f"quern-parquet: {words[1]}: {error}") from None


if __name__ == "__main__":
    main()
