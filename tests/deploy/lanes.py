#!/usr/bin/env python3
"""What splitting a topic costs: the same records over 1, 2, 4 and 8 lanes; and what a window costs in time and memory.

    tests/deploy/lanes.py BINARY [--records N] [--window N]

A lane is what one instance reads. Prints the tables of deploy/SIZING.md. Windows close by age in production; here a window
of N records over one lane is N/n records over each of n lanes, which is the same stretch of time. CPU time, not the
clock: the machine may be busy.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import zlib

POLICY = """
policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [5, 10, 20, 40], min: 0, max: 120 } } }
    - { name: sex, hierarchy: trivial }
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
    - { name: country, hierarchy: trivial }
    - { name: education, hierarchy: trivial }
  sensitive: [{ name: diagnosis }]
  subject: user_id
  privacy:
    - { k-anonymity: 5 }
    - { l-diversity: { field: diagnosis, l: 2, variant: distinct } }
  suppression: { limit: 0.05 }
search: { time_budget: 2s, seed: 1 }
"""
LANES = (1, 2, 4, 8)


def number(text):
    return zlib.crc32(str(text).encode())


SPLITS = {
    "by turns": lambda at, record, lanes: at % lanes,
    "by subject": lambda at, record, lanes: number(record["user_id"]) % lanes,
    "by zip": lambda at, record, lanes: number(record["zip"][:1]) % lanes,
}


def run(binary, folder, lines, window):
    """One instance over these records: its manifests, CPU seconds, and peak memory in MiB."""
    for name in ("out.jsonl", "manifests.jsonl"):
        # Files that are there would be continued.
        (folder / name).unlink(missing_ok=True)
    (folder / "in.jsonl").write_text("".join(lines))
    (folder / "p.yaml").write_text(
        f"{POLICY}window: {{ tumbling: {{ max_records: {window}, max_age: 1h }} }}\n"
        "source: { file: { path: in.jsonl } }\nsink: { file: { path: out.jsonl, manifest: manifests.jsonl } }\n")
    process = subprocess.Popen([binary, "--log=error", "run", "-c", folder / "p.yaml"], stdout=subprocess.PIPE, cwd=folder)
    peak = [0]

    def watch():
        # The kernel's figure at the end would count this script's own memory, from before the program was loaded.
        while process.returncode is None:
            try:
                status = open(f"/proc/{process.pid}/status").read()
            except OSError:
                return
            peak[0] = max([peak[0]] + [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")])
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    watcher.join()
    assert process.returncode == 0, f"ended with {process.returncode}"
    summary = json.loads(out.splitlines()[-1])
    assert summary["records_in"] == len(lines), summary
    manifests = [json.loads(line) for line in open(folder / "manifests.jsonl")]
    return manifests, used.ru_utime + used.ru_stime, peak[0] / 1024


def loss(manifests):
    """glm by published record, and the share that was suppressed."""
    published = sum(m["records_published"] for m in manifests)
    weighted = sum(m["records_published"] * n["value"] for m in manifests for n in m["losses"] if n["name"] == "glm")
    suppressed = sum(m["records_suppressed"] for m in manifests)
    return weighted / max(1, published), suppressed / max(1, published + suppressed)


def split(binary, folder, lines, args):
    records = [json.loads(line) for line in lines]
    print(f"\n| split | lanes | records per window | glm | suppressed |\n|---|---|---|---|---|")
    rows = [(how, n, args.window // n) for how in SPLITS for n in LANES] + [("by turns, windows by count", 8, args.window)]
    for how, lanes, window in rows:
        parts = [[] for _ in range(lanes)]
        for at, (line, record) in enumerate(zip(lines, records)):
            parts[SPLITS[how.split(",")[0]](at, record, lanes)].append(line)
        manifests = []
        for part in parts:
            # Lanes that get less than their share have smaller windows in the same stretch of time.
            own = max(1, round(window * lanes * len(part) / len(lines)))
            manifests += run(binary, folder, part, own)[0] if part else []
        glm, suppressed = loss(manifests)
        print(f"| {how} | {lanes} | {window} | {glm:.3f} | {suppressed:.1%} |", flush=True)


def cost(binary, folder, lines):
    print("\n| records per window | records per CPU second | peak memory | glm | suppressed |\n|---|---|---|---|---|")
    for window in (1000, 10_000, 50_000, 100_000, 200_000):
        count = max(100_000, 2 * window)
        if count > len(lines):
            return print(f"more needs --records {count}")
        manifests, seconds, peak = run(binary, folder, lines[:count], window)
        glm, suppressed = loss(manifests)
        print(f"| {window} | {count / seconds:.0f} | {peak:.0f} MiB | {glm:.3f} | {suppressed:.1%} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--window", type=int, default=20_000)
    parser.add_argument("--cost-only", action="store_true")
    parser.add_argument("--subjects", type=int, default=200_000)
    args = parser.parse_args()
    binary = args.binary.resolve()
    made = subprocess.run([binary, "generate", "--records", str(args.records), "--subjects", str(args.subjects)],
                          check=True, capture_output=True, text=True)
    lines = made.stdout.splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if not args.cost_only:
            split(binary, folder, lines[: 8 * args.window], args)
        cost(binary, folder, lines)


if __name__ == "__main__":
    sys.exit(main())
