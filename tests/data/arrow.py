# SPDX-License-Identifier: Apache-2.0
"""Arrow files and streams beside pyarrow: arrow.py DATA_ROWS. Writes all types, compressions and forms, with nulls,
nesting and dictionaries, and compares the rows that TX reads with those of pyarrow."""
import datetime
import decimal
import json
import os
import random
import subprocess
import sys
import tempfile

import parquet

import pyarrow as pa
import pyarrow.feather

from parquet import ROWS, lists, moment, same, some, word

LETTERS = ["a", "b", None, "größe"]
TYPES = {
    **parquet.TYPES,
    "uint16": (pa.uint16(), lambda: random.randrange(2**16)),
    "large_binary": (pa.large_binary(), lambda: word().encode()),
    "large_list": (pa.large_list(pa.string()), lists(word)),
    "fixed_list": (pa.list_(pa.int16(), 3), lambda: random.choices([None, 1, -5], k=3)),
    "fixed_list_of_structs": (pa.list_(pa.struct([("a", pa.string())]), 2), lambda: [{"a": word()}, None]),
    "int_map": (pa.map_(pa.int32(), pa.string()), lambda: [(random.randrange(5), word()) for _ in range(2)]),
    "date64": (pa.date64(), lambda: moment().date()),
    "time_s": (pa.time32("s"), lambda: moment().time().replace(microsecond=0)),
    "time_ns": (pa.time64("ns"), lambda: moment().time()),
    "stamp_s": (pa.timestamp("s"), lambda: moment().replace(microsecond=0)),
    "duration": (pa.duration("ms"), lambda: datetime.timedelta(milliseconds=random.randrange(-9**9, 9**9))),
    "decimal256": (pa.decimal256(60, 5), lambda: decimal.Decimal(random.randrange(-10**58, 10**58)).scaleb(
        -5, decimal.Context(prec=70))),
    "label": (pa.dictionary(pa.int8(), pa.string()), lambda: random.choice(LETTERS)),
    "wide_label": (pa.dictionary(pa.int64(), pa.large_string()), word),
    "labels": (pa.list_(pa.dictionary(pa.int32(), pa.string())), lists(lambda: random.choice(LETTERS))),
    "string_view": (pa.string_view(), lambda: word() * random.randrange(6)),
    "binary_view": (pa.binary_view(), lambda: word().encode() * random.randrange(6)),
    "list_view": (pa.list_view(pa.string_view()), lists(lambda: word() * 3)),
    "large_list_view": (pa.large_list_view(pa.int32()), lists(lambda: random.randrange(9))),
    "view_map": (pa.map_(pa.string_view(), pa.string_view()), lambda: [(word(), word() * 4)]),
    "runs16": (pa.run_end_encoded(pa.int16(), pa.string()), lambda: random.choice(LETTERS[:2])),
    "runs64": (pa.run_end_encoded(pa.int64(), pa.list_(pa.int8())), lambda: [random.randrange(2)]),
    "nested": (pa.struct([("x", pa.struct([("y", pa.list_(pa.struct([("z", pa.null()), ("b", pa.bool_())])))]))]),
               lambda: {"x": random.choice([None, {"y": [{"z": None, "b": True}, None]}])}),
}


def expected(value, kind):
    """A value of pyarrow as TX's JSON has it."""
    if value is None:
        return None
    if pa.types.is_dictionary(kind):
        return expected(value, kind.value_type)
    if pa.types.is_run_end_encoded(kind):
        return expected(value, kind.value_type)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return parquet.expected(value, pa.string() if pa.types.is_string_view(kind) else pa.binary())
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return [expected(v, kind.value_type) for v in value]
    if pa.types.is_duration(kind):
        return value // datetime.timedelta(milliseconds=1)
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [expected(v, kind.value_type) for v in value]
    if pa.types.is_map(kind) and not (pa.types.is_string(kind.key_type) or pa.types.is_string_view(kind.key_type)):
        return [{"key": k, "value": expected(v, kind.item_type)} for k, v in value]
    if pa.types.is_map(kind):
        return {k: expected(v, kind.item_type) for k, v in value}
    if pa.types.is_struct(kind):
        return {f.name: expected(value[f.name], f.type) for f in kind}
    return parquet.expected(value, kind)


def write(table, path, form, batch=None, **options):
    options = pa.ipc.IpcWriteOptions(**options)
    make = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    with make(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch)


