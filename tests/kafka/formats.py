#!/usr/bin/env python3
"""Records as they are, from a foreign client to a foreign client, on a real broker and a real registry.

Confluent's Python client writes and reads; the service in between is the binary. Every format is tried in every shape:

    formats   JSON, Avro, Protobuf, JSON Schema (one class each; a new format is a class in FORMATS)
    shapes    flat, nested, array, and Debezium's insert, update and delete

The schemas of the other formats are made from the Avro schema of the shape. Beside the pairs: Protobuf with a file of descriptors
and without a registry, and one format in and another one out. For each pair: the four counts add up to what was read; rows have the fields that the policy names, in the input's shape, and no
other; canaries in unnamed fields at every depth are in no topic; an update is one row of its person; who was deleted while he
waited is in no row.

    tests/kafka/formats.py --binary target/release/veilstream [--only avro-nested]
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

import cluster as c

VENV = c.RUN.parent / "formats-venv"
PACKAGES = ["confluent-kafka[avro,json,protobuf,schemaregistry]==2.11.0", "grpcio-tools"]
CANARY = "cAnArY"
PEOPLE = 300
DELETED = 40


def in_venv():
    """Runs this script again with the packages that it needs."""
    python = VENV / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() != VENV.resolve():
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        if subprocess.run([python, "-c", "import confluent_kafka.schema_registry.avro, confluent_kafka.schema_registry.protobuf, grpc_tools"], capture_output=True).returncode:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        os.execv(python, [str(python), *sys.argv])


# Shapes: the row of a person, its Avro type, and the policy for it.

def person(i):
    return {"id": i, "age": 20 + i % 40, "zip": f"{10000 + i % 3 * 10000}", "diagnosis": ["flu", "cold", "cough"][i % 3], "number": i}


def field(name, of):
    return {"name": name, "type": of}


def record(name, *fields):
    return {"type": "record", "name": name, "fields": list(fields)}


ROW = [field("id", "long"), field("age", "int"), field("zip", "string"), field("diagnosis", "string"), field("number", "long")]


class Flat:
    paths = {"age": "age", "zip": "zip", "sensitive": "diagnosis", "number": "number", "subject": "id"}
    envelope = None
    keep = []
    schema = record("Flat", *ROW, field("canary", "string"))

    def events(self):
        """(key, message) pairs; a message of None is a tombstone."""
        return [(str(i), {**person(i), "canary": CANARY}) for i in range(PEOPLE)]

    def numbers(self):
        """The rows that may be published."""
        return set(range(PEOPLE))


class Nested(Flat):
    paths = {"age": "customer.age", "zip": "customer.address.zip", "sensitive": "diagnosis", "number": "customer.address.number",
             "subject": "customer.id"}
    schema = record(
        "Order",
        field("customer", ["null", record(
            "Customer", field("id", "long"), field("name", "string"), field("age", "int"),
            field("address", record("Address", field("zip", "string"), field("street", "string"), field("number", "long"))),
            field("old", ["null", "Address"]))]),
        field("diagnosis", ["null", "string"]),
        field("more", record("More", field("deep", {"type": "array", "items": record("Deep", field("x", "string"))}))))

    def events(self):
        def order(i):
            p = person(i)
            address = {"zip": p["zip"], "street": CANARY, "number": i}
            customer = {"id": i, "name": CANARY, "age": p["age"], "address": address, "old": {**address, "zip": CANARY}}
            return {"customer": customer, "diagnosis": p["diagnosis"], "more": {"deep": [{"x": CANARY}]}}
        return [(str(i), order(i)) for i in range(PEOPLE)]


class Array(Flat):
    paths = {**Flat.paths, "sensitive": "codes"}
    schema = record("Array", *ROW, field("codes", {"type": "array", "items": "string"}),
                    field("tags", {"type": "array", "items": {"type": "map", "values": "string"}}))

    def events(self):
        sets = [["B20", "E11"], ["E11", "B20", "E11"], ["A00"]]
        return [(str(i), {**person(i), "codes": sets[i % 3], "tags": [{"x": CANARY}]}) for i in range(PEOPLE)]


class Whole(Flat):
    """Arrays and maps that are kept as a whole: of single values, and of records with arrays and maps in them."""
    keep = ["counts", "marks", "visits"]
    schema = record("Whole", *ROW, field("counts", {"type": "array", "items": "long"}), field("marks", {"type": "map", "values": "long"}),
                    field("visits", {"type": "array", "items": record(
                        "Visit", field("ward", "string"), field("days", "int"), field("codes", {"type": "array", "items": "string"}),
                        field("notes", {"type": "map", "values": "string"}))}), field("canary", "string"))

    def events(self):
        notes = lambda j: {f"key {k}": f"ü{k}" for k in range(j)}
        visits = lambda i: [{"ward": f"w{j}", "days": j, "codes": ["A00", "B20"][: i % 3], "notes": notes(j)} for j in range(i % 4)]
        own = lambda i: {"counts": list(range(i % 3)), "marks": {f"m{j}": i * j for j in range(i % 4)}, "visits": visits(i)}
        return [(str(i), {**person(i), **own(i), "canary": CANARY}) for i in range(PEOPLE)]

    def whole(self, i):
        message = self.events()[i][1]
        return {name: message[name] for name in self.keep}


class Grid(Whole):
    """Lists of lists and maps of maps, which Protobuf does not have."""
    keep = ["grid", "tree"]
    schema = record("Grid", *ROW, field("grid", {"type": "array", "items": {"type": "array", "items": "long"}}),
                    field("tree", {"type": "map", "values": {"type": "map", "values": "string"}}), field("canary", "string"))

    def events(self):
        own = lambda i: {"grid": [list(range(j)) for j in range(i % 4)], "tree": {f"t{j}": {"x": f"leaf {i}"} for j in range(i % 3)}}
        return [(str(i), {**person(i), **own(i), "canary": CANARY}) for i in range(PEOPLE)]


class Insert(Flat):
    envelope = "debezium"
    value = record("Value", *ROW, field("canary", "string"))
    schema = record("Envelope", field("before", ["null", value]), field("after", ["null", "Value"]),
                    field("source", record("Source", field("db", "string"))), field("op", "string"), field("ts_ms", ["null", "long"]))

    def change(self, op, before=None, after=None):
        row = lambda i: None if i is None else {**person(i), "canary": CANARY}
        return {"before": row(before), "after": row(after), "source": {"db": CANARY}, "op": op, "ts_ms": 1}

    def events(self):
        return [(str(i), self.change("c", after=i)) for i in range(PEOPLE)]


class Update(Insert):
    def events(self):
        def update(i):
            change = self.change("u", before=i, after=i)
            change["before"]["zip"] = CANARY
            return change
        return [(str(i), update(i)) for i in range(PEOPLE)]


class Delete(Insert):
    def events(self):
        deletes = [event for i in range(DELETED) for event in [(str(i), self.change("d", before=i)), (str(i), None)]]
        return super().events() + deletes

    def numbers(self):
        return set(range(DELETED, PEOPLE))


SHAPES = {"flat": Flat, "nested": Nested, "array": Array, "insert": Insert, "update": Update, "delete": Delete, "whole": Whole}
MORE_SHAPES = {"grid": Grid}


# Formats: bytes of messages, and their configuration.

class Json:
    def __init__(self, registry):
        self.config = self.sink = "format: json"

    def writer(self, topic, shape):
        # Every other change event has its schema part, as Kafka Connect's JSON converter writes it.
        count = iter(range(10**9))

        def write(message):
            if shape.envelope and next(count) % 2:
                message = {"schema": {"type": "struct", "name": CANARY}, "payload": message}
            return json.dumps(message).encode()
        return write

    def reader(self, topic):
        return lambda payload: json.loads(payload)


class WithRegistry:
    """Formats whose schemas are in the registry, under the topic's name."""

    def __init__(self, registry):
        from confluent_kafka.schema_registry import SchemaRegistryClient
        self.client = SchemaRegistryClient({"url": registry})
        self.config = self.sink = f"format: {self.name}\n    registry: {{ url: {registry} }}"

    def context(self, topic):
        from confluent_kafka.serialization import MessageField, SerializationContext
        return SerializationContext(topic, MessageField.VALUE)


