#!/usr/bin/env python3
"""One topic over more and more instances, then a rolling restart and a change of policy while records flow.

    tests/kafka/scale.py BINARY [--records N] [--instances N] [--partitions N] [--brokers N] [--figures]

What a roll-out does to a StatefulSet is done here to processes: one after the other gets SIGTERM, starts again under its own
name, and the next one follows once it is ready. The oracle judges I1 to I4 over everything that was published; each release
must also satisfy the policy that its manifest names. Prints records per second and the loss for each number of instances.
"""

import argparse
import json
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict

import cluster as c
import oracle

# Longer than all of a roll-out's steps together: who does not leave the group, or is not taken back, shows.
SESSION = 60_000
K_BEFORE, K_AFTER = 5, 8


def readiness(instance):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{instance.port}/readyz", timeout=2) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def cpu_seconds(instance):
    fields = open(f"/proc/{instance.process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def peak_mib(instance):
    for line in open(f"/proc/{instance.process.pid}/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0


def produce(space, args, records):
    space.produce(args.binary, records, subjects=args.subjects)


class Flow:
    """Records that keep coming until it is left."""

    def __init__(self, space, args):
        self.space, self.args, self.stop, self.sent = space, args, threading.Event(), 0
        self.thread = threading.Thread(target=self.flow)

    def flow(self):
        while not self.stop.is_set():
            produce(self.space, self.args, self.args.window)
            self.sent += self.args.window
            self.stop.wait(0.3)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def restart(instance, change=lambda config: config):
    """As a StatefulSet does it: SIGTERM, the same name again, on with the next once it is ready."""
    began = time.monotonic()
    instance.kill(signal.SIGTERM)
    assert instance.process.returncode == 0, f"a drain ended with {instance.process.returncode}"
    ended = time.monotonic()
    instance.config.write_text(change(instance.config.read_text()))
    instance.start()
    c.wait_for(lambda: readiness(instance) == 200, 30, f"instance {instance.number} to be ready again")
    return ended - began, time.monotonic() - ended


def manifests(space):
    return [json.loads(message[3]) for message in oracle.read(space.bootstrap, f"{space.sink}-manifests")]


def glm(found):
    """Loss of what was published, by record."""
    weighted = [(m["records_published"], named["value"]) for m in found for named in m["losses"] if named["name"] == "glm"]
    return sum(n * loss for n, loss in weighted) / max(1, sum(n for n, _ in weighted))


def outcomes(instance):
    """How many records have got one from this process."""
    each = (instance.metric(f'veilstream_records_total{{outcome="{o}"}}') for o in ("published", "suppressed", "rejected"))
    return sum(count or 0 for count in each)


def mean(running, histogram):
    parts = [sum(i.metric(f"{histogram}_{part}") or 0 for i in running) for part in ("sum", "count")]
    return parts[0] / max(1, parts[1])


def scale_out(space, args):
    """The same number of records for 1, 2, ... instances."""
    for count in range(1, args.instances + 1):
        before = len(manifests(space))
        number = count - 1
        c.Instance(space, args.binary, number, extra=f', group.instance.id: "veil-{number}"',
                   session=SESSION, window=args.window, max_age=args.max_age,
                   time_budget=args.time_budget)
        running = list(space.instances.values())
        for instance in running:
            instance.start()
        c.wait_for(lambda: all(readiness(i) == 200 for i in running), 60, "all instances to be ready")
        began = time.monotonic()
        produce(space, args, args.records)
        # The last, partial windows wait for their age, which is no work.
        full = max(args.window, args.records - count * args.window)
        c.wait_for(lambda: sum(map(outcomes, running)) >= full, 300, "the full windows")
        rate = sum(map(outcomes, running)) / (time.monotonic() - began)
        c.wait_for(lambda: sum(map(outcomes, running)) >= args.records, 300, "all records to have an outcome")
        row = {
            "instances": count,
            "records/s": round(rate),
            "records/CPU s": round(args.records / sum(map(cpu_seconds, running))),
            "peak MiB": round(max(map(peak_mib, running))),
            "s from close to publish": round(mean(running, "veilstream_close_to_publish_seconds"), 2),
            "shares": [round(outcomes(i) / args.records, 2) for i in running],
        }
        space.drained(240)
        found = manifests(space)[before:]
        row |= {"releases": len(found), "glm": round(glm(found), 4),
                "suppressed": round(sum(m["records_suppressed"] for m in found) / args.records, 4)}
        print(f"   {row}", flush=True)
        assert all(map(outcomes, running)), "an instance had nothing to do"
        for instance in running:
            instance.kill(signal.SIGTERM)
            assert instance.process.returncode == 0, f"a drain ended with {instance.process.returncode}"


def policies(space, before, after):
    """Each release satisfies the policy that its manifest names, recounted from the rows."""
    asked = {}
    for manifest in manifests(space):
        asked[manifest["release_id"]] = {before: K_BEFORE, after: K_AFTER}[manifest["policy_fingerprint"]]
    subjects = {}
    for _, _, _, payload in oracle.read(space.bootstrap, space.source):
        record = json.loads(payload)
        subjects[record["ts"]] = record["user_id"]
    classes = defaultdict(set)
    for _, _, headers, payload in oracle.read(space.bootstrap, space.sink):
        record = json.loads(payload)
        release = oracle.release_of(headers)
        classes[release, tuple(record[q] for q in c.QUASI)].add(subjects[record["ts"]])
    for (release, _), people in classes.items():
        assert len(people) >= asked[release], f"{release}: {len(people)} people where its policy asks for {asked[release]}"


def roll_out(space, args):
    """A rolling restart, then a rolling change of policy, while records keep coming."""
    running = list(space.instances.values())
    for instance in running:
        instance.start()
    c.wait_for(lambda: all(readiness(i) == 200 for i in running), 60, "all instances to be ready")
    with Flow(space, args) as flow:
        c.wait_for(lambda: any(map(outcomes, running)), 60, "releases before the roll-out")
        restarts = [restart(i) for i in running]
        old = {m["policy_fingerprint"] for m in manifests(space)}
        assert len(old) == 1, "the policy changed by itself"
        stricter = lambda config: config.replace(f"k-anonymity: {K_BEFORE}", f"k-anonymity: {K_AFTER}")
        restarts += [restart(i, stricter) for i in running]
        rolled = time.time() * 1e3
        enough = flow.sent + 2 * args.window
        c.wait_for(lambda: flow.sent >= enough, 120, "records after the roll-out")
    space.drained(240)
    found = manifests(space)
    new = {m["policy_fingerprint"] for m in found} - old
    assert len(new) == 1, "the new policy never took effect"
    assert {m["policy_fingerprint"] for m in found if m["closed_at"] > rolled} == new, "the old policy came back"
    policies(space, *old, *new)
    # A plan of the old policy that the new one found half done is suppressed as a whole; after a drain there is none.
    whole = [m for m in found if m["records_suppressed"] and not m["records_published"] and m["algorithm"] == "none"]
    drains, returns = zip(*restarts)
    print(f"   {len(restarts)} restarts with {flow.sent} records: drain at most {max(drains):.1f} s, ready again after at "
          f"most {max(returns):.1f} s, {len(whole)} planned releases given up", flush=True)
    assert not whole, "a drain left a plan behind"


def live(space, args):
    """I5: a fresh record is published within 30 s."""
    before = sum(map(outcomes, space.instances.values()))
    produce(space, args, args.window)
    c.wait_for(lambda: sum(map(outcomes, space.instances.values())) > before, 30, "a fresh release")
    space.drained(240)


def leave(space, args):
    """Without static membership, who drains leaves the group: the others take over long before the session's timeout."""
    pair = []
    log = space.dir / "instance-10.log"
    assigned = lambda: log.read_text().count("partitions assigned") - before
    before = log.exists() and log.read_text().count("partitions assigned")  # an earlier run's
    for number in (10, 11):
        instance = c.Instance(space, args.binary, number, session=SESSION, max_age="1s")
        instance.config.write_text(instance.config.read_text().replace(f"group: {space.group}", "group: leaving"))
        pair.append(instance.start())
        c.wait_for(lambda: readiness(instance) == 200, 60, "a member")
    c.wait_for(lambda: assigned() == 2, 60, "the partitions to be shared")
    pair[1].kill(signal.SIGTERM)
    c.wait_for(lambda: assigned() == 3, SESSION / 1000 / 2, "the partitions of the one that left")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--records", type=int, default=20_000, help="per number of instances")
    parser.add_argument("--subjects", type=int, default=2000)
    parser.add_argument("--window", type=int, default=1000)
    parser.add_argument("--max-age", default="2s")
    parser.add_argument("--time-budget", default="200ms")
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--figures", action="store_true", help="only the figures for each number of instances")
    args = parser.parse_args()
    cluster = c.Cluster("scale", brokers=args.brokers)
    space = None
    try:
        space = c.Space(cluster, "scale", args.partitions)
        for part in (scale_out,) if args.figures else (scale_out, roll_out, live):
            print(f"== {part.__name__}: {part.__doc__.splitlines()[0]}", flush=True)
            part(space, args)
        for instance in space.instances.values():
            instance.kill(signal.SIGTERM)
        space.settle()
        verdict = oracle.judge(space.bootstrap, space.source, space.sink, c.QUASI, "diagnosis",
                               K_BEFORE, 2)
        print(verdict.text())
        assert verdict.ok and not verdict.missing, "a statement is violated"
        assert verdict.figures["published"] > 0.5 * verdict.figures["records"], "too little was published to be a pass"
        if not args.figures:
            print(f"== leave: {leave.__doc__.splitlines()[0]}", flush=True)
            leave(space, args)
        return 0
    except AssertionError as error:
        print(f"FAILED: {error}")
        return 1
    finally:
        if space:
            space.close()
        cluster.down()


if __name__ == "__main__":
    sys.exit(main())
