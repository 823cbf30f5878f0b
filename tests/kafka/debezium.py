#!/usr/bin/env python3
"""A real Debezium on a real PostgreSQL writes inserts, updates, deletes, a truncate, heartbeats and transaction markers into a real
broker, and the service publishes them.

    tests/kafka/debezium.py BINARY

Checked: every message has one outcome; a deleted person is in no release planned after the delete was read; what is about no row is
rejected as that; every class has enough people; a canary in a column that the policy does not name is nowhere.
"""

import json
import pathlib
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict

import cluster as c
import oracle

CANARY = "CANARY-7f3a"
OUTPUT = "safe-shop"
TABLES = ["shop.public.people", "shop.public.visitors"]
TOPICS = [*TABLES, "shop.transaction", "__debezium-heartbeat.shop"]
CONFIG = """
policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [10, 20, 40], min: 0, max: 120 } } }
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
  sensitive: [{ name: diagnosis }]
  keep: [{ name: number, reviewed: true }]
  subject: id
  privacy: [{ k-anonymity: 5 }]
  suppression: { limit: 0.2, action: hold }
window: { tumbling: { max_records: 1000, max_age: 4s } }
source: { kafka: { brokers: %s, group: shop, topics: ["shop.*", "__debezium-heartbeat.*"], envelope: debezium } }
sink: { kafka: { topic: %s, transactional_id: shop, create_topics: true } }
"""
COLUMNS = "id int primary key, age int, zip text, diagnosis text, number int, canary text"


def insert(table, first, last):
    """People with ages and postal codes that repeat. `number` names a version of a row: an update makes it another one."""
    return (f"insert into {table} select i, 20 + i % 30, 10000 + 100 * (i % 3) + i % 7, (array['flu','cold','ache'])[1 + i % 3], i, "
            f"'{CANARY}' from generate_series({first}, {last}) i")


class Database:
    def __init__(self):
        self.tool = c.ROOT / "tests" / "infra" / "debezium"
        self.dir = c.RUN / "debezium-database"
        env = dict(line.split("=", 1) for line in c.patiently(self.tool, "up", "--dir", self.dir).splitlines() if "=" in line)
        self.url = env["POSTGRES"].strip("'\"")

    def sql(self, *statements):
        """Each a transaction of its own."""
        for statement in statements:
            c.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", statement)

    def capture(self, bootstrap):
        c.run(self.tool, "capture", self.dir, bootstrap)

    def down(self):
        c.run(self.tool, "down", self.dir)


def row(message):
    return message.get("after")


def operations(bootstrap, topic):
    """How many messages there are of each kind; a tombstone is None."""
    lines = oracle.consume(bootstrap, topic, "%s\n").decode().split("\n")[:-1]
    return Counter(json.loads(line).get("op", "other") if line else None for line in lines)


def wait_for(bootstrap, topic, wanted):
    c.wait_for(lambda: operations(bootstrap, topic) == wanted, 120, f"{wanted} in {topic}")


def covered(bootstrap):
    """What the journal says: offsets by topic."""
    found = defaultdict(set)
    for _, _, _, payload in oracle.read(bootstrap, f"{OUTPUT}-journal"):
        for part in json.loads(payload).get("finished", []):
            for first, last in part["spans"]:
                for offset in range(first, last + 1):
                    assert offset not in found[part["topic"]], f"{part['topic']}:{offset} has two outcomes"
                    found[part["topic"]].add(offset)
    return found


def judge(bootstrap):
    verdict = oracle.Verdict()
    kept_back, _ = oracle.judge_deleted(verdict, bootstrap, TABLES, OUTPUT, row, "number")
    who = {}
    for topic in TABLES:
        for _, _, _, payload in oracle.read(bootstrap, topic):
            after = row(json.loads(payload)) if payload else None
            if after:
                who[after["number"]] = (topic, after["id"])
    classes, numbers = defaultdict(set), Counter()
    for _, _, headers, payload in oracle.read(bootstrap, OUTPUT):
        record = json.loads(payload)
        assert set(record) == {"age", "zip", "diagnosis", "number"}, "a row has other fields"
        numbers[record["number"]] += 1
        classes[oracle.release_of(headers), record["age"], record["zip"]].add(who[record["number"]][1])
    if any(len(people) < 5 for people in classes.values()):
        verdict.fail("I3", "a class of fewer than five people")
    if max(numbers.values()) > 1:
        verdict.fail("I2", "a row was published twice")
    copies = defaultdict(set)
    for _, _, headers, payload in oracle.read(bootstrap, OUTPUT, "read_uncommitted"):
        copies[json.loads(payload)["number"]].add((oracle.release_of(headers), payload))
    if any(len(texts) > 1 for texts in copies.values()):
        verdict.fail("I4", "different generalizations of one row")
    verdict.figures["published"] = len(numbers)
    return verdict, kept_back