class Avro(WithRegistry):
    name = "confluent-avro"

    def writer(self, topic, shape):
        from confluent_kafka.schema_registry.avro import AvroSerializer
        serialize = AvroSerializer(self.client, json.dumps(shape.schema))
        return lambda message: serialize(message, self.context(topic))

    def reader(self, topic):
        from confluent_kafka.schema_registry.avro import AvroDeserializer
        deserialize = AvroDeserializer(self.client)
        return lambda payload: deserialize(payload, self.context(topic))


class JsonSchema(WithRegistry):
    name = "confluent-json"

    def writer(self, topic, shape):
        from confluent_kafka.schema_registry.json_schema import JSONSerializer
        serialize = JSONSerializer(json.dumps({"title": "Message", **json_schema(shape.schema, {})}), self.client)
        return lambda message: serialize(message, self.context(topic))

    def reader(self, topic):
        # Checks each row against the schema that was registered for it.
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer
        deserialize = JSONDeserializer(None, schema_registry_client=self.client)
        return lambda payload: deserialize(payload, self.context(topic))


class Protobuf(WithRegistry):
    name = "confluent-protobuf"

    def writer(self, topic, shape):
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
        self.of = protobuf_class(proto(shape.schema), shape.schema["name"])
        serialize = ProtobufSerializer(self.of, self.client, {"use.deprecated.format": False})
        return lambda message: serialize(filled(self.of(), message), self.context(topic))

    def reader(self, topic):
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
        text = self.client.get_latest_version(f"{topic}-value").schema.schema_str
        of = protobuf_class(text, "Published")
        deserialize = ProtobufDeserializer(of, {"use.deprecated.format": False})
        return lambda payload: unfilled(deserialize(payload, self.context(topic)))


