#!/usr/bin/env python3
"""Records as they are, from a foreign client to a foreign client, on a real broker and a real registry.

Confluent's Python client writes and reads; the service in between is the binary. Every format is tried in every shape:

    formats   JSON, Avro (one class each; a new format is a class in FORMATS)
    shapes    flat, nested, array, and Debezium's insert, update and delete

For each pair: the four counts add up to what was read; rows have the fields that the policy names, in the input's shape, and no
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
PACKAGES = ["confluent-kafka[avro,json,schemaregistry]==2.11.0"]
CANARY = "cAnArY"
PEOPLE = 300
DELETED = 40


def in_venv():
    """Runs this script again with the packages that it needs."""
    python = VENV / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() != VENV.resolve():
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        if subprocess.run([python, "-c", "import confluent_kafka.schema_registry.avro"], capture_output=True).returncode:
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


SHAPES = {"flat": Flat, "nested": Nested, "array": Array, "insert": Insert, "update": Update, "delete": Delete}


# Formats: bytes of messages, and their configuration.

class Json:
    config = "format: json"

    def __init__(self, registry):
        pass

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


class Avro:
    def __init__(self, registry):
        from confluent_kafka.schema_registry import SchemaRegistryClient
        self.client = SchemaRegistryClient({"url": registry})
        self.config = f"format: confluent-avro\n    registry: {{ url: {registry} }}"

    def writer(self, topic, shape):
        from confluent_kafka.schema_registry.avro import AvroSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext
        serialize = AvroSerializer(self.client, json.dumps(shape.schema))
        context = SerializationContext(topic, MessageField.VALUE)
        return lambda message: serialize(message, context)

    def reader(self, topic):
        from confluent_kafka.schema_registry.avro import AvroDeserializer
        from confluent_kafka.serialization import MessageField, SerializationContext
        deserialize = AvroDeserializer(self.client)
        context = SerializationContext(topic, MessageField.VALUE)
        return lambda payload: deserialize(payload, context)


FORMATS = {"json": Json, "avro": Avro}

CONFIG = """
policy:
  quasi_identifiers:
    - {{ name: {age}, hierarchy: {{ intervals: {{ widths: [10, 20, 40], min: 0, max: 120 }} }} }}
    - {{ name: {zip}, hierarchy: {{ prefix: {{ length: 5 }} }} }}
  sensitive: [{{ name: {sensitive} }}]
  keep: [{{ name: {number}, reviewed: true }}]
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
sink: {{ kafka: {{ topic: {topic}-safe, transactional_id: {topic}, create_topics: true }} }}
"""


def leaves(value, outer=""):
    """The paths of a row and their values."""
    for key, inner in value.items():
        path = f"{outer}{key}"
        if isinstance(inner, dict):
            yield from leaves(inner, path + ".")
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


def pair(binary, brokers, registry, kind, name):
    topic = f"{kind}-{name}-{uuid.uuid4().hex[:6]}"
    codec, shape = FORMATS[kind](registry), SHAPES[name]()
    events = shape.events()
    produce(brokers, topic, codec.writer(topic, shape), events)
    envelope = f"envelope: {shape.envelope}" if shape.envelope else ""
    config = c.RUN / f"{topic}.yaml"
    config.write_text(CONFIG.format(**shape.paths, messages=len(events), brokers=brokers, topic=topic, envelope=envelope,
                                    format=codec.config))
    checked = subprocess.run([binary, "validate", "-c", config, "--sample", topic], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    service = subprocess.Popen([binary, "run", "-c", config], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    safe = f"{topic}-safe"
    topics = [safe, f"{safe}-manifests", f"{safe}-journal", f"{safe}-dead-letters"]
    rejected = len(events) - PEOPLE
    try:
        done = lambda found: found[topics[1]] and len(found[topics[3]]) >= rejected and found[safe]
        found = consume(brokers, topics, done, 90)
    finally:
        service.send_signal(signal.SIGTERM)
        out, log = service.communicate(timeout=60)
    summary = json.loads(out.strip().splitlines()[-1])
    counts = [summary[f"records_{end}"] for end in ("published", "suppressed", "held", "rejected")]
    assert summary["records_in"] == len(events) == sum(counts), (summary, len(events))
    assert counts[3] == rejected, summary
    read = codec.reader(safe)
    rows = [read(message.value()) for message in found[safe]]
    wanted = {shape.paths[role] for role in ("age", "zip", "sensitive", "number")}
    for row in rows:
        assert {path for path, _ in leaves(row)} == wanted, row
    flat = [dict(leaves(row)) for row in rows]
    assert all(isinstance(row[shape.paths["age"]], str) for row in flat)
    numbers = [row[shape.paths["number"]] for row in flat]
    assert len(numbers) == len(set(numbers)), "a person was published twice"
    assert len(numbers) == counts[0], f"{len(numbers)} rows were read, {counts[0]} were published"
    assert set(numbers) <= shape.numbers(), "somebody was published who was deleted"
    assert len(numbers) >= len(shape.numbers()) // 2, f"only {len(numbers)} rows"
    for message in (m for messages in found.values() for m in messages):
        assert message.key() is None or CANARY.encode() not in message.key()
        assert CANARY.encode() not in (message.value() or b""), f"a canary is in {message.topic()}"
    assert CANARY not in log + out + checked.stdout + checked.stderr
    return len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=c.ROOT / "target/release/veilstream")
    parser.add_argument("--only", help="one pair, such as avro-nested")
    args = parser.parse_args()
    in_venv()
    space = c.Cluster("formats")
    registry_dir = c.RUN / "formats-registry"
    registry = c.ROOT / "tests" / "infra" / "registry"
    env = dict(line.split("=", 1) for line in c.patiently(registry, "up", "--dir", registry_dir).splitlines() if "=" in line)
    failed = 0
    try:
        for kind in FORMATS:
            for name in SHAPES:
                if args.only not in (None, f"{kind}-{name}"):
                    continue
                try:
                    rows = pair(args.binary, space.bootstrap, env["REGISTRY"].strip("'\""), kind, name)
                    print(f"ok   {kind} {name}: {rows} rows", flush=True)
                except AssertionError as error:
                    failed += 1
                    print(f"FAIL {kind} {name}: {error}", flush=True)
    finally:
        space.down()
        c.run(registry, "down", registry_dir)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
