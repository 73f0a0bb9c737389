# SPDX-License-Identifier: Apache-2.0
"""Parquet files beside pyarrow: parquet.py DATA_ROWS. Writes files of all types, encodings and compressions, with
nulls and nesting, and compares the rows that TX reads with those of pyarrow."""
import datetime
import decimal
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import uuid

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    print("skipped: no pyarrow")
    sys.exit(77)

ROWS = 2500
random.seed(7)


def word():
    return random.choice(["", "a", "zwölf", "naïve \"quoted\"", "back\\slash", "tab\tline\n\r\u0001", "🙂" * 3, "中文字符",
                          "x" * random.randrange(40), str(random.random())])


def moment():
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=random.randrange(-10**16, 4 * 10**16))


def number(value):
    return None if value is None or math.isnan(value) or math.isinf(value) else value


def some(make, nulls):
    return [None if random.random() < nulls else make() for _ in range(ROWS)]


def lists(make, least=0):
    return lambda: [make() if random.random() > 0.1 else None for _ in range(random.randrange(least, 5))]


MAP_KEYS = ["k", "other", "größe"]
TYPES = {
    "bool": (pa.bool_(), lambda: random.random() < 0.5),
    "int8": (pa.int8(), lambda: random.randrange(-128, 128)),
    "uint8": (pa.uint8(), lambda: random.randrange(256)),
    "int16": (pa.int16(), lambda: random.randrange(-2**15, 2**15)),
    "uint32": (pa.uint32(), lambda: random.randrange(2**32)),
    "int32": (pa.int32(), lambda: random.randrange(-2**31, 2**31)),
    "int64": (pa.int64(), lambda: random.randrange(-2**63, 2**63)),
    "uint64": (pa.uint64(), lambda: random.randrange(2**64)),
    "small": (pa.int64(), lambda: random.randrange(3)),
    "float16": (pa.float16(), None),
    "float": (pa.float32(), lambda: random.choice([0.5, -1e30, float("nan"), float("inf"), random.gauss(0, 1)])),
    "double": (pa.float64(), lambda: random.choice([0.1, 1e300, float("nan"), random.gauss(0, 1), 3.0])),
    "string": (pa.string(), word),
    "large_string": (pa.large_string(), word),
    "binary_text": (pa.binary(), lambda: word().encode()),
    "fixed": (pa.binary(4), lambda: random.choice([b"abcd", b"wxyz", "ßß".encode()])),
    "decimal": (pa.decimal128(12, 3), lambda: decimal.Decimal(random.randrange(-10**11, 10**11)).scaleb(-3)),
    "decimal_long": (pa.decimal128(38, 10), lambda: decimal.Decimal(random.randrange(-10**37, 10**37)).scaleb(
        -10, decimal.Context(prec=50))),
    "decimal_whole": (pa.decimal128(9, 0), lambda: decimal.Decimal(random.randrange(-10**8, 10**8))),
    "date": (pa.date32(), lambda: moment().date()),
    "time_ms": (pa.time32("ms"), lambda: moment().time().replace(microsecond=random.randrange(1000) * 1000)),
    "time_us": (pa.time64("us"), lambda: moment().time()),
    "stamp_ms": (pa.timestamp("ms"), lambda: moment().replace(microsecond=random.randrange(1000) * 1000)),
    "stamp_us": (pa.timestamp("us"), moment),
    "stamp_utc": (pa.timestamp("us", tz="UTC"), lambda: moment().replace(tzinfo=datetime.timezone.utc)),
    "list": (pa.list_(pa.int32()), lists(lambda: random.randrange(100))),
    "list_of_strings": (pa.list_(pa.string()), lists(word)),
    "list_of_lists": (pa.list_(pa.list_(pa.int64())), lists(lists(lambda: random.randrange(9)))),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]),
               lambda: {"a": random.choice([None, 3]), "b": random.choice([None, word()])}),
    "messages": (pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()),
                                     ("calls", pa.list_(pa.struct([("name", pa.string())])))])),
                 lists(lambda: {"role": "user", "content": word(),
                                "calls": random.choice([None, [], [{"name": "f"}, {"name": None}]])})),
    "map": (pa.map_(pa.string(), pa.int32()), lambda: [(k, random.choice([None, 5])) for k in
                                                       random.sample(MAP_KEYS, random.randrange(4))]),
    "null": (pa.null(), lambda: None),
}