class Descriptor(Protobuf):
    """Protobuf without a registry: the type of the messages is in a file. Rows go out as JSON."""

    def __init__(self, registry):
        self.path = c.RUN / f"formats-{uuid.uuid4().hex[:6]}.desc"
        self.sink = "format: json"

    def writer(self, topic, shape):
        of = protobuf_class(proto(shape.schema), shape.schema["name"], self.path)
        self.config = f"format: protobuf\n    descriptor: {self.path}\n    message: {of.DESCRIPTOR.full_name}"
        return lambda message: filled(of(), message).SerializeToString()

    def reader(self, topic):
        return Json(None).reader(topic)


def mixed(source, sink):
    """One format in, another one out."""
    class Mixed:
        def __init__(self, registry):
            self.input, self.output = source(registry), sink(registry)
            self.config, self.sink = self.input.config, self.output.sink
            self.writer, self.reader = self.input.writer, self.output.reader
    return Mixed


FORMATS = {"json": Json, "avro": Avro, "protobuf": Protobuf, "json-schema": JsonSchema}
MORE = {
    "descriptor": (Descriptor, ["nested", "array", "delete"]),
    "protobuf-to-json": (mixed(Protobuf, Json), ["nested"]),
    "avro-to-avro": (Avro, ["grid"]),
    "json-schema-to-json-schema": (JsonSchema, ["grid"]),
    "protobuf-to-avro": (mixed(Protobuf, Avro), ["array", "whole"]),
    "avro-to-protobuf": (mixed(Avro, Protobuf), ["nested", "array", "whole", "grid"]),
    "json-to-protobuf": (mixed(Json, Protobuf), ["nested"]),
    "json-schema-to-protobuf": (mixed(JsonSchema, Protobuf), ["array"]),
    "json-schema-to-avro": (mixed(JsonSchema, Avro), ["update", "whole", "grid"]),
}


def json_schema(of, named):
    """An Avro type as a JSON Schema."""
    simple = {"long": "integer", "int": "integer", "string": "string", "null": "null"}
    if isinstance(of, list):
        return {"anyOf": [json_schema(branch, named) for branch in of]}
    if isinstance(of, str):
        return {"type": simple[of]} if of in simple else named[of]
    if of["type"] == "array":
        return {"type": "array", "items": json_schema(of["items"], named)}
    if of["type"] == "map":
        return {"type": "object", "additionalProperties": json_schema(of["values"], named)}
    named[of["name"]] = schema = {"type": "object", **({"additionalProperties": False} if of["name"] == "Visit" else {})}
    schema["properties"] = {f["name"]: json_schema(f["type"], named) for f in of["fields"]}
    return schema


