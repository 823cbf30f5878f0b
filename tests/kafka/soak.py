"""Produces, kills, freezes, cuts and checks for some minutes, then gives a verdict on each of seven statements.

Started by `tests/soak`, which says how. The verdicts come from what is in the topics (see `oracle`), from a reader that was
there all the time, and from whatever else the instances let out. Ends with 0 if no statement is violated and the service
published throughout.
"""

import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import cluster as c
import cut
import oracle
import proxy

# For `--sequential`: who returns within so many releases keeps so many candidate values.
RELEASES, CANDIDATES = 4, 6
# In every field that may not leave: the subject, what the policy does not name, keys, headers, and records nobody can read.
CANARY = "canary"
K, L = 5, 2
SHORT = ', socket.timeout.ms: "6000", reconnect.backoff.max.ms: "1000"'


class Remote:
    """A cluster that somebody else runs. Only Kafka's own tools and kcat talk to it."""

    def __init__(self, bootstrap, name):
        self.bootstrap, self.dir = bootstrap, c.RUN / name
        self.dir.mkdir(parents=True, exist_ok=True)

    def tool(self, *args):
        return c.run(c.INFRA, "tool", self.bootstrap, *args, timeout=180)

    def down(self):
        pass


class Flow:
    """People with canaries, at an even rate, until it is left. One record in a batch is garbage."""

    def __init__(self, space, args):
        self.space, self.args, self.over = space, args, threading.Event()
        self.sent, self.problem = 0, None
        command = [args.binary, "generate", "--records", "0", "--subjects", "2000", "--seed", str(args.seed)]
        space.people = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.thread = threading.Thread(target=self.flow)

    def people(self, records):
        for _ in range(records):
            record = json.loads(self.space.people.stdout.readline())
            record["user_id"] = f"{CANARY}-{record['user_id']}"
            record["occupation"] = record["name"] = f"{CANARY}-{record['occupation']}"
            yield record

    def send(self, records):
        lines = [json.dumps(record) for record in records]
        self.put([f"{CANARY}-key\x1f{line}" for line in lines])
        return len(lines)

    def put(self, lines):
        space = self.space
        subprocess.run(["kcat", "-P", "-b", space.bootstrap, "-t", space.source, "-K", "\x1f", "-H", f"{CANARY}={CANARY}",
                        "-X", "partitioner=random", "-X", "linger.ms=20", "-X", "enable.idempotence=true"],
                       input=("\n".join(lines) + "\n").encode(), check=True, timeout=300)

    def flow(self):
        began = time.monotonic()
        try:
            while not self.over.is_set():
                # Behind its rate after a slow turn, it catches up a little; a slow machine is not buried.
                due = int((time.monotonic() - began) * self.args.rate) - self.sent
                self.sent += self.send(self.people(max(1, min(due, 4 * self.args.rate))))
                self.put([f'{CANARY}-key\x1f{{"user_id":"{CANARY}","age":'])
                self.sent += 1
                self.over.wait(1)
        except (subprocess.SubprocessError, ValueError) as error:
            self.problem = str(error)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Reader:
    """Somebody who reads the output with read_committed while all this happens."""

    def __init__(self, space):
        self.path = space.dir / "reader"
        self.file = open(self.path, "wb")
        form = oracle.SEPARATOR.join(["%p", "%o", "%s"]) + "\n"
        command = ["kcat", "-C", "-u", "-q", "-b", space.bootstrap, "-t", space.sink, "-o", "beginning", "-f", form,
                   "-X", "isolation.level=read_committed"]
        self.process = subprocess.Popen(command, stdout=self.file)

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.file.close()
        lines = self.path.read_text().split("\n")[:-1]
        return [line.split(oracle.SEPARATOR, 2) for line in lines]


def mode(args):
    """What the instances are told beside action and scope."""
    subject = f"subject: user_id\n  recoding: {args.recoding}"
    if args.sequential:
        subject += f"\n  sequential: {{ releases: {RELEASES}, candidates: {CANDIDATES} }}"
    sliding = {"windows": "{ sliding: { size: 1500, slide: 300 } }"} if args.window == "sliding" else {}
    return {"subject": subject, **sliding}


