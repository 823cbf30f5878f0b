"""The information loss (glm) of published rows, from their labels and the hierarchies alone.

A cell loses (leaves below its label - 1) / (all leaves - 1), a record the mean of its cells. A record that was read and not published
loses 1. Shares no code with Veilstream.

    glm.py --read 30162 --hierarchy age=age.csv --hierarchy sex=sex.csv PUBLISHED
"""

import argparse
import csv
import json
import sys


def leaves_below(path):
    """For each label of a hierarchy, the share of the other leaves that it does not tell apart."""
    with open(path, newline="", encoding="utf-8") as lines:
        rows = [line.rstrip("\r\n").split(";") for line in lines if line.strip()]
    below = {}
    for row in rows:
        for label in set(row):
            below[label] = below.get(label, 0) + 1
    others = max(len(rows) - 1, 1)
    return {label: (leaves - 1) / others for label, leaves in below.items()}


def published(path):
    with open(path, newline="", encoding="utf-8") as lines:
        if path.endswith(".jsonl"):
            yield from map(json.loads, lines)
        else:
            head = lines.readline()
            lines.seek(0)
            yield from csv.DictReader(lines, delimiter=";" if ";" in head else ",")


def glm(rows, hierarchies, read):
    """The mean loss of the records that were read, and how many are published."""
    lost, count = 0.0, 0
    for row in rows:
        count += 1
        lost += sum(loss[str(row[name])] for name, loss in hierarchies.items()) / len(hierarchies)
    return (lost + read - count) / max(read, 1), count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read", type=int, required=True, help="how many records were read")
    parser.add_argument("--hierarchy", action="append", required=True, metavar="NAME=CSV")
    parser.add_argument("published", help="CSV or JSONL")
    args = parser.parse_args()
    named = (hierarchy.split("=", 1) for hierarchy in args.hierarchy)
    loss, count = glm(published(args.published), {name: leaves_below(path) for name, path in named}, args.read)
    print(json.dumps({"glm": loss, "published": count, "read": args.read}))


if __name__ == "__main__":
    sys.exit(main())
