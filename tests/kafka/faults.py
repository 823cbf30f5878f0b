#!/usr/bin/env python3
"""One fault after the other, each on a cluster of its own, each judged by the oracle.

    tests/kafka/faults.py BINARY [NAME...]

BINARY must be built with the `failpoints` feature for the steps of a crash. A control that must turn red is part of the
list: what a check has never been seen to catch, it does not check.
"""

import json
import signal
import subprocess
import sys
import time

import cluster as c
import oracle

STEPS = ["before-plan", "planned", "begun", "produced", "dead-letters", "flushed", "offsets-sent", "committed"]
BINARY = None


def judge(cluster, **options):
    cluster.settle()
    return oracle.judge(cluster.bootstrap, "people", "safe", "safe-manifests", c.QUASI, "diagnosis", 5, 2, **options)


def drained(cluster, seconds=60, tail=0):
    c.wait_for(lambda: (lag := c.committed(cluster)) is not None and lag <= tail, seconds, "the lag to return to zero")


def accept(cluster, seconds=60, tail=0, aborted=None):
    """Drains, stops every instance, and judges."""
    drained(cluster, seconds, tail)
    for instance in cluster.instances.values():
        instance.kill(signal.SIGTERM)
    verdict = judge(cluster)
    verdict.show()
    assert verdict.ok, "a statement is violated"
    assert verdict.missing <= tail, f"{verdict.missing} records have no outcome"
    assert verdict.figures["published"] > 0.5 * verdict.figures["records"], "too little was published to be a pass"
    if aborted:
        assert verdict.figures["aborted copies"] > 0, "nothing was aborted: the fault did not hit"
    return verdict


def with_cluster(name, partitions=4, **options):
    cluster = c.Cluster(f"fault-{name}", **options)
    cluster.topics(partitions)
    return cluster


def garbage(cluster):
    """Ten records that no decoder takes, each in another way."""
    lines = ["{", "", "null", "[1]", '{"age": 3}', '{"age":1,"age":2}', "\x00\x01", "[" * 5000, '{"a": NaN}', '"text"']
    text = "\n".join(line for line in lines if line) + "\n"
    subprocess.run(["kcat", "-P", "-b", cluster.bootstrap, "-t", "people"], input=text.encode(), check=True, timeout=60)
    return len([line for line in lines if line])


def crash_at_every_step():
    """F1: the process dies at each step of a release, and another start carries the plan out."""
    for step in STEPS:
        cluster = with_cluster(f"step-{step}")
        try:
            print(f"-- dies at {step}", flush=True)
            cluster.produce(BINARY, 2000)
            bad = garbage(cluster)
            first = c.Instance(cluster, BINARY, 0, 19700).start(VEILSTREAM_DIE_AT=f"{step}:2")
            c.wait_for(lambda: not first.alive(), 60, f"the crash at {step}")
            assert first.process.returncode == -signal.SIGABRT, f"ended with {first.process.returncode}"
            # Somebody else takes over, with another transactional id.
            c.Instance(cluster, BINARY, 1, 19701).start()
            verdict = accept(cluster, aborted=step in ("flushed", "offsets-sent"))
            assert verdict.figures["rejected"] == bad, "garbage is not counted"
            letters = [json.loads(m[3]) for m in oracle.read(cluster.bootstrap, "safe-dead-letters")]
            assert len(letters) == bad and all(set(x) == {"topic", "partition", "offset", "code", "field", "at"}
                                               for x in letters), "dead letters are wrong"
        finally:
            cluster.down()


def zombie():
    """F2: an instance is stopped past its session while a peer takes over, and wakes up again."""
    cluster = with_cluster("zombie")
    try:
        a = c.Instance(cluster, BINARY, 0, 19710).start()
        b = c.Instance(cluster, BINARY, 1, 19711).start()
        cluster.produce(BINARY, 4000)
        time.sleep(3)
        a.kill(signal.SIGSTOP)
        cluster.produce(BINARY, 4000)
        time.sleep(8)
        a.process.send_signal(signal.SIGCONT)
        cluster.produce(BINARY, 2000)
        accept(cluster, 90)
        assert b.process.returncode == 0
    finally:
        cluster.down()


def one_id_twice():
    """F3: two instances with one transactional id; the loser is fenced and says which id."""
    cluster = with_cluster("fenced")
    try:
        a = c.Instance(cluster, BINARY, 0, 19720, id="veil-same").start()
        cluster.produce(BINARY, 2000)
        drained(cluster)
        c.Instance(cluster, BINARY, 1, 19721, id="veil-same").start()
        time.sleep(4)
        cluster.produce(BINARY, 6000)
        c.wait_for(lambda: not a.alive(), 60, "the first one to be fenced")
        assert a.process.returncode == 3, f"ended with {a.process.returncode}"
        said = (cluster.dir / "instance-0.log").read_text()
        assert "veil-same" in said, "the loser does not say which id"
        accept(cluster)
    finally:
        cluster.down()