class Soak:
    def __init__(self, args, space, between):
        self.args, self.space, self.between, self.rng = args, space, between, random.Random(args.seed)
        self.restarts, self.heals, self.faults = [], [], {}
        self.problems, self.exits = [], {}
        self.instances = []
        address = between.address if between else space.bootstrap
        for number in range(args.instances):
            extra = SHORT + (f', group.instance.id: "veil-{number}"' if args.static else "")
            instance = c.Instance(space, args.binary, number, bootstrap=address, extra=extra, action=args.action,
                                  scope=args.scope, **mode(args))
            self.instances.append(instance)
            self.start(instance)

    def start(self, instance):
        instance.mark = instance.path.stat().st_size
        instance.start(RUST_LOG="trace")

    def published(self, instance):
        """How often it has said so since its mark. Its word is taken for the time only."""
        with open(instance.path, "rb") as log:
            log.seek(instance.mark)
            return log.read().count(b"release published")

    def await_commit(self, instances, what, times):
        """I5: the first of them to commit again, within the patience; how long it took is kept in `times`."""
        began = time.monotonic()
        while not any(self.published(i) for i in instances):
            if time.monotonic() - began > self.args.patience:
                self.problems.append(f"nothing was published for {self.args.patience} s after {what}")
                return
            self.look_after(what)
            if self.problems:
                return
            time.sleep(0.05)
        times.append(time.monotonic() - began)

    def fenced(self, instance):
        """True if it ended because its id was taken, after a bad network: a request that is delivered late may take the id away
        from the very instance that has sent it, and one with the `group.instance.id` of an earlier membership as well."""
        with open(instance.path, "rb") as log:
            log.seek(max(0, instance.path.stat().st_size - 4096))
            said = log.read()
        taken = b"was taken by another instance" in said or self.args.static and b"FencedInstanceId" in said
        return taken and instance.process.returncode == 3 and bool(self.faults.get("cut"))

    def look_after(self, what):
        """Nobody ends by themselves. But who is fenced is started again, as an orchestrator does."""
        for instance in self.instances:
            if instance.alive():
                continue
            if self.fenced(instance):
                self.faults["fenced"] = self.faults.get("fenced", 0) + 1
                self.start(instance)
            else:
                self.problems.append(f"instance {instance.number} ended by itself after {what}; see its log")

    def heal(self, what):
        self.look_after(what)
        for instance in self.instances:
            instance.mark = instance.path.stat().st_size
        self.await_commit(self.instances, what, self.heals)

    def kill(self):
        self.look_after("what was before a kill")
        victim = self.rng.choice(self.instances)
        victim.kill()
        time.sleep(self.rng.uniform(0, 0.5))
        self.start(victim)
        # Some are left alone until they have published: how long that takes is what is measured. Others get no such peace.
        if self.rng.random() < 0.4:
            self.await_commit([victim], "a restart", self.restarts)
        else:
            time.sleep(self.rng.uniform(0.2, 2.5))

    def freeze(self):
        """Past its session: the others take over, and it wakes up as one who knows nothing of it."""
        victim = self.rng.choice(self.instances)
        victim.process.send_signal(signal.SIGSTOP)
        time.sleep(victim.values["session"] / 1000 + self.rng.uniform(0.5, 3))
        victim.process.send_signal(signal.SIGCONT)
        self.heal("a freeze")

    def cut(self):
        if not self.between:
            for instance in self.instances:
                cut.connections(instance.process.pid)
            self.heal("a cut")
            return
        mode, delay = self.rng.choice([("cut", 0), ("half-open", 0), ("delay", 8)])
        self.between.set(mode, delay)
        time.sleep(self.rng.uniform(1, 10))
        self.between.set("pass")
        self.heal(f"a network that was {mode}")

    def scrape(self):
        for instance in self.instances:
            for path in ("/", "/metrics", "/status.json", f"/{CANARY}-no-such-page"):
                address = f"http://127.0.0.1:{instance.port}{path}"
                try:
                    with urllib.request.urlopen(address, timeout=5) as answer:
                        body = bytes(answer.headers) + answer.read()
                except urllib.error.HTTPError as error:
                    body = bytes(error.headers) + error.read()
                except OSError:
                    continue  # it was killed a moment ago
                name = f"HTTP {path}"
                # The last of each, unless one has leaked.
                if CANARY.encode() not in self.exits.get(name, b""):
                    self.exits[name] = body

    def run(self):
        """Fault after fault until the time is over, and enough have hit."""
        for instance in self.instances:
            self.await_commit([instance], "the start", [])
        began = time.monotonic()
        cuts = self.between or cut.possible()
        if not cuts:
            print("no connection is cut: this system does not let one process touch another's sockets", flush=True)
        turn = 0
        while time.monotonic() - began < self.args.minutes * 60 or self.faults.get("kill", 0) < self.args.kills:
            kinds = ["kill"] * 14 + ["freeze"] + ["cut"] * (3 if cuts else 0)
            # The first turns see every kind, so that a short run does, too.
            kind = ["kill", "freeze", "cut" if cuts else "kill"][turn] if turn < 3 else self.rng.choice(kinds)
            time.sleep(self.rng.uniform(0, 0.5))
            self.faults[kind] = self.faults.get(kind, 0) + 1
            getattr(self, kind)()
            turn += 1
            if turn % 20 == 0:
                print(f"{time.monotonic() - began:.0f} s: {self.faults}", flush=True)
            if turn % 5 == 0:
                self.scrape()
            if self.problems:
                break
        seconds = time.monotonic() - began
        self.scrape()
        group = ["consumer-groups", "--describe", "--group", self.space.group, "--members", "--verbose"]
        self.exits["client ids"] = self.space.cluster.tool(*group).encode()
        return seconds

    def few(self, flow):
        """Fewer than k people, and then the end: nothing of them may be flushed. Gives their keys."""
        records = list(flow.people(K - 2))
        flow.sent += flow.send(records)
        time.sleep(self.rng.uniform(0, 1))
        for instance in self.instances:
            instance.kill(signal.SIGTERM)
            if instance.process.returncode != 0 and not self.fenced(instance):
                self.problems.append(f"instance {instance.number} ended with {instance.process.returncode} on SIGTERM")
        return {record["ts"] for record in records}

    def collect(self):
        """Everything that has left, beside the pages."""
        space, exits = self.space, self.exits
        for instance in self.instances:
            exits[f"log of {instance.number}"] = instance.path.read_bytes()
        for topic in (space.sink, f"{space.sink}-manifests", f"{space.sink}-journal", f"{space.sink}-dead-letters"):
            exits[topic] = oracle.raw(space.bootstrap, topic)
        exits["commit metadata"] = oracle.raw(space.bootstrap, "__consumer_offsets")
        exits["transactional ids"] = space.cluster.tool("transactions", "list").encode()
        exits["file names"] = "\n".join(map(str, space.dir.rglob("*"))).encode()


