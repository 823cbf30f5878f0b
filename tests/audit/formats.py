"""Files of records, written and read without the program's help: CSV, JSON lines, Avro containers.

A record is a list of (field, value). A value is MISSING, None, a bool, a Decimal, a text, or a RAW piece of JSON. What is read
back has the same values; CSV has texts only.
"""

import csv
import io
import json
import struct
from decimal import Decimal


class Missing:
    """The one value of a field that is absent, copied or not."""

    def __deepcopy__(self, memo):
        return self


MISSING = Missing()


class Raw(str):
    """JSON that is no scalar."""


def json_text(value):
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def csv_text(value):
    if value is None or value is MISSING:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def write(format, names, records, delimiter=","):
    """The bytes of a file. A record that is a text is written as it is: a line that cannot be read."""
    if format == "avro":
        return write_avro(names, records)
    lines = [] if format == "jsonl" else [csv_line(names, delimiter)]
    for record in records:
        if isinstance(record, str):
            lines.append(record)
        elif format == "jsonl":
            fields = [f"{json.dumps(n)}:{json_text(v)}" for n, v in record.items() if v is not MISSING]
            lines.append("{" + ",".join(fields) + "}")
        else:
            lines.append(csv_line([csv_text(record[n]) for n in names], delimiter))
    return "".join(line + "\n" for line in lines).encode()


def csv_line(cells, delimiter):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="").writerow(cells)
    return out.getvalue()


def read(format, data, delimiter=","):
    """The field names and the records of a file."""
    if format == "avro":
        return read_avro(data)
    text = data.decode()
    if format == "jsonl":
        records = [json_record(line) for line in text.split("\n") if line]
        return (list(records[0]) if records else None), records
    lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    if not lines:
        return None, []
    bad = [line for line in lines if len(line) != len(lines[0])]
    if bad:
        raise ValueError(f"{len(bad)} lines of another length than the header")
    return lines[0], [dict(zip(lines[0], line)) for line in lines[1:]]


def json_record(line):
    def once(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key twice in one object")
        return dict(pairs)

    return json.loads(line, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=once)


def long(value):
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def chunk(data):
    return long(len(data)) + data


ANY = ["null", "boolean", "long", "double", "string"]
SYNC = bytes(range(16))


def write_avro(names, records):
    fields = [{"name": n, "type": ANY} for n in names]
    schema = json.dumps({"type": "record", "name": "Person", "fields": fields}).encode()
    head = b"Obj\x01" + long(2) + chunk(b"avro.schema") + chunk(schema) + chunk(b"avro.codec") + chunk(b"null") + long(0)
    body = b"".join(avro_any(record[n]) for record in records for n in names)
    block = long(len(records)) + chunk(body) + SYNC if records else b""
    return head + SYNC + block


def avro_any(value):
    if value is None or value is MISSING:
        return long(0)
    if isinstance(value, bool):
        return long(1) + bytes([value])
    if isinstance(value, Decimal):
        whole = value == value.to_integral_value() and "." not in str(value)
        return long(2) + long(int(value)) if whole else long(3) + struct.pack("<d", float(value))
    return long(4) + chunk(value.encode())


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        if self.at > len(self.data):
            raise ValueError("the file ends too early")
        return self.data[self.at - n:self.at]

    def long(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def chunk(self):
        return self.take(self.long())

    def value(self, kind):
        if isinstance(kind, list):
            return self.value(kind[self.long()])
        kind = kind["type"] if isinstance(kind, dict) else kind
        if kind == "null":
            return None
        if kind == "boolean":
            return self.take(1) == b"\x01"
        if kind in ("int", "long"):
            return Decimal(self.long())
        if kind == "double":
            return Decimal(repr(struct.unpack("<d", self.take(8))[0]))
        if kind == "string":
            return self.chunk().decode()
        raise ValueError(f"an unexpected type {kind}")


def read_avro(data):
    reader = Reader(data)
    if reader.take(4) != b"Obj\x01":
        raise ValueError("not an Avro container")
    meta = {}
    while count := reader.long():
        for _ in range(count):
            key = reader.chunk()
            meta[key] = reader.chunk()
    if meta.get(b"avro.codec", b"null") != b"null":
        raise ValueError("a codec that is not read here")
    fields = json.loads(meta[b"avro.schema"])["fields"]
    sync = reader.take(16)
    records = []
    while reader.at < len(data):
        count, _ = reader.long(), reader.long()
        records += [{f["name"]: reader.value(f["type"]) for f in fields} for _ in range(count)]
        if reader.take(16) != sync:
            raise ValueError("a block does not end with its marker")
    return [f["name"] for f in fields], records