def proto(of):
    """An Avro record as a Protobuf file; the record is not its first message."""
    done, simple = {}, {"long": "int64", "int": "int32", "string": "string"}

    def name(of):
        if isinstance(of, list):
            return name(next(branch for branch in of if branch != "null"))
        if isinstance(of, str):
            return simple.get(of, of)
        if of["type"] == "array":
            return f"repeated {name(of['items'])}"
        if of["type"] == "map":
            # A list of maps is a list of messages that hold one.
            done["Entries"] = f"message Entries {{ map<string, {name(of['values'])}> entries = 1; }}"
            return "Entries"
        of_map = lambda of: f"map<string, {name(of['values'])}>" if isinstance(of, dict) and of["type"] == "map" else name(of)
        fields = [f"{of_map(f['type'])} {f['name']} = {number};" for number, f in enumerate(of["fields"], 3)]
        done[of["name"]] = f"message {of['name']} {{ {' '.join(fields)} }}"
        return of["name"]

    name(of)
    return "\n".join(['syntax = "proto3";', "package shapes;", "message First { string x = 1; }", *done.values()])


def protobuf_class(text, name, descriptor=None):
    """The class of a message in a file, given as text or in base64 as Confluent's client registers it."""
    import base64
    import tempfile
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from grpc_tools import protoc
    pool = descriptor_pool.DescriptorPool()
    if "syntax" in text:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            file = f"{name.lower()}_{uuid.uuid4().hex[:6]}.proto"
            (path / file).write_text(text)
            out = descriptor or path / "out.desc"
            assert protoc.main(["protoc", f"-I{folder}", "--include_imports", f"--descriptor_set_out={out}", file]) == 0, text
            files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out).read_bytes()).file
    else:
        files = [descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))]
    for file in files:
        pool.Add(file)
    package = files[-1].package
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}" if package else name))


def filled(message, values):
    """Sets the fields of a message; null is not set."""
    for key, value in values.items():
        if isinstance(value, dict) and is_map(message.DESCRIPTOR.fields_by_name[key]):
            getattr(message, key).update(value)
        elif isinstance(value, dict):
            getattr(message, key).SetInParent()
            filled(getattr(message, key), value)
        elif isinstance(value, list):
            for item in value:
                if not isinstance(item, dict):
                    getattr(message, key).append(item)
                elif message.DESCRIPTOR.fields_by_name[key].message_type.name == "Entries":
                    getattr(message, key).add().entries.update(item)
                else:
                    filled(getattr(message, key).add(), item)
        elif value is not None:
            setattr(message, key, value)
    return message


def is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def unfilled(message):
    """A message with all its fields. What its type does not name must not be there."""
    from google.protobuf import unknown_fields
    assert not len(unknown_fields.UnknownFieldSet(message)), "fields that the schema does not name"
    one = lambda value: unfilled(value) if hasattr(value, "DESCRIPTOR") else value
    several = lambda field: field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    of_map = lambda values: {key: one(values[key]) for key in values}
    return {f.name: of_map(getattr(message, f.name)) if is_map(f) else
            [one(v) for v in getattr(message, f.name)] if several(f) else one(getattr(message, f.name))
            for f in message.DESCRIPTOR.fields}


CONFIG = """
policy:
  quasi_identifiers:
    - {{ name: {age}, hierarchy: {{ intervals: {{ widths: [10, 20, 40], min: 0, max: 120 }} }} }}
    - {{ name: {zip}, hierarchy: {{ prefix: {{ length: 5 }} }} }}
  sensitive: [{{ name: {sensitive} }}]
  keep: [{{ name: {number}, reviewed: true }}{keep}]
  subject: {subject}
  privacy: [{{ k-anonymity: 5 }}]
  suppression: {{ limit: 0.5 }}
window: {{ tumbling: {{ max_records: {messages}, max_age: 60s }} }}
source:
  kafka:
    brokers: {brokers}
    topic: {topic}
    group: {topic}
    {envelope}
    {format}
sink:
  kafka:
    topic: {topic}-safe
    transactional_id: {topic}
    create_topics: true
    {sink}
"""


def leaves(value, keep, outer=""):
    """The paths of a row and their values; what is kept is one value."""
    for key, inner in value.items():
        path = f"{outer}{key}"
        if isinstance(inner, dict) and path not in keep:
            yield from leaves(inner, keep, path + ".")
        else:
            yield path, inner


def consume(brokers, topics, until, seconds):
    """Committed messages of these topics, by topic, until `until` is content with them and no more come."""
    from confluent_kafka import Consumer
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest",
                         "isolation.level": "read_committed", "topic.metadata.refresh.interval.ms": 500})
    consumer.subscribe(topics)
    found = {topic: [] for topic in topics}
    end, last = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < end and not (until(found) and time.monotonic() - last > 3):
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            found[message.topic()].append(message)
            last = time.monotonic()
    consumer.close()
    assert until(found), f"after {seconds} s: { {t: len(m) for t, m in found.items()} }"
    return found