def broker_loss():
    """F4: each of three brokers is killed and comes back while records flow; then a rolling restart."""
    cluster = with_cluster("brokers", partitions=6, brokers=3)
    try:
        for number in range(2):
            c.Instance(cluster, BINARY, number, 19730 + number).start()
        for broker in (1, 2, 3):
            cluster.produce(BINARY, 1500)
            time.sleep(1)
            cluster.broker("kill", broker)
            time.sleep(3)
            cluster.broker("start", broker)
        for broker in (1, 2, 3):
            cluster.produce(BINARY, 1500)
            cluster.broker("stop", broker)
            cluster.broker("start", broker)
        cluster.produce(BINARY, 1500)
        accept(cluster, 180)
    finally:
        cluster.down()


def members_come_and_go():
    """F7: members join and leave every two seconds; partitions are added."""
    cluster = with_cluster("churn")
    try:
        c.Instance(cluster, BINARY, 0, 19740).start()
        guest = c.Instance(cluster, BINARY, 1, 19741)
        for turn in range(6):
            cluster.produce(BINARY, 1000)
            guest.start()
            time.sleep(2)
            guest.kill(signal.SIGTERM)
            assert guest.process.returncode == 0, f"a drain ended with {guest.process.returncode}"
        cluster.tool("topics", "--alter", "--topic", "people", "--partitions", "6")
        cluster.produce(BINARY, 2000)
        accept(cluster, 120)
    finally:
        cluster.down()


def deleted_by_retention():
    """F14: committed offsets are gone; the service stops and says so, unless told to go on."""
    cluster = with_cluster("gap", partitions=1)
    try:
        a = c.Instance(cluster, BINARY, 0, 19750).start()
        cluster.produce(BINARY, 1000)
        drained(cluster)
        a.kill(signal.SIGTERM)
        cluster.produce(BINARY, 2000)
        spec = cluster.dir / "delete.json"
        spec.write_text(json.dumps({"partitions": [{"topic": "people", "partition": 0, "offset": 2000}], "version": 1}))
        cluster.tool("delete-records", "--offset-json-file", spec)
        a.start()
        c.wait_for(lambda: not a.alive(), 60, "the stop at the gap")
        assert a.process.returncode == 3
        assert "on_gap" in (cluster.dir / "instance-0.log").read_text(), "the remedy is not named"
        config = a.config.read_text().replace("group: veil", "group: veil\n    on_gap: continue")
        a.config.write_text(config)
        a.start()
        drained(cluster)
        assert a.alive()
    finally:
        cluster.down()


def held_records():
    """Records are held over releases and restarts: published once or never."""
    cluster = with_cluster("held")
    try:
        a = c.Instance(cluster, BINARY, 0, 19760, action="hold").start()
        for turn in range(5):
            cluster.produce(BINARY, 1200)
            time.sleep(1.5)
            a.kill()
            a.start()
        time.sleep(6)
        for instance in cluster.instances.values():
            instance.kill(signal.SIGTERM)
        verdict = judge(cluster)
        verdict.show()
        assert verdict.ok
        assert verdict.figures["published"] > 0.8 * verdict.figures["records"]
    finally:
        cluster.down()


def controls():
    """The oracle turns red when it should: rows counted as people, and a class made too small."""
    cluster = with_cluster("control")
    try:
        c.Instance(cluster, BINARY, 0, 19770).start()
        cluster.produce(BINARY, 2000, subjects=400)
        drained(cluster)
        rows = oracle.read(cluster.bootstrap, "safe")
        cluster.instances[0].kill(signal.SIGTERM)
        assert judge(cluster).ok
        # A row published a second time, generalized otherwise, in a release of its own.
        record = json.loads(rows[0][3])
        record["age"] = "*" if record["age"] != "*" else "[0,5)"
        subprocess.run(["kcat", "-P", "-b", cluster.bootstrap, "-t", "safe", "-H", "veilstream-release=forged"],
                       input=(json.dumps(record) + "\n").encode(), check=True, timeout=60)
        verdict = judge(cluster)
        for statement in ("I1", "I2", "I3", "I4"):
            assert verdict.problems.get(statement), f"{statement} did not turn red"
        print("I1, I2, I3 and I4 turn red on a forged row")
    finally:
        cluster.down()


SCENARIOS = [controls, crash_at_every_step, zombie, one_id_twice, broker_loss, members_come_and_go,
             deleted_by_retention, held_records]


def main():
    global BINARY
    BINARY = sys.argv[1]
    wanted = sys.argv[2:]
    passed, failed = 0, []
    for scenario in SCENARIOS:
        if wanted and scenario.__name__ not in wanted:
            continue
        started = time.monotonic()
        print(f"== {scenario.__name__}: {scenario.__doc__.splitlines()[0]}", flush=True)
        try:
            scenario()
            passed += 1
            print(f"   ok in {time.monotonic() - started:.0f} s", flush=True)
        except (AssertionError, subprocess.SubprocessError) as error:
            failed.append(scenario.__name__)
            print(f"   FAILED: {error}", flush=True)
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