def percentile(times, share):
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def judge(space, soak, few, seen):
    """I1 to I4 from the topics; I2 also from what the reader saw; I6 from those who were too few; I7 from all that left. A window that
    slides publishes the last few together with those before them."""
    where = (space.bootstrap, space.source, space.sink, c.QUASI, "diagnosis")
    if soak.args.window == "sliding":
        verdict = oracle.Verdict()
        oracle.judge_snapshots(verdict, *where, K, L)
    else:
        verdict = oracle.judge(*where, K, L)
        oracle.judge_few(verdict, space.bootstrap, space.sink, few)
    if soak.args.sequential:
        oracle.judge_sequential(verdict, *where, RELEASES, CANDIDATES)
    oracle.judge_reader(verdict, space.bootstrap, space.sink, seen)
    soak.collect()
    oracle.judge_leaks(verdict, soak.exits, CANARY)
    for problem in soak.problems:
        verdict.fail("I5", problem)
    return verdict


def controls(space, soak, few, seen):
    """Forges what must not be, and sees every statement but I5 turn red."""
    rows = oracle.read(space.bootstrap, space.sink)
    record = json.loads(rows[0][3])
    record["age"] = "*" if record["age"] != "*" else "[0,5)"
    forged = [{**record, "name": CANARY}, {**record, "ts": next(iter(few))}]
    subprocess.run(["kcat", "-P", "-b", space.bootstrap, "-t", space.sink, "-H", "veilstream-release=forged"],
                   input="".join(json.dumps(f) + "\n" for f in forged).encode(), check=True, timeout=60)
    verdict = judge(space, soak, few, seen + [seen[0]])
    blind = [s for s in ("I1", "I2", "I3", "I4", "I6", "I7") if not verdict.problems.get(s)]
    print(f"controls: {'all turned red, as they must' if not blind else f'{blind} did not see what was forged'}")
    return not blind


