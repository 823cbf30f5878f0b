#!/usr/bin/env python3
"""pyarrow and fastavro write what we read, and read what we write.

    files.py BINARY

One table is written in every format, codec and encoding, by programs that share no code with Veilstream; each is anonymized with
one policy and one seed, into every output format, and each output is read back by those programs: all must hold the same rows,
with the types of the input, and nothing of the column that the policy does not name. What is not read must be named.
Prints one line per part; exit 1 if something is wrong. Installs its Python packages below the target folder when missing.
"""

import csv
import datetime
import decimal
import gzip
import io
import json
import os
import pathlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import zipfile

PACKAGES = ["pyarrow==26.0.1", "fastavro==1.13.1", "cramjam==2.14.0", "zstandard==0.25.0", "backports.zstd==1.8.0"]
CANARY = "canary-7f3a"
POLICY = """
policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [5, 10, 20, 40], min: 0, max: 120 } } }
    - { name: home-zip, hierarchy: { prefix: { length: 5 } } }
    - { name: born, hierarchy: { date: [day, month, year, decade] } }
  sensitive: [{ name: job }]
  keep: [{ name: pay, reviewed: true }, { name: seen, reviewed: true }, { name: fit, reviewed: true }]
  privacy: [{ k-anonymity: 5 }]
  suppression: { limit: 0.1 }
"""


def own_python():
    """Runs this script again in an environment that has the packages."""
    home = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "python-formats"
    ready, wanted = home / "ready", "\n".join(PACKAGES)
    if not ready.exists() or ready.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin/pip", "install", "-q", *PACKAGES], check=True)
        ready.write_text(wanted)
    os.execv(home / "bin/python", [str(home / "bin/python"), *sys.argv])


try:
    import fastavro
    import pyarrow as pa
    import pyarrow.orc
    import pyarrow.parquet as pq
    import zstandard
except ImportError:
    if "python-formats" in sys.executable:
        raise
    own_python()


def people(count=400):
    rng = random.Random(7)
    rows = []
    for i in range(count):
        born = datetime.date(1950, 1, 1) + datetime.timedelta(days=rng.randrange(18000))
        rows.append({
            "age": rng.randrange(18, 80),
            "home-zip": f"{rng.randrange(20):02}{rng.randrange(3)}{rng.randrange(2)}{rng.randrange(10)}",
            "born": born,
            "job": rng.choice(["cook", "nürse", "clerk", None]),
            "pay": decimal.Decimal(rng.randrange(100000, 900000)).scaleb(-2),
            "seen": datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=rng.randrange(9999)),
            "fit": rng.random() < 0.5,
            "note": f"{CANARY}-{i}",
        })
    return rows


SCHEMA = lambda unit="us", zone="UTC": pa.schema([
    ("age", pa.int32()), ("home-zip", pa.string()), ("born", pa.date32()), ("job", pa.string()),
    ("pay", pa.decimal128(12, 2)), ("seen", pa.timestamp(unit, zone)), ("fit", pa.bool_()), ("note", pa.string())])
AVRO = {"type": "record", "name": "Person", "fields": [
    {"name": "age", "type": "int"}, {"name": "home_zip", "type": "string"},
    {"name": "born", "type": {"type": "int", "logicalType": "date"}}, {"name": "job", "type": ["null", "string"]},
    {"name": "pay", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
    {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}}, {"name": "fit", "type": "boolean"},
    {"name": "note", "type": "string"}]}

failures = []


def expect(right, what):
    if not right:
        failures.append(what)
        print("WRONG:", what)


class Tool:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.policy = folder / "policy.yaml"
        self.policy.write_text(POLICY)
        self.avro_policy = folder / "avro.yaml"
        self.avro_policy.write_text(POLICY.replace("home-zip", "home_zip"))

    def run(self, *args, **more):
        return subprocess.run([self.binary, *map(str, args)], capture_output=True, text=True, **more)

    def anonymize(self, source, name, *more, policy=None):
        out = self.folder / name
        done = self.run("anonymize", "-c", policy or self.policy, source, "-o", out, "--seed", 1, *more)
        expect(done.returncode == 0, f"{source} to {name}: {done.stderr[-400:]}")
        if out.exists():
            expect(CANARY.encode() not in out.read_bytes(), f"{name} holds the canary")
        return out


