# SPDX-License-Identifier: Apache-2.0
"""Parquet files as rows of JSON and back, for `quern run`: the program `quern-parquet` of the
wheel, with pyarrow (pip install 'quern[parquet]').

  quern-parquet rows IN.parquet               writes one JSON object per row to standard output
  quern-parquet table ROWS.jsonl OUT.parquet [--like IN.parquet]

Types that JSON does not have travel as texts: dates and times in ISO 8601, decimals, unsigned
64-bit integers, UUIDs, NaN and infinities. The way back gives the columns of IN their types again;
other columns have the types of their values, and a column of mixed kinds holds JSON texts. A value
whose text would not come back as it went in is refused when it is read: a year beyond 9999, a time
that Arrow cannot print. A time of an old zone whose offset has seconds is written in UTC. """
from __future__ import annotations

import json
import math
import sys
import uuid
from typing import Any, Dict, Iterator, List, Optional

ROWS_PER_PIECE = 8192


def extension_name(kind: Any) -> str:
    """The name of an extension type, as `arrow.uuid`; empty for another type."""
    return str(getattr(kind, "extension_name", ""))


def plain_type(pa: Any, kind: Any, column: str) -> Any:
    """The Arrow type whose values JSON has, next to `kind`."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(pa, kind.value_type, column)
    if extension_name(kind) in ("arrow.uuid", "arrow.json") or is_view_of_text(pa, kind):
        return pa.string()
    if types.is_temporal(kind) and not types.is_duration(kind) and not types.is_interval(
            kind) or types.is_decimal(kind) or types.is_uint64(kind):
        return pa.string()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_struct(kind):
        return pa.struct([
            pa.field(field.name, plain_type(pa, field.type, column)) for field in kind])
    if is_any_list(pa, kind):
        return pa.list_(plain_type(pa, kind.value_type, column))
    if types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(
            kind) or types.is_string(kind) or types.is_large_string(kind):
        return kind
    raise SystemExit(
        f"quern-parquet: column '{column}' has the type {kind}, which no row of JSON can hold; leave it out"
    )


def is_view_of_text(pa: Any, kind: Any) -> bool:
    return hasattr(pa.types, "is_string_view") and bool(pa.types.is_string_view(kind))


def is_any_list(pa: Any, kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def values_of(pa: Any, kind: Any, array: Any, column: str) -> List[Any]:
    """The values of a column as JSON has them."""
    types = pa.types
    if extension_name(kind) == "arrow.uuid":
        return [
            None if value is None else str(uuid.UUID(bytes=value))
            for value in array.storage.to_pylist()]
    if extension_name(kind) == "arrow.json":
        return list(array.storage.to_pylist())
    if types.is_dictionary(kind):
        return values_of(pa, kind.value_type, array.dictionary_decode(), column)
    if types.is_struct(kind):
        members = [
            values_of(pa, field.type, each, column) for field, each in zip(kind, array.flatten())]
        names = [field.name for field in kind]
        return [
            dict(zip(names, (member[at]
                             for member in members))) if valid else None
            for at, valid in enumerate(array.is_valid().to_pylist())]
    if is_any_list(pa, kind):
        if not types.is_fixed_size_list(kind):
            array = array.cast(pa.large_list(kind.value_type))
        inner = iter(values_of(pa, kind.value_type, array.flatten(), column))
        return [
            [next(inner) for _ in range(len(each))] if each.is_valid else None for each in array]
    return list(array.cast(plain_type(pa, kind, column)).to_pylist())


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
    if extension_name(kind) == "arrow.uuid":
        return pa.ExtensionArray.from_storage(
            kind,
            pa.array([None if value is None else uuid.UUID(value).bytes for value in values],
                     kind.storage_type))
    if extension_name(kind) == "arrow.json":
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if is_view_of_text(pa, kind):
        return pa.array(values, kind)
    if types.is_struct(kind):
        members = [
            built(pa, field.type,
                  [None if value is None else value.get(field.name)
                   for value in values])
            for field in kind]
        return pa.StructArray.from_arrays(members,
                                          fields=list(kind),
                                          mask=pa.array([value is None for value in values],
                                                        pa.bool_()))
    if is_any_list(pa, kind):
        whole = pa.array([None if value is None else len(value) * [None] for value in values],
                         pa.list_(pa.null()))
        inner = built(pa, kind.value_type,
                      [each for value in values if value is not None for each in value])
        return pa.ListArray.from_arrays(whole.offsets, inner, mask=whole.is_null()).cast(kind)
    if types.is_time(kind):
        return pa.array([None if value is None else ticks(value, kind.unit) for value in values],
                        pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    if types.is_floating(kind):
        return pa.array([
            float(value.replace("Infinity", "inf")) if isinstance(value, str) else value
            for value in values], kind)
    if types.is_dictionary(kind):
        return built(pa, kind.value_type, values).dictionary_encode().cast(kind)
    return pa.array(values, plain_type(pa, kind, "")).cast(kind)


def ticks(text: str, unit: str) -> int:
    """A time of day as a count of its unit; Arrow casts no text to one."""
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    hours, minutes, seconds = text.split(":")
    whole, _, part = seconds.partition(".")
    per_second: int = 10**digits
    return (int(hours) * 3600 + int(minutes) * 60 + int(whole)) * per_second + (int(
        part.ljust(digits, "0")[:digits]) if digits else 0)


def in_utc(pa: Any, kind: Any) -> Any:
    """`kind` with the zone UTC in place of each other one."""
    types = pa.types
    if types.is_timestamp(kind) and kind.tz:
        return pa.timestamp(kind.unit, "UTC")
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, in_utc(pa, field.type)) for field in kind])
    if is_any_list(pa, kind):
        return pa.large_list(in_utc(pa, kind.value_type))
    return in_utc(pa, kind.value_type) if types.is_dictionary(kind) else kind


def comes_back(pa: Any, kind: Any, array: Any, values: List[Any]) -> bool:
    """Whether the values become the array again."""
    try:
        again = built(pa, kind, [as_json(value) for value in values])
        return bool(again.equals(array)) or repr(again.to_pylist()) == repr(
            array.to_pylist())  # NaN equals nothing
    except (ValueError, OverflowError, pa.ArrowException):
        return False


def has_times(pa: Any, kind: Any) -> bool:
    """Whether values of the type may have texts that lose something."""
    types = pa.types
    if types.is_struct(kind):
        return any(has_times(pa, field.type) for field in kind)
    if is_any_list(pa, kind) or types.is_dictionary(kind):
        return has_times(pa, kind.value_type)
    return bool(types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind))


def checked_values(pa: Any, field: Any, array: Any, first_row: int) -> List[Any]:
    """The values of a column, each of which comes back as it went in."""
    values = values_of(pa, field.type, array, field.name)
    if not has_times(pa, field.type) or comes_back(pa, field.type, array, values):
        return values
    for at in range(len(array)):
        one = array.slice(at, 1)
        if comes_back(pa, field.type, one, values[at:at + 1]):
            continue
        utc = in_utc(pa, field.type)
        other = values_of(pa, utc, one.cast(utc), field.name) if utc != field.type else [values[at]]
        if utc == field.type or not comes_back(pa, field.type, one, other):
            raise SystemExit(
                f"quern-parquet: column '{field.name}', row {first_row + at}: {str(values[at])[:60]} has no text from which the same {field.type} can be read"
            )
        values[at] = other[0]
    return values


def rows(pa: Any, pq: Any, path: str) -> None:
    file = pq.ParquetFile(path)
    schema = file.schema_arrow
    repeated = {name for name in schema.names if schema.names.count(name) > 1}
    if repeated:
        raise SystemExit(
            f"quern-parquet: {path} has several columns with the name '{sorted(repeated)[0]}'")
    for field in schema:
        plain_type(pa, field.type, field.name)  # refuses types that no row can hold
    done = 0
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    for batch in file.iter_batches(batch_size=ROWS_PER_PIECE):
        columns = [
            checked_values(pa, field, batch.column(at), done + 1)
            for at, field in enumerate(schema)]
        done += batch.num_rows
        for row in zip(*columns) if columns else ():
            sys.stdout.write(
                json.dumps(
                    as_json(dict(zip(schema.names, row))), ensure_ascii=False, allow_nan=False) +
                "\n")


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
    wanted = pa.schema([
        known.get(name) or pa.field(name, guessed(pa, found)) for name, found in kinds.items()])
    mixed = {
        name
        for name, found in kinds.items()
        if name not in known and len(found - {""}) > 1 and not found - {""} <= {"int", "float"}}
    with pq.ParquetWriter(target, wanted) as writer:
        for piece in pieces(source):
            columns = []
            for field in wanted:
                if field.name in known:
                    columns.append(built(pa, field.type, [row.get(field.name) for row in piece]))
                elif pa.types.is_string(field.type):
                    columns.append(
                        pa.array(
                            [text_of(row.get(field.name), field.name in mixed) for row in piece],
                            field.type))
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
        raise SystemExit(
            "quern-parquet: pyarrow is missing: pip install 'quern[parquet]'") from None
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