def soak(args, cluster, between):
    space = c.Space(cluster, f"soak-{args.seed}-{int(time.time()):x}", args.partitions)
    reader = None
    passed = False
    try:
        reader = Reader(space)
        run = Soak(args, space, between)
        with Flow(space, args) as flow:
            seconds = run.run()
        if flow.problem:
            print(f"records could not be produced: {flow.problem}")
            return False
        try:
            run.look_after("the last fault")
            # The lag shows where the oldest held record is, or the oldest one of a window that slides.
            if args.action == "drop" and args.window == "tumbling":
                space.drained(300)
            else:
                time.sleep(args.patience)
        except AssertionError as error:
            run.problems.append(str(error))
        few = run.few(flow)
        space.settle()
        time.sleep(1)
        seen = reader.end()
        verdict = judge(space, run, few, seen)
        # A window that slides has its last records still open.
        tail = 3000 if args.window == "sliding" else len(few) if args.action == "drop" else flow.sent // 20
        if verdict.missing > tail:
            verdict.fail("I1", f"{verdict.missing} records have no outcome")
        if verdict.figures["records"] != flow.sent:
            print(f"{flow.sent} records were sent, {verdict.figures['records']} are in the topic")
        verdict.figures |= {"minutes": round(seconds / 60, 1), "read meanwhile": len(seen), **run.faults}
        print(verdict.text(statements=7))
        if args.window == "sliding":
            print("I6 was not judged: a window that slides publishes the last few together with those before them")
        for what, times in (("restart to first commit", run.restarts), ("healed to next commit", run.heals)):
            if times:
                print(f"{what}: p50 {percentile(times, 0.5):.1f} s, p99 {percentile(times, 0.99):.1f} s, "
                      f"most {max(times):.1f} s, of {len(times)}")
        enough = verdict.figures["published"] > 0.5 * verdict.figures["records"]
        if not enough:
            print("too little was published for this to be a pass")
        passed = verdict.ok and enough
        if passed and args.controls:
            passed = controls(space, run, few, seen)
        return passed
    finally:
        space.close()
        if reader and reader.process.poll() is None:
            reader.process.kill()
            reader.process.wait()
        print("PASSED" if passed else f"FAILED; what the instances said is in {space.dir}", flush=True)
        if args.brokers and passed:
            for end in ("", "-manifests", "-journal", "-dead-letters"):
                cluster.tool("topics", "--delete", "--topic", space.sink + end)
            cluster.tool("topics", "--delete", "--topic", space.source)


def main():
    parser = argparse.ArgumentParser(prog="tests/soak", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long (default 10)")
    parser.add_argument("--kills", type=int, default=0, help="go on until there were so many")
    parser.add_argument("--brokers", help="HOST:PORT of a test cluster (plaintext); without it one is started")
    parser.add_argument("--seed", type=int, default=1, help="decides records and faults (default 1)")
    parser.add_argument("--rate", type=int, default=300, help="records per second (default 300)")
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--patience", type=float, default=30, help="seconds after which nothing published is a violation (30)")
    parser.add_argument("--action", default="drop", choices=["drop", "hold"], help="what happens to those left out")
    parser.add_argument("--scope", default="instance", choices=["instance", "partition"], help="whose records share a window")
    parser.add_argument("--window", default="tumbling", choices=["tumbling", "sliding"],
                        help="sliding: snapshots that are judged side by side, by one instance")
    parser.add_argument("--recoding", default="full-domain", choices=["full-domain", "local", "subtree"])
    parser.add_argument("--sequential", action="store_true", help="who returns keeps candidate values; by one instance")
    parser.add_argument("--static", action="store_true", help="static group membership: a restart takes its place back")
    parser.add_argument("--controls", action="store_true", help="forge violations afterwards, which must turn red")
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.binary = str(args.binary.resolve())
    if args.window == "sliding" and args.controls:
        parser.error("--controls forges rows of tumbling windows")
    if args.window == "sliding" or args.sequential:
        args.instances = 1  # the order of all releases is that of its journal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left running
    between = None
    if args.brokers:
        cluster = Remote(args.brokers, f"soak-{args.seed}")
    else:
        port = c.free_port()
        cluster = c.Cluster(f"soak-{args.seed}", flags=["--proxied", port])
        host, real = cluster.env["PROXIED"].split(":")
        between = proxy.Proxy((host, int(real)), port)
        between.address = f"127.0.0.1:{port}"
    try:
        return 0 if soak(args, cluster, between) else 1
    finally:
        if between:
            between.close()
        cluster.down()


if __name__ == "__main__":
    sys.exit(main())