def produce(brokers, topic, write, events):
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": brokers})
    for key, message in events:
        producer.produce(topic, key=key, value=None if message is None else write(message))
        producer.poll(0)
    assert producer.flush(30) == 0, "not all messages were taken"


def served(binary, brokers, config, topic):
    """Runs the service until it has published: all that it wrote by topic, its summary, and what it said."""
    service = subprocess.Popen([binary, "run", "-c", config], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    safe = f"{topic}-safe"
    topics = [safe, f"{safe}-manifests", f"{safe}-journal", f"{safe}-dead-letters"]
    log = ""
    try:
        rows = lambda found: sum(json.loads(entry.value())["rows"] for entry in found[topics[2]])
        done = lambda found: found[topics[1]] and 0 < rows(found) <= len(found[safe])
        found = consume(brokers, topics, done, 90)
    finally:
        service.send_signal(signal.SIGTERM)
        out, log = service.communicate(timeout=60)
        if service.returncode:
            print(log[-2000:], file=sys.stderr)
    return found, json.loads(out.strip().splitlines()[-1]), log + out


def pair(binary, brokers, registry, kind, of, name):
    topic = f"{kind}-{name}-{uuid.uuid4().hex[:6]}"
    codec, shape = of(registry), {**SHAPES, **MORE_SHAPES}[name]()
    events = shape.events()
    produce(brokers, topic, codec.writer(topic, shape), events)
    envelope = f"envelope: {shape.envelope}" if shape.envelope else ""
    config = c.RUN / f"{topic}.yaml"
    keep = "".join(f", {{ name: {name}, reviewed: true }}" for name in shape.keep)
    config.write_text(CONFIG.format(**shape.paths, keep=keep, messages=len(events), brokers=brokers, topic=topic, envelope=envelope,
                                    format=codec.config, sink=codec.sink))
    checked = subprocess.run([binary, "validate", "-c", config, "--sample", topic], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    found, summary, log = served(binary, brokers, config, topic)
    safe, rejected = f"{topic}-safe", len(events) - PEOPLE
    counts = [summary[f"records_{end}"] for end in ("published", "suppressed", "held", "rejected")]
    assert summary["records_in"] == len(events) == sum(counts), (summary, len(events))
    assert counts[3] == rejected, summary
    # They are deletes and tombstones: nobody has to look at them.
    assert not found[f"{safe}-dead-letters"], "a delete has a dead letter"
    read = codec.reader(safe)
    rows = [read(message.value()) for message in found[safe]]
    wanted = {shape.paths[role] for role in ("age", "zip", "sensitive", "number")} | set(shape.keep)
    for row in rows:
        assert {path for path, _ in leaves(row, shape.keep)} == wanted, row
    flat = [dict(leaves(row, shape.keep)) for row in rows]
    assert all(isinstance(row[shape.paths["age"]], str) for row in flat)
    assert all(row[shape.paths["sensitive"]] for row in flat), "a sensitive value is lost"
    # From an input without types it is text.
    numbers = [int(row[shape.paths["number"]]) for row in flat]
    for row in flat if shape.keep else []:
        whole = shape.whole(int(row[shape.paths["number"]]))
        kept = {name: row[name] for name in shape.keep}
        if kind.endswith("protobuf") and name == "grid":
            # Protobuf has no list in a list and no map in a map: those inside are JSON text.
            kept = {"grid": [json.loads(text) for text in kept["grid"]], "tree": {key: json.loads(text) for key, text in kept["tree"].items()}}
        assert kept == whole, (kept, whole)
    assert len(numbers) == len(set(numbers)), "a person was published twice"
    assert len(numbers) == counts[0], f"{len(numbers)} rows were read, {counts[0]} were published"
    assert set(numbers) <= shape.numbers(), "somebody was published who was deleted"
    assert len(numbers) >= len(shape.numbers()) // 2, f"only {len(numbers)} rows"
    for message in (m for messages in found.values() for m in messages):
        assert message.key() is None or CANARY.encode() not in message.key()
        assert CANARY.encode() not in (message.value() or b""), f"a canary is in {message.topic()}"
    assert CANARY not in log + checked.stdout + checked.stderr
    return len(rows)


class Changing(Flat):
    """One topic whose schema changes every PEOPLE / 6 messages, all in one window. Only the values of named fields may be seen."""
    base = {"id": "long", "age": "int", "zip": "string", "diagnosis": "string", "number": "long", "note": "string", "score": "int",
            "level": {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH"]}, "canary": "string"}
    keep = ["note", "score", "level", "visit"]
    # What each step adds to the one before: a field, one less, another name (with the alias that it had), a wider type, one more symbol,
    # and a quasi-identifier that is gone. What is inside a kept record grows with the first of them, and canaries stand in records and
    # lists that nobody named.
    steps = ["first", "added", "removed", "renamed", "widened", "symbol"]

    def schema_at(self, step):
        fields = dict(self.base)
        if step >= 1:
            fields["added"] = "string"
        if step >= 2:
            del fields["note"]
        if step >= 4:
            fields["score"] = "long"
        if step >= 5:
            fields["level"] = {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH", "TOP"]}
        if step == 6:
            del fields["zip"]
        fields["visit"] = record("Visit", field("ward", "string"), *([field("days", "int")] if step >= 1 else []))
        fields["deep"] = record("Deep", field("x", "string"), *([field("y", "string")] if step >= 2 else []),
                                field("more", {"type": "array", "items": record("Deeper", field("z", "string"))}))
        made = record("Changing", *(field(name, of) for name, of in fields.items()))
        if step >= 3:
            job = next(f for f in made["fields"] if f["name"] == "canary")
            job.update(name="canary_now", aliases=["canary"])
        return made

    def message_at(self, step, i):
        names = {f["name"] for f in self.schema_at(step)["fields"]}
        score = i + (2 ** 40 if step >= 4 else 0)
        every = {**person(i), "note": f"note {i % 7}", "score": score, "level": ["LOW", "HIGH", "TOP"][i % (3 if step >= 5 else 2)],
                 "added": CANARY, "canary": CANARY, "canary_now": CANARY, "visit": {"ward": f"w{i % 5}", **({"days": 1 + i % 9} if step >= 1 else {})},
                 "deep": {"x": CANARY, **({"y": CANARY} if step >= 2 else {}), "more": [{"z": CANARY}]}}
        return {name: value for name, value in every.items() if name in names}


# Numbers of Protobuf's fields stay with their names.
PROTO_NUMBERS = {name: number for number, name in enumerate([*Changing.base, "added", "canary_now", "visit", "deep"], 3)}


def changing_proto(schema):
    simple = {"long": "int64", "int": "int32", "string": "string"}
    symbols = [f["type"]["symbols"] for f in schema["fields"] if f["name"] == "level"][0]
    enum = " ".join(f"{symbol} = {number};" for number, symbol in enumerate(symbols))
    number = lambda name: PROTO_NUMBERS["canary" if name == "canary_now" else name]
    kind = lambda f: simple[f["type"]] if isinstance(f["type"], str) else f["type"]["name"]
    inner = "message Visit { optional string ward = 1; optional int32 days = 2; } message Deeper { string z = 1; } " \
            "message Deep { string x = 1; string y = 2; repeated Deeper more = 3; }"
    # Of a field that says whether it is there, a missing one is told from an empty one.
    fields = [f"optional {kind(f)} {f['name']} = {number(f['name'])};" for f in schema["fields"]]
    return f"syntax = \"proto3\"; package shapes; enum Level {{ {enum} }} {inner} message Changing {{ {' '.join(fields)} }}"


def changing_writer(kind, registry, topic, shape, step):
    """Bytes of messages of one step, with its own schema."""
    schema = shape.schema_at(step)
    if kind == "json":
        return lambda message: json.dumps(message).encode()
    if kind == "avro":
        own = Avro(registry)
        return own.writer(topic, argparse.Namespace(schema=schema))
    if kind == "json-schema":
        own = JsonSchema(registry)
        strings = {**schema, "fields": [{**f, "type": "string"} if f["name"] == "level" else f for f in schema["fields"]]}
        return own.writer(topic, argparse.Namespace(schema=strings))
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    own = Protobuf(registry)
    of = protobuf_class(changing_proto(schema), "Changing")
    serialize = ProtobufSerializer(of, own.client, {"use.deprecated.format": False})
    return lambda message: serialize(filled(of(), message), own.context(topic))


def changing(binary, brokers, registry, kind):
    """Schemas that change in the middle of a window: rows of all of them, in one schema, and nothing that the policy does not name."""
    topic, shape = f"changing-{kind}-{uuid.uuid4().hex[:6]}", Changing()
    part, last = PEOPLE // len(shape.steps), len(shape.steps)
    at = lambda i: min(i // part, last - 1)
    # Interleaved, so that no two neighbours have one schema; at the end people whose postal code no schema has.
    order = sorted(range(PEOPLE), key=lambda i: (i % part, i))
    codec = FORMATS[kind](registry)
    writers = [changing_writer(kind, registry, topic, shape, step) for step in range(last + 1)]
    events = [(str(i), writers[at(i)](shape.message_at(at(i), i))) for i in order]
    nameless = range(PEOPLE, PEOPLE + 20)
    events[PEOPLE // 2:PEOPLE // 2] = [(str(i), writers[last](shape.message_at(last, i))) for i in nameless]
    produce(brokers, topic, lambda payload: payload, events)
    config = c.RUN / f"{topic}.yaml"
    keep = "".join(f", {{ name: {name}, reviewed: true }}" for name in shape.keep)
    config.write_text(CONFIG.format(**shape.paths, keep=keep, messages=len(events), brokers=brokers, topic=topic, envelope="",
                                    format=codec.config, sink=codec.sink))
    found, summary, log = served(binary, brokers, config, topic)
    safe = f"{topic}-safe"
    # Without its postal code nobody is published: fail closed, by position.
    assert summary["records_in"] == len(events) and summary["records_rejected"] == len(nameless), summary
    letters = [json.loads(letter) if kind != "avro" else None for letter in (m.value() for m in found[f"{safe}-dead-letters"])]
    assert len(letters) == len(nameless), letters
    assert all(letter is None or (letter["code"], letter["field"]) == ("missing_field", "zip") for letter in letters), letters[:2]
    read = codec.reader(safe)
    rows = [read(message.value()) for message in found[safe]]
    releases = {dict(message.headers())["veilstream-release"] for message in found[safe]}
    assert len(releases) == 1, "one window, and one release"
    assert len(rows) >= PEOPLE // 2, len(rows)
    for row in rows:
        assert set(row) == {"age", "zip", "diagnosis", "number", *shape.keep}, row
        i = int(row["number"])
        sent = shape.message_at(at(i), i)
        for name in shape.keep:
            wanted, got = sent.get(name), row[name]
            if name == "visit":
                got = {key: value for key, value in got.items() if value}
            # What a message of Protobuf does not have is read as its default.
            same = got == wanted or str(got) == str(wanted) or (wanted is None and got in ("", 0))
            assert same, (kind, name, got, wanted)
    assert len({at(int(row["number"])) for row in rows}) == last, "rows of every schema"
    for message in (m for messages in found.values() for m in messages):
        assert CANARY.encode() not in (message.value() or b""), f"a canary is in {message.topic()}"
    assert CANARY not in log
    return len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=c.ROOT / "target/release/veilstream")
    parser.add_argument("--only", help="one pair, such as avro-nested, or one format")
    args = parser.parse_args()
    in_venv()
    space = c.Cluster("formats")
    registry_dir = c.RUN / "formats-registry"
    registry = c.ROOT / "tests" / "infra" / "registry"
    env = dict(line.split("=", 1) for line in c.patiently(registry, "up", "--dir", registry_dir).splitlines() if "=" in line)
    failed = 0
    try:
        matrix = [(kind, of, name) for kind, of in FORMATS.items() for name in SHAPES]
        matrix += [(kind, of, name) for kind, (of, names) in MORE.items() for name in names]
        for kind, of, name in matrix:
            if args.only not in (None, kind, f"{kind}-{name}"):
                continue
            try:
                rows = pair(args.binary, space.bootstrap, env["REGISTRY"].strip("'\""), kind, of, name)
                print(f"ok   {kind} {name}: {rows} rows", flush=True)
            except Exception as error:
                # A row that the client cannot read is a failure like others.
                failed += 1
                print(f"FAIL {kind} {name}: {type(error).__name__}: {error}", flush=True)
        for kind in FORMATS:
            if args.only not in (None, "changing", f"{kind}-changing"):
                continue
            try:
                rows = changing(args.binary, space.bootstrap, env["REGISTRY"].strip("'\""), kind)
                print(f"ok   {kind} changing: {rows} rows", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL {kind} changing: {type(error).__name__}: {error}", flush=True)
    finally:
        space.down()
        c.run(registry, "down", registry_dir)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
