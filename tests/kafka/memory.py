"""`limits.memory` is a bound: each case runs in a memory cgroup of exactly as many bytes, where more is the end.

    tests/kafka/memory.py BINARY [CASE...]

Each case starts on a topic that is full already, in large and well compressed batches, and so reads as fast as it can. Then the output
takes nothing for a while and the input goes on. The kernel must not end the process, the partitions must be paused, and afterwards
everything must go on with nothing lost. What counts is the memory that the kernel cannot take back: the pages of the program itself it
can. Needs root for the cgroup. BINARY must be built with the `failpoints` feature.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import cluster as c
import faults
import load
import oracle

MIB = 1 << 20
SUBJECT = "subject: user_id"
LARGE = {"window": 50000, "max_age": "60s"}
SLIDES = {"windows": "{ sliding: { size: 10000, slide: 2500 } }"}
RETURNING = f"{SUBJECT}\n  sequential: {{ releases: 4, candidates: 6 }}"
# The limit in MiB, and what the instance is told.
CASES = {
    "least": (64, LARGE),
    "tumbling": (128, LARGE),
    "full": (128, {**LARGE, "window": 300_000}),
    "apart": (128, {**LARGE, "scope": "partition"}),
    "hold": (128, {**LARGE, "action": "hold", "limit": 0}),
    "local": (128, {**LARGE, "subject": f"{SUBJECT}\n  recoding: local"}),
    "sequential": (128, {"window": 5000, "subject": RETURNING}),
    "sliding": (128, SLIDES),
    "sliding_local": (128, {**SLIDES, "subject": f"{SUBJECT}\n  recoding: local"}),
}
# Records that are there before the start, and that come while the output is blocked: more than there is room for, in large windows and small.
BEFORE, LARGE_MEANWHILE, MEANWHILE = 100_000, 300_000, 60_000
# Seconds between two verdicts.
JUDGE_AGAIN = 5
# How long the output is blocked: past the time after which a call counts as lost and its producer is replaced.
BLOCKED = 35


@contextlib.contextmanager
def bounded(name, limit):
    """A memory cgroup; gives the command that starts a process in it."""
    root = pathlib.Path("/sys/fs/cgroup")
    second = (root / "cgroup.controllers").exists()
    group = (root if second else root / "memory") / f"veilstream-{name}-{os.getpid()}"
    if second:
        (root / "cgroup.subtree_control").write_text("+memory")
    group.mkdir()
    try:
        (group / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(limit))
        if second:
            (group / "memory.swap.max").write_text("0")
        yield ["sh", "-c", 'echo $$ >"$0" && exec "$@"', group / "cgroup.procs"]
    finally:
        c.wait_for(lambda: not (group / "cgroup.procs").read_text(), 30, "the cgroup to be empty")
        group.rmdir()


def produce(space, records):
    """In batches as large and as well compressed as brokers take them."""
    lines = space.generate(faults.BINARY, records, subjects=1_000_000)
    subprocess.run(["kcat", "-P", "-b", space.bootstrap, "-t", space.source, "-z", "zstd", "-X", "linger.ms=200",
                    "-X", "batch.size=900000", "-X", "batch.num.messages=100000"], input=lines, check=True, timeout=300)


def judged(space, case):
    """The verdict on all that was sent."""
    if "sliding" not in case:
        return faults.judge(space)
    verdict = oracle.Verdict()
    oracle.judge_snapshots(verdict, space.bootstrap, space.source, space.sink, c.QUASI, "diagnosis", 5, 2)
    return verdict


class Anonymous(threading.Thread):
    """The most memory that was the process's own, by a look every tenth of a second."""

    def __init__(self, instance):
        super().__init__(daemon=True)
        self.instance, self.most, self.over = instance, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.1):
            try:
                with open(f"/proc/{self.instance.process.pid}/status") as status:
                    own = [int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon")]
            except OSError:
                return  # it has ended
            self.most = max([self.most, *own])


def run(case, between, cluster, address):
    mib, settings = CASES[case]
    # A window that slides has its last records still open, and those that are held have no outcome.
    limit, tail = mib * MIB, 20_000 if "sliding" in case else 5000 if case == "hold" else 0
    space = c.Space(cluster, case.replace("_", "-"))
    try:
        produce(space, BEFORE)
        with bounded(case, limit) as within:
            a = c.Instance(space, faults.BINARY, 0, sink_more=f", brokers: '{address}'",
                           end=f"limits: {{ memory: {mib}MiB }}", **settings)
            a.start(within)
            watch, own = load.Watch(a), Anonymous(a)
            try:
                own.start()
                a.says("release published")
                watch.start()
                watch.phase = "blocked"
                between.set("half-open")
                produce(space, LARGE_MEANWHILE if settings.get("max_age") else MEANWHILE)
                time.sleep(BLOCKED)  # the length of the fault
                assert a.alive(), f"ended with {a.process.returncode} while the output was blocked"
                between.set("pass")
                watch.phase = "healed"
                until = time.monotonic() + 600
                while judged(space, case).missing > tail:
                    assert a.alive(), f"ended with {a.process.returncode} while outcomes were awaited"
                    assert time.monotonic() < until, "waited 600 s in vain for outcomes"
                    time.sleep(JUDGE_AGAIN)
                a.kill(signal.SIGTERM)
                assert a.process.returncode == 0, f"ended with {a.process.returncode}"
            finally:
                watch.over.set()
                own.over.set()
                print(f"{case}: {own.most / MIB:.0f} MiB of its own at most, of {mib} MiB", flush=True)
                between.set("pass")
                a.kill()
        space.settle()
        verdict = judged(space, case)
        watch.report()
        print(verdict.text())
        print(f"{case}: {a.said().count('release published')} releases", flush=True)
        assert verdict.ok, "a statement is violated"
        assert verdict.figures["published"] > 0.5 * verdict.figures["records"], "too little was published to be a pass"
        assert any(paused for phase, _, paused in watch.samples if phase == "blocked"), "the partitions were not paused"
    finally:
        space.close()


def main():
    wanted = sys.argv[2:] or list(CASES)
    if len(sys.argv) < 2 or not set(wanted) <= set(CASES):
        print(f"{__doc__}\nCases: {', '.join(CASES)}")
        return 2
    faults.BINARY = str(pathlib.Path(sys.argv[1]).resolve())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left running
    port, failed = c.free_port(), []
    cluster = c.Cluster("memory", flags=["--proxied", port])
    host, real = cluster.env["PROXIED"].split(":")
    between = faults.proxy.Proxy((host, int(real)), port)
    try:
        for case in wanted:
            try:
                run(case, between, cluster, f"127.0.0.1:{port}")
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                print(f"{case} FAILED: {error}", flush=True)
                failed.append(case)
    finally:
        between.close()
        cluster.down()
    print(f"{len(wanted) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