def shop(binary, cluster, database):
    bootstrap = cluster.bootstrap
    for topic in TOPICS:
        cluster.tool("topics", "--create", "--topic", topic, "--partitions", 1)
    database.sql(f"create table people ({COLUMNS})", f"create table visitors ({COLUMNS})", insert("people", 0, 199))
    database.capture(bootstrap)
    people, visitors = TABLES
    wait_for(bootstrap, people, Counter(r=200))
    database.sql(insert("people", 200, 399), insert("visitors", 10000, 10099), "update people set number = number + 1000000 where id < 40",
                 "delete from people where id between 50 and 69 or id between 250 and 269", "truncate visitors")
    before = Counter({"r": 200, "c": 200, "u": 40, "d": 40, None: 40})
    wait_for(bootstrap, people, before)
    wait_for(bootstrap, visitors, Counter(c=100, t=1))

    config, log = c.RUN / "debezium.yaml", c.RUN / "debezium.log"
    config.write_text(CONFIG % (bootstrap, OUTPUT))
    with open(log, "wb") as errors:
        service = subprocess.Popen([binary, "run", "-c", config], stdout=subprocess.PIPE, stderr=errors)
        try:
            c.wait_for(lambda: b"release published" in log.read_bytes(), 120, "a release", lambda: [0] if service.poll() else [])
            # Now it flows: who comes is deleted a moment later, before or after a release.
            for batch in range(6):
                first = 1000 + 100 * batch
                database.sql(insert("people", first, first + 99), f"update people set age = age + 1, number = number + 1000000 where id = {first}",
                             f"delete from people where id between {first + 20} and {first + 39}")
                time.sleep(0.7)
            before += Counter({"c": 600, "u": 6, "d": 120, None: 120})
            wait_for(bootstrap, people, before)
            there = {topic: {offset for _, offset in oracle.offsets_of(bootstrap, topic)} for topic in TOPICS}
            # Held records have their outcome when they have waited long enough, or somebody alike comes.
            done = lambda: all(len(there[topic] - covered(bootstrap)[topic]) < 100 for topic in TOPICS)
            c.wait_for(done, 120, "outcomes of all but a few held records", lambda: [0] if service.poll() else [])
        finally:
            service.send_signal(signal.SIGTERM)
            out, _ = service.communicate(timeout=60)
    summary = json.loads(out.decode().strip().splitlines()[-1])
    ends = sum(summary.get(f"records_{end}", 0) for end in ("published", "suppressed", "held", "rejected", "returned"))
    assert summary["records_in"] == ends, summary

    verdict, kept_back = judge(bootstrap)
    letters = [json.loads(payload) for _, _, _, payload in oracle.read(bootstrap, f"{OUTPUT}-dead-letters")]
    print(verdict.text())
    assert verdict.ok, "a statement is violated"
    assert len(kept_back) >= 40, "hardly anybody was deleted who waited: that shows nothing"
    assert verdict.figures["published"] > 500, "too little was published to be a pass"
    # Deletes, their tombstones, the truncate, markers and heartbeats are accounted for, without a dead letter each.
    assert not letters, f"dead letters: {letters[:3]}"
    marks = [len(covered(bootstrap)[topic]) for topic in ("shop.transaction", "__debezium-heartbeat.shop")]
    assert marks[0] > 20 and marks[1] > 0, "no marker or no heartbeat was read"
    assert summary["records_rejected"] >= 320 + 1 + 20, "a delete, its tombstone or the truncate is missing"
    for topic in [OUTPUT, *(f"{OUTPUT}-{end}" for end in ("manifests", "journal", "dead-letters"))]:
        assert CANARY.encode() not in oracle.raw(bootstrap, topic), f"a canary is in {topic}"
    assert CANARY.encode() not in log.read_bytes() + out, "a canary is in the log"


def main():
    binary = str(pathlib.Path(sys.argv[1]).resolve())
    c.run(c.ROOT / "tests" / "infra" / "debian", "kcat", "java", "postgresql")
    started = time.monotonic()
    cluster, database = c.Cluster("debezium"), None
    try:
        database = Database()
        shop(binary, cluster, database)
    finally:
        if database:
            database.down()
        cluster.down()
    print(f"ok: a real Debezium, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