def plain(value):
    """A value as text, alike in all formats."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float, decimal.Decimal)):
        return f"{decimal.Decimal(str(value)).normalize():f}"
    if isinstance(value, datetime.datetime):
        return str(int(value.timestamp() * 1_000_000))
    return str(value)


def number_like(text):
    try:
        return f"{decimal.Decimal(text).normalize():f}"
    except decimal.InvalidOperation:
        return text


COLUMNS = ["age", "home-zip", "born", "job", "pay", "seen", "fit"]


def rows_of(path):
    """The rows of a file as sorted tuples of text, read by another program."""
    name, data = path.name, path.read_bytes()
    if name.endswith(".gz"):
        name, data = name[:-3], gzip.decompress(data)
    if name.endswith(".zst"):
        name, data = name[:-4], zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()
    if name.endswith(".parquet"):
        rows = pq.read_table(path).to_pylist()
    elif name.endswith(".avro"):
        rows = list(fastavro.reader(io.BytesIO(data)))
    elif name.endswith(".csv"):
        rows = list(csv.DictReader(io.StringIO(data.decode())))
    else:
        rows = [json.loads(line, parse_float=decimal.Decimal) for line in data.decode().splitlines()]
    key = lambda row: tuple(number_like(plain(row.get(c, row.get(c.replace("-", "_"))))) for c in COLUMNS)
    return sorted(map(key, rows))


def parquet_in(tool, rows, base):
    for codec in ["none", "snappy", "gzip", "zstd", "lz4"]:
        for options in [{}, {"data_page_version": "2.0", "use_dictionary": False}, {"version": "1.0", "row_group_size": 33}]:
            source = tool.folder / f"{codec}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, SCHEMA()), source, compression=codec, **options)
            expect(rows_of(tool.anonymize(source, "out.csv")) == base, f"parquet {codec} {options}")
    brotli = tool.folder / "brotli.parquet"
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA()), brotli, compression="brotli")
    refused = tool.run("anonymize", "-c", tool.policy, brotli, "-o", tool.folder / "x.csv")
    expect(refused.returncode == 2 and "brotli" in refused.stderr, f"brotli: {refused.stderr}")
    for unit, zone in [("ns", None), ("ms", "UTC"), ("us", None)]:
        source = tool.folder / f"{unit}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA(unit, zone)), source)
        kept = pq.read_table(tool.anonymize(source, "unit.parquet")).schema
        expect(kept.field("seen").type == pa.timestamp(unit, zone), f"timestamp {unit} {zone} became {kept.field('seen').type}")
    print("parquet in: 5 codecs, pages 1 and 2, dictionaries, row groups, timestamps")


def parquet_out(tool, source, base):
    out = tool.anonymize(source, "safe.parquet")
    schema = pq.read_table(out).schema
    wanted = {"age": pa.string(), "born": pa.string(), "job": pa.string(), "pay": pa.decimal128(12, 2),
              "seen": pa.timestamp("us", "UTC"), "fit": pa.bool_()}
    for name, kind in wanted.items():
        expect(schema.field(name).type == kind, f"{name} is {schema.field(name).type}, not {kind}")
    expect(schema.names == COLUMNS, f"columns {schema.names}")
    expect(rows_of(out) == base, "rows of the parquet output")
    expect(out.read_bytes() == tool.anonymize(source, "again.parquet").read_bytes(), "same seed, same bytes")
    done = tool.run("verify", "-c", tool.policy, out)
    expect(done.returncode == 0, f"verify: {done.stdout} {done.stderr}")
    print("parquet out: types, rows, same bytes, verify")


def nested(tool, rows):
    table = pa.Table.from_pylist([r | {"tags": ["a", CANARY], "at": {"x": 1, "y": [2]}, "more": [("k", CANARY)], "by": [(-7, "x")]} for r in rows],
                                 pa.schema([*SCHEMA(), ("tags", pa.list_(pa.string())),
                                            ("at", pa.struct([("x", pa.int8()), ("y", pa.list_(pa.int64()))])),
                                            ("more", pa.map_(pa.string(), pa.string())), ("by", pa.map_(pa.int32(), pa.string()))]))
    source = tool.folder / "nested.parquet"
    pq.write_table(table, source)
    keep = tool.folder / "keep.yaml"
    keep.write_text(POLICY.replace("{ name: fit, reviewed: true }", "{ name: at, reviewed: true }, { name: by, reviewed: true }, fit"))
    out = tool.anonymize(source, "nested.jsonl", policy=keep)
    first = json.loads(out.read_text().splitlines()[0])
    expect(first["at"] == {"x": 1, "y": [2]} and first["by"] == {"-7": "x"}, f"a struct with a list, a map by number: {first}")
    print("parquet in: structs, lists and maps")


def arrays(tool, rows):
    """Kept arrays and maps, a sensitive array, and an array of records stay what they are, with nulls, empty ones and those that are
    not there."""
    visits = lambda i: [{"at": f"ward {j}", "days": i * 10 + j, "codes": ["x", None][: j + 1], "by": {f"day {k}": [k] for k in range(j)}}
                        for j in range(i % 3)]
    marks = lambda i: [None, {}, {"a": i}, {"ü": None, "b c": -i}][i % 4]
    grid = lambda i: [[list(range(j)) for j in range(i % 4)], [[]], [[i], [], [1, 2]]][i % 3]
    more = [{"tags": [None, [], ["a"], ["b", "c", None]][i % 4], "ids": [i, i + 1], "visits": visits(i) if i % 5 else None,
             "marks": marks(i), "grid": grid(i), "ill": [["flu"], ["cold", "flu"], ["ache"]][i % 3]} for i in range(len(rows))]
    visit = pa.struct([("at", pa.string()), ("days", pa.int64()), ("codes", pa.list_(pa.string())),
                       ("by", pa.map_(pa.string(), pa.list_(pa.int64())))])
    schema = pa.schema([*SCHEMA(), ("tags", pa.list_(pa.string())), ("ids", pa.list_(pa.field("element", pa.int64(), nullable=False))),
                        ("visits", pa.list_(visit)), ("ill", pa.list_(pa.string())),
                        ("marks", pa.map_(pa.string(), pa.int64())), ("grid", pa.list_(pa.list_(pa.int64())))])
    named = [{**row, **own} for row, own in zip(rows, more)]
    parquet, avro = tool.folder / "arrays.parquet", tool.folder / "arrays.avro"
    pq.write_table(pa.Table.from_pylist(named, schema), parquet)
    nulls = lambda of: ["null", of]
    fields = [{"name": "tags", "type": nulls({"type": "array", "items": nulls("string")})}, {"name": "ids", "type": {"type": "array", "items": "long"}},
              {"name": "visits", "type": nulls({"type": "array", "items": {"type": "record", "name": "Visit", "fields": [
                  {"name": "at", "type": "string"}, {"name": "days", "type": "long"},
                  {"name": "codes", "type": {"type": "array", "items": nulls("string")}},
                  {"name": "by", "type": {"type": "map", "values": {"type": "array", "items": "long"}}}]}})},
              {"name": "marks", "type": nulls({"type": "map", "values": nulls("long")})},
              {"name": "grid", "type": {"type": "array", "items": {"type": "array", "items": "long"}}},
              {"name": "ill", "type": {"type": "array", "items": "string"}}]
    with open(avro, "wb") as out:
        written = [{k.replace("-", "_"): v for k, v in row.items()} for row in named]
        fastavro.writer(out, fastavro.parse_schema({**AVRO, "fields": AVRO["fields"] + fields}), written)
    policy = POLICY.replace("[{ name: job }]", "[{ name: ill }]").replace("keep: [", "keep: [" + "".join(
        f"{{ name: {name}, reviewed: true }}, " for name in ["tags", "ids", "visits", "marks", "grid"]))
    kept = lambda row: (row["tags"], row["visits"], row["marks"], row["grid"], sorted(row["ill"]))
    expected = {own["ids"][0]: kept(own) for own in more}
    table = lambda path: pq.read_table(path).to_pylist(maps_as_pydicts="strict")
    for source, names in [(parquet, "home-zip"), (avro, "home_zip")]:
        config = tool.folder / "arrays.yaml"
        config.write_text(policy.replace("home-zip", names))
        read = {
            "parquet": table, "avro": lambda out: list(fastavro.reader(io.BytesIO(out.read_bytes()))),
            "jsonl": lambda out: [json.loads(line) for line in out.read_text().splitlines()]}
        for kind in read if source is avro else ["parquet", "jsonl"]:
            out = tool.anonymize(source, f"arrays.out.{kind}", policy=config)
            found = read[kind](out)
            expect(len(found) > 300, f"{source.name} to {kind}: {len(found)} rows")
            for row in found:
                got = kept(row)
                expect(row["ids"][1] == row["ids"][0] + 1 and got == expected[row["ids"][0]], f"{source.name} to {kind}: {got}")
            if kind == "parquet":
                kinds = pq.read_table(out).schema
                for name in ["tags", "visits", "ill", "marks", "grid"]:
                    expect(kinds.field(name).type == schema.field(name).type, f"{name} is {kinds.field(name).type}")
                expect(kinds.field("ids").type.value_type == pa.int64(), f"ids is {kinds.field('ids').type}")
                expect(pq.read_table(out, columns=["ids", "visits"]).num_rows == len(found), "columns by name")
            done = tool.run("verify", "-c", config, out)
            expect(done.returncode == 0, f"verify {kind}: {done.stdout} {done.stderr}")
    print("arrays: lists, lists of lists and of records, maps, nulls and empty ones, from Parquet and Avro to Parquet, Avro and JSON")


def avro_in(tool, rows, base):
    schema = fastavro.parse_schema(AVRO)
    data = [{k.replace("-", "_"): v for k, v in row.items()} for row in rows]
    for codec in ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"]:
        source = tool.folder / f"{codec}.avro"
        with open(source, "wb") as out:
            fastavro.writer(out, schema, data, codec=codec)
        expect(rows_of(tool.anonymize(source, "from.parquet", policy=tool.avro_policy)) == base, f"avro {codec}")
    expect(rows_of(tool.anonymize(source, "from.avro", policy=tool.avro_policy)) == base, "avro to avro")
    print("avro in: 6 codecs")


def as_text(rows):
    return [{k: plain(v) if k == "seen" else ("" if v is None else str(v).lower() if k == "fit" else str(v))
             for k, v in row.items()} for row in rows]


def text_in(tool, rows, base):
    rows = as_text(rows)
    head = io.StringIO()
    writer = csv.DictWriter(head, rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
    text = head.getvalue()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    array = json.dumps(rows, indent=1)
    forms = {
        "a.csv": text.encode(), "a.csv.gz": gzip.compress(text.encode()), "unnamed": gzip.compress(text.encode()),
        "a.csv.zst": zstandard.compress(text.encode()), "wide.csv": text.encode("utf-16"), "bom.csv": text.encode("utf-8-sig"),
        "a.jsonl": lines.encode(), "a.jsonl.zst": zstandard.compress(lines.encode()), "array.json": array.encode(),
        "array.json.gz": gzip.compress(array.encode()),
    }
    for name, data in forms.items():
        (tool.folder / name).write_bytes(data)
        out = tool.anonymize(tool.folder / name, "text.csv")
        expect(rows_of(out) == base, f"rows from {name}")
    latin = tool.folder / "latin.csv"
    latin.write_bytes(text.encode("latin-1"))
    expect(rows_of(tool.anonymize(latin, "latin.out.csv", "--encoding", "latin-1")) == base, "latin-1")
    told = tool.run("anonymize", "-c", tool.policy, latin, "-o", tool.folder / "x.csv")
    expect("--encoding latin-1" in told.stderr, f"no remedy for latin-1: {told.stderr}")
    for name in ["b.csv.gz", "b.csv.zst", "b.jsonl.gz", "b.jsonl.zst", "b.jsonl", "b.parquet"]:
        expect(rows_of(tool.anonymize(tool.folder / "a.csv", name)) == base, f"rows in {name}")
    print("text in and out: gzip, zstd, arrays, UTF-16, Latin-1")


HOUSEHOLDS = """
policy:
  quasi_identifiers:
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
    - { name: members.age, hierarchy: { intervals: { widths: [5, 10, 20, 40], min: 0, max: 120 } } }
    - { name: members.born, hierarchy: { date: [day, month, year, decade] } }
  sensitive: [{ name: members.job }]
  keep: [{ name: members.fit, reviewed: true }]
  subject: members.id
  privacy: [{ k-anonymity: 5 }]
  suppression: { limit: 0.1 }