def expected(value, kind):
    """A value of pyarrow as TX's JSON has it."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return number(float(value))
    if pa.types.is_decimal(kind):
        return float(value) if kind.scale else int(value)
    if pa.types.is_temporal(kind):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode()
    if pa.types.is_map(kind):
        return {k: expected(v, kind.item_type) for k, v in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [expected(v, kind.value_type) for v in value]
    if pa.types.is_struct(kind):
        return {kind.field(i).name: expected(value[kind.field(i).name], kind.field(i).type)
                for i in range(kind.num_fields)}
    return value


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-7 * abs(b)  # fp32 in its own fewest digits
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b and type(a) is type(b)


def compare(program, table, path, **options):
    pq.write_table(table, path, **options)
    run = subprocess.run([program, path], capture_output=True, check=False)
    if run.returncode:
        return run.stderr.decode().strip()
    rows = [json.loads(line) for line in run.stdout.decode().split("\n")[:-1]]
    wanted = pq.read_table(path).to_pylist()
    if len(rows) != len(wanted):
        return f"{len(rows)} rows for {len(wanted)}"
    for i, (row, want) in enumerate(zip(rows, wanted)):
        want = {f.name: expected(want[f.name], f.type) for f in table.schema}
        if not same(row, want):
            return f"row {i}: {row} for {want}"
    return None


def cases():
    """Yields name, table and options of each file."""
    tables = {}
    for name, (kind, make) in TYPES.items():
        for nulls in (0, 0.3, 1):
            if name == "float16":
                import numpy as np
                values = [None if random.random() < nulls else np.float16(random.gauss(0, 1)) for _ in range(ROWS)]
            else:
                values = some(make, nulls)
            tables[name, nulls] = pa.table({"x": pa.array(values, kind), "n": pa.array(range(ROWS), pa.int32())})
            yield f"{name} {nulls}", tables[name, nulls], {}
    wide = pa.table({name: tables[name, 0.3]["x"] for name in TYPES if name != "null"})
    for codec in ("none", "snappy", "gzip", "zstd", "lz4"):
        for version in ("1.0", "2.0"):
            yield (f"all {codec} {version}", wide,
                   {"compression": codec, "data_page_version": version, "row_group_size": 700, "data_page_size": 512,
                    "write_page_checksum": True})
    yield "no dictionary", wide, {"use_dictionary": False, "compression": "zstd"}
    yield "old lists", wide, {"use_compliant_nested_type": False}
    yield "int96", tables["stamp_us", 0.3], {"use_deprecated_int96_timestamps": True}
    for name, encoding in (("int32", "DELTA_BINARY_PACKED"), ("int64", "DELTA_BINARY_PACKED"),
                           ("small", "DELTA_BINARY_PACKED"), ("string", "DELTA_LENGTH_BYTE_ARRAY"),
                           ("string", "DELTA_BYTE_ARRAY"), ("fixed", "DELTA_BYTE_ARRAY"),
                           ("float", "BYTE_STREAM_SPLIT"), ("double", "BYTE_STREAM_SPLIT"),
                           ("int32", "BYTE_STREAM_SPLIT"), ("fixed", "BYTE_STREAM_SPLIT"), ("bool", "RLE")):
        for nulls in (0, 0.3):
            yield (f"{name} {encoding} {nulls}", tables[name, nulls],
                   {"use_dictionary": False, "column_encoding": {"x": encoding}, "data_page_size": 1000})
    yield "empty", wide.slice(0, 0), {}
    required = pa.schema([pa.field("x", pa.string(), nullable=False),
                          pa.field("y", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False)])
    yield "required", pa.table([[word() for _ in range(50)], [[1] * (i % 4) for i in range(50)]], schema=required), {}


def refused(program, path, words, data):
    with open(path, "wb") as file:
        file.write(data)
    run = subprocess.run([program, path], capture_output=True, check=False)
    line = run.stderr.decode()
    return None if run.returncode == 1 and words in line and line.count("\n") == 1 else f"{words}: {line}"


def refusals(program, folder):
    """Files that end with one line."""
    path = os.path.join(folder, "bad.parquet")
    table = pa.table({"x": [word() for _ in range(500)]})
    pq.write_table(table, path, write_page_checksum=True)
    data = open(path, "rb").read()
    yield refused(program, path, "only 3 bytes", b"PAR")
    yield refused(program, path, "cut off", data[:-5])
    yield refused(program, path, "checksum", data[:200] + bytes([data[200] ^ 1]) + data[201:])
    pq.write_table(table, path, compression="brotli")
    yield refused(program, path, "Brotli", open(path, "rb").read())
    pq.write_table(pa.table({"x": pa.array([b"\xff\xfe"])}), path)
    yield refused(program, path, "no UTF-8", open(path, "rb").read())


def main():
    program = sys.argv[1]
    failures = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, table, options in cases():
            fault = compare(program, table, os.path.join(folder, "case.parquet"), **options)
            count += 1
            if fault:
                failures += 1
                print(f"{name}: {fault[:600]}")
        for fault in refusals(program, folder):
            count += 1
            if fault:
                failures += 1
                print(fault)
    print(f"{count} files, {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