def compare(program, table, path):
    run = subprocess.run([program, path], capture_output=True, check=False)
    if run.returncode:
        return run.stderr.decode().strip()
    rows = [json.loads(line) for line in run.stdout.decode().split("\n")[:-1]]
    wanted = table.to_pylist()
    if len(rows) != len(wanted):
        return f"{len(rows)} rows for {len(wanted)}"
    for i, (row, want) in enumerate(zip(rows, wanted)):
        want = {f.name: expected(want[f.name], f.type) for f in table.schema}
        if not same(row, want):
            return f"row {i}: {row} for {want}"
    return None


def runs(values, kind):
    """pyarrow has no conversion of lists."""
    ends = [i for i in range(1, len(values) + 1) if i == len(values) or values[i] != values[i - 1]]
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, kind.run_end_type),
                                             pa.array([values[i - 1] for i in ends], kind.value_type), kind)


def column(name, nulls):
    kind, make = TYPES[name]
    if name == "float16":
        import numpy as np
        values = [None if random.random() < nulls else np.float16(random.gauss(0, 1)) for _ in range(ROWS)]
        return pa.array(values, kind)
    if pa.types.is_dictionary(kind):
        return pa.array(some(make, nulls), kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_run_end_encoded(kind):
        return runs(some(make, nulls), kind)
    if name == "labels":
        return pa.array(some(make, nulls), pa.list_(pa.string())).cast(kind)
    return pa.array(some(make, nulls), kind)


def cases():
    """Yields name, table and options of each file."""
    tables = {}
    for name in TYPES:
        for nulls in (0, 0.3, 1):
            tables[name, nulls] = pa.table({"x": column(name, nulls), "n": pa.array(range(ROWS), pa.int32())})
            yield f"{name} {nulls}", tables[name, nulls], {"form": "stream"}
    wide = pa.table({name: tables[name, 0.3]["x"] for name in TYPES})
    for form in ("file", "stream"):
        for compression in (None, "lz4", "zstd"):
            yield f"all {form} {compression}", wide, {"form": form, "compression": compression, "batch": 700}
        yield f"old {form}", wide, {"form": form, "use_legacy_format": True}
        yield f"version 4 {form}", wide, {"form": form, "metadata_version": pa.ipc.MetadataVersion.V4}
    yield "slices", pa.concat_tables([wide.slice(3, 100), wide.slice(1001, 77), wide.slice(0, 0)]), {"form": "stream"}
    yield "no rows", wide.slice(0, 0), {"form": "file"}
    yield "no columns", pa.table({}), {"form": "stream"}
    chunks = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", None]).dictionary_encode()])
    yield "another dictionary", pa.table({"x": chunks}), {"form": "stream"}


def refused(program, path, words, data):
    with open(path, "wb") as file:
        file.write(data)
    run = subprocess.run([program, path], capture_output=True, check=False)
    line = run.stderr.decode()
    return None if run.returncode == 1 and words in line and line.count("\n") == 1 else f"{words}: {line}"


def refusals(program, folder):
    """Files that end with one line."""
    path = os.path.join(folder, "bad.arrow")
    table = pa.table({"x": [word() for _ in range(500)]})
    write(table, path, "file")
    data = open(path, "rb").read()
    yield refused(program, path, "cut off", data[:-5])
    yield refused(program, path, "cut off", data[:12])
    write(table, path, "stream")
    data = open(path, "rb").read()
    yield refused(program, path, "cut off", data[:-900])
    yield refused(program, path, "not an Arrow file", b"PAR1" + data)
    yield refused(program, path, "not an Arrow file", b"")
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    write(pa.table({"x": union}), path, "stream")
    yield refused(program, path, "column x has the type union", open(path, "rb").read())
    write(pa.table({"x": pa.array([b"\xff\xfe"])}), path, "stream")
    yield refused(program, path, "no UTF-8", open(path, "rb").read())


def main():
    program = sys.argv[1]
    failures = count = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case.arrow")
        for name, table, options in cases():
            write(table, path, **options)
            fault = compare(program, table, path)
            count += 1
            if fault:
                failures += 1
                print(f"{name}: {fault[:600]}")
        pa.feather.write_feather(table, path)
        for fault in (compare(program, table, path), *refusals(program, folder)):
            count += 1
            if fault:
                failures += 1
                print(fault)
    print(f"{count} files, {failures} differ")
    return 1 if failures else 0


sys.exit(main())