source: { file: { path: unused.jsonl, explode: members } }
"""


def elements(tool, rows):
    """Households with their members: a row of each, alike in every format that has arrays; some households have none."""
    policy = tool.folder / "households.yaml"
    policy.write_text(HOUSEHOLDS)
    fields = ["age", "born", "job", "fit", "note"]
    member = lambda i: {"id": i, **{name: rows[i][name] for name in fields}}
    houses, at = [], 0
    while at < len(rows):
        size = at % 4
        houses.append({"zip": rows[at]["home-zip"], "note": CANARY, "members": [member(i) for i in range(at, min(at + size, len(rows)))]})
        at += max(size, 1)
    empty = sum(not house["members"] for house in houses)
    plain_json = lambda value: value.isoformat() if isinstance(value, datetime.date) else value
    sources = [tool.folder / name for name in ("houses.jsonl", "houses.parquet", "houses.avro")]
    sources[0].write_text("".join(json.dumps(house, default=plain_json) + "\n" for house in houses))
    inner = [("id", pa.int64()), ("age", pa.int32()), ("born", pa.date32()), ("job", pa.string()), ("fit", pa.bool_()), ("note", pa.string())]
    schema = pa.schema([("zip", pa.string()), ("note", pa.string()), ("members", pa.list_(pa.struct(inner)))])
    pq.write_table(pa.Table.from_pylist(houses, schema), sources[1])
    inner = [{"name": "id", "type": "long"}, *(f for f in AVRO["fields"] if f["name"] in fields)]
    avro = {"type": "record", "name": "House", "fields": [
        {"name": "zip", "type": "string"}, {"name": "note", "type": "string"},
        {"name": "members", "type": {"type": "array", "items": {"type": "record", "name": "Member", "fields": inner}}}]}
    with open(sources[2], "wb") as out:
        fastavro.writer(out, fastavro.parse_schema(avro), houses)
    seen = set()
    for source in sources:
        for name in ("houses.out.jsonl", "houses.out.avro"):
            report = tool.folder / "houses.json"
            out = tool.anonymize(source, name, "--report", report, policy=policy)
            read = fastavro.reader(io.BytesIO(out.read_bytes())) if name.endswith(".avro") else map(json.loads, out.read_text().splitlines())
            found = sorted(json.dumps(row, sort_keys=True) for row in read)
            seen.add("\n".join(found))
            counts = json.loads(report.read_text())
            expect(counts["records_in"] == len(houses) and counts["records_rejected"] == empty, f"{source}: households are counted: {counts}")
            expect(len(found) > counts["records_published"] > 0.7 * (len(houses) - empty), f"{source}: {len(found)} rows")
            expect(all(set(json.loads(row)) == {"zip", "members"} for row in found), f"{source}: other fields")
    expect(len(seen) == 1, "rows of elements differ by format")
    print("elements of arrays: JSON, Parquet and Avro alike")


def piped(tool, base):
    data = (tool.folder / "a.csv.gz").read_bytes()
    done = subprocess.run([tool.binary, "anonymize", "-c", tool.policy, "-", "-o", tool.folder / "piped.csv", "--seed", "1"],
                          input=data, capture_output=True)
    expect(done.returncode == 0 and rows_of(tool.folder / "piped.csv") == base, f"a pipe: {done.stderr}")
    data = (tool.folder / "snappy.parquet").read_bytes()
    done = subprocess.run([tool.binary, "anonymize", "-c", tool.policy, "-", "-o", tool.folder / "p.csv"],
                          input=data, capture_output=True, text=False)
    expect(done.returncode == 2 and b"through a pipe" in done.stderr, f"parquet in a pipe: {done.stderr}")
    print("pipes: compressed text is read, parquet is refused")


def not_read(tool, rows):
    folder = tool.folder
    pyarrow.orc.write_table(pa.Table.from_pylist(rows).drop_columns(["seen"]), folder / "a.orc")
    with zipfile.ZipFile(folder / "a.xlsx", "w") as book:
        book.writestr("[Content_Types].xml", "<Types/>")
        book.writestr("xl/workbook.xml", "<workbook/>")
    sqlite3.connect(folder / "a.db").execute("create table people (age)").connection.commit()
    (folder / "a.pdf").write_bytes(b"%PDF-1.7\n")
    (folder / "really.csv").write_bytes((folder / "a.orc").read_bytes())
    named = {"a.orc": "an ORC file", "a.xlsx": "an Excel workbook", "a.db": "an SQLite database", "a.pdf": "a PDF document",
             "really.csv": "an ORC file"}
    for name, what in named.items():
        for command in [["anonymize", "-o", folder / "x.csv"], ["verify"], ["search"]]:
            done = tool.run(command[0], "-c", tool.policy, folder / name, *command[1:])
            expect(done.returncode == 2 and what in done.stderr, f"{command[0]} {name}: {done.returncode} {done.stderr}")
    for name in ["safe.orc", "safe.xlsx", "safe.parquet.gz", "safe.gz"]:
        done = tool.run("anonymize", "-c", tool.policy, folder / "a.csv", "-o", folder / name)
        expect(done.returncode == 2 and not (folder / name).exists(), f"{name} was written: {done.stderr}")
    cut = folder / "cut.parquet"
    cut.write_bytes((folder / "snappy.parquet").read_bytes()[:-100])
    done = tool.run("anonymize", "-c", tool.policy, cut, "-o", folder / "x.csv")
    expect(done.returncode in (2, 3) and "corrupt" in done.stderr and "defect" not in done.stderr, f"cut: {done.stderr}")
    print("what is not read is named; unknown extensions are refused")


def service(tool, base_rows):
    folder = tool.folder
    config = folder / "run.yaml"
    sink = folder / "grown.jsonl.gz"
    config.write_text(POLICY + f"window: {{ tumbling: {{ max_records: 200 }} }}\nsource: {{ file: {{ path: {folder}/snappy.parquet }} }}\n"
                               f"sink: {{ file: {{ path: {sink} }} }}\n")
    for times in [1, 2]:
        done = tool.run("run", "-c", config)
        expect(done.returncode == 0, f"run {times}: {done.stderr}")
        summary = json.loads(done.stdout.splitlines()[-1])
        expect(summary["records_in"] == base_rows, f"run: {summary}")
        rows = len(gzip.decompress(sink.read_bytes()).splitlines())
        expect(rows == times * summary["records_published"], f"{rows} rows after {times} runs of {summary}")
    config.write_text(config.read_text().replace("grown.jsonl.gz", "grown.parquet"))
    done = tool.run("validate", "-c", config)
    expect(done.returncode == 2 and "footer" in done.stdout + done.stderr, f"a parquet sink: {done.stdout}{done.stderr}")
    print("run: parquet source, a compressed sink that is continued, a parquet sink that is refused")


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        tool = Tool(binary, pathlib.Path(folder))
        rows = people()
        source = tool.folder / "base.parquet"
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA()), source)
        base = rows_of(tool.anonymize(source, "base.csv"))
        expect(len(base) > 300, f"only {len(base)} rows")
        parquet_in(tool, rows, base)
        parquet_out(tool, source, base)
        nested(tool, rows)
        arrays(tool, rows)
        avro_in(tool, rows, base)
        elements(tool, rows)
        text_in(tool, rows, base)
        piped(tool, base)
        not_read(tool, rows)
        service(tool, len(rows))
    print("FAILED" if failures else "ok", f"({len(failures)} wrong)" if failures else "")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
