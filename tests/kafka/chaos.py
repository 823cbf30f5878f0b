#!/usr/bin/env python3
"""Kills instances at random while they publish, then lets the oracle judge what is in the topics.

    tests/kafka/chaos.py BINARY [--records N] [--kills N] [--instances N] [--seed N] [--static]

Ends with 0 if no statement was violated and the service made progress throughout.
"""

import argparse
import random
import sys
import time

import cluster as c
import oracle


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--action", default="drop", choices=["drop", "hold"])
    parser.add_argument("--static", action="store_true", help="static group membership: a restart takes its place back")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    cluster = c.Cluster(f"chaos-{args.seed}")
    space = None
    try:
        space = c.Space(cluster, "chaos", args.partitions)
        instances = []
        for number in range(args.instances):
            extra = f', group.instance.id: "veil-{number}"' if args.static else ""
            instances.append(c.Instance(space, args.binary, number, extra=extra, action=args.action).start())
        batch = max(1, args.records // max(1, args.kills + 1))
        produced, started, stalls, done = 0, time.monotonic(), 0, []
        for kill in range(args.kills):
            space.produce(args.binary, batch)
            produced += batch
            time.sleep(rng.uniform(0.2, 2.5))
            victim = rng.choice(instances)
            victim.kill()
            time.sleep(rng.uniform(0, 0.5))
            victim.start()
            dead = [i.number for i in instances if not i.alive()]
            if dead:
                print(f"instances {dead} ended by themselves; see their logs")
                return 1
            lag = space.lag() if kill % 10 == 9 else None
            if lag is not None:
                print(f"kill {kill + 1}/{args.kills}: produced {produced}, lag {lag}", flush=True)
                # Ten kills in a row may hit every attempt; twenty without a single commit are a standstill.
                done.append(produced - lag)
                stalls += len(done) > 2 and done[-1] <= done[-3]
        space.produce(args.binary, max(batch, args.records - produced))
        chaos = time.monotonic() - started
        tail = 0 if args.action == "drop" else args.records // 20

        def judge():
            return oracle.judge(cluster.bootstrap, space.source, space.sink, f"{space.sink}-manifests", c.QUASI, "diagnosis", 5, 2)

        if args.action == "drop":
            space.drained(240)
        else:
            # The lag shows where the oldest held record is.
            c.wait_for(lambda: judge().missing <= tail, 240, "all but the held records to have an outcome")
        for instance in instances:
            instance.kill(15)
        space.settle()
        verdict = judge()
        verdict.figures["kills"] = args.kills
        verdict.figures["seconds of chaos"] = round(chaos)
        print(verdict.text())
        if stalls:
            print(f"no progress in {stalls} of the stretches")
        progress = verdict.figures["published"] > 0.5 * verdict.figures["records"] and not stalls
        if not progress:
            print("too little was published for this to be a pass")
        return 0 if verdict.ok and progress and verdict.missing <= tail else 1
    finally:
        if space:
            space.close()
        cluster.down()


if __name__ == "__main__":
    sys.exit(main())
