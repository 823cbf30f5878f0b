"""A day of load in what time there is: is memory flat, and is nothing lost when more comes than can be done?

    tests/kafka/load.py BINARY [--releases 2880] [--rate 1000] [--minutes 2]

Four phases through one instance, on a broker of its own: steady, ten times the rate, an output that takes nothing, and steady
again until there were so many releases (2,880 is a day of one every 30 s). Then the oracle judges what is in the topics. The
resident memory, at its peak as the kernel has seen it, must stay below 256 MiB with `limits: { memory: 128MiB }`, and the
last third of the last phase may not need more than its first. BINARY must be built with the `failpoints` feature.
"""

import argparse
import pathlib
import signal
import statistics
import sys
import threading
import time

import cluster as c
import faults

LIMIT = 256 << 20
# What the median of the last third may be above that of the first. More hides a leak; less is what an allocator keeps by chance.
SLACK = 1.1
PAUSED = 'veilstream_partitions{state="paused"}'


class Watch(threading.Thread):
    """Memory and paused partitions, every half second, by phase."""

    def __init__(self, instance):
        super().__init__(daemon=True)
        self.instance, self.phase, self.samples, self.over = instance, "start", [], threading.Event()

    def run(self):
        while not self.over.wait(0.5):
            try:
                self.samples.append((self.phase, self.instance.memory(), self.instance.metric(PAUSED) or 0))
            except (OSError, StopIteration):
                return  # it has ended

    def report(self):
        phases = dict.fromkeys(phase for phase, _, _ in self.samples)
        for name in phases:
            memory = [m for phase, m, _ in self.samples if phase == name]
            paused = [p for phase, _, p in self.samples if phase == name]
            print(f"{name}: {statistics.median(memory) / 2**20:.0f} MiB in the median, {max(memory) / 2**20:.0f} MiB at most; "
                  f"paused in {sum(map(bool, paused))} of {len(paused)} looks", flush=True)


def peak(instance):
    """The most that was ever resident, from the kernel."""
    with open(f"/proc/{instance.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def flow(space, rate, seconds):
    """An even rate for a while; gives how many records that were."""
    began, sent = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * rate) - sent
        if due > 0:
            space.produce(faults.BINARY, due)
            sent += due
        time.sleep(0.5)
    return sent


def load(args):
    with faults.proxied("load") as (between, space, address):
        a = c.Instance(space, faults.BINARY, 0, window=args.window, sink_more=f", brokers: '{address}'",
                       end="limits: { memory: 128MiB }")
        a.start()
        watch = Watch(a)
        watch.start()
        sent = 0
        for phase, rate in (("steady", args.rate), ("ten times the rate", 10 * args.rate), ("blocked output", args.rate)):
            watch.phase = phase
            if phase == "blocked output":
                between.set("half-open")  # only what the sink sends goes this way
            count = flow(space, rate, args.minutes * 60)
            print(f"{phase}: {count} records in {args.minutes:g} min", flush=True)
            sent += count
        watched = [p for phase, _, p in watch.samples if phase == "blocked output"]
        assert a.alive(), "ended while the output was blocked"
        between.set("pass")
        watch.phase = "steady again"
        while (published := a.said().count("release published")) < args.releases:
            assert a.alive(), "ended by itself"
            # As fast as it is taken, but not more than a minute ahead.
            if sent < (published + 10) * args.window + 60 * args.rate:
                space.produce(faults.BINARY, 10 * args.window)
                sent += 10 * args.window
            else:
                time.sleep(0.5)
        space.drained(600)
        watch.over.set()
        watch.join()
        most = peak(a)
        a.kill(signal.SIGTERM)
        space.settle()
        verdict = faults.judge(space)
        print(verdict.text())
        watch.report()
        memory = [m for phase, m, _ in watch.samples if phase == "steady again"]
        first, last = (statistics.median(part) for part in (memory[:len(memory) // 3], memory[-(len(memory) // 3):]))
        print(f"first third {first / 2**20:.0f} MiB, last third {last / 2**20:.0f} MiB, peak {most / 2**20:.0f} MiB, "
              f"{a.said().count('release published')} releases of {sent} records", flush=True)
        assert verdict.ok and not verdict.missing, "a statement is violated"
        assert verdict.figures["records"] == sent, "not all is there that was sent"
        assert any(watched), "the partitions were not paused while the output was blocked"
        assert most < LIMIT, "more than 256 MiB"
        assert last <= SLACK * first, "memory grows"


def main():
    parser = argparse.ArgumentParser(prog="tests/kafka/load.py", description=__doc__.split("\n")[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--releases", type=int, default=2880, help="go on until there were so many (default 2880)")
    parser.add_argument("--rate", type=int, default=1000, help="records per second of the first phase (default 1000)")
    parser.add_argument("--minutes", type=float, default=2, help="of each of the first three phases (default 2)")
    parser.add_argument("--window", type=int, default=500, help="records per window (default 500)")
    args = parser.parse_args()
    faults.BINARY = str(args.binary.resolve())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left running
    load(args)
    print("PASSED")


if __name__ == "__main__":
    main()
