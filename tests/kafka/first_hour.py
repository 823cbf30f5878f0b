#!/usr/bin/env python3
"""The first hour with a topic: `profile` counts what another reader of the topic counts, and the policy of `init` publishes, unedited.

usage: first_hour.py BINARY
"""

import collections
import json
import os
import signal
import subprocess
import sys
import tempfile

from cluster import Cluster, run, wait_for

RECORDS = 6000


def rows(bootstrap, topic):
    command = ["kcat", "-C", "-q", "-e", "-b", bootstrap, "-t", topic, "-X", "isolation.level=read_committed"]
    # A topic that is not there yet has no rows.
    read = subprocess.run(command, text=True, capture_output=True)
    return [json.loads(line) for line in read.stdout.splitlines()]


def profile_is_right(profile, records):
    assert profile["records"] == len(records) and not profile["sampled"], profile
    pairs = len(records) * (len(records) - 1)
    for field in profile["fields"]:
        sizes = collections.Counter(json.dumps(record.get(field["field"])) for record in records).values()
        assert abs(field["distinction"] - len(sizes) / len(records)) < 1e-9, field
        assert abs(field["separation"] - (1 - sum(n * (n - 1) for n in sizes) / pairs)) < 1e-9, field


def main(binary):
    binary = os.path.abspath(binary)
    cluster = Cluster("first")
    try:
        cluster.tool("topics", "--create", "--topic", "people", "--partitions", "4")
        run(binary, "generate", "--records", RECORDS, "--brokers", cluster.bootstrap, "--topic", "people")
        profile = subprocess.run([binary, "profile", "people", "--brokers", cluster.bootstrap, "--subject", "user_id", "--json"],
                                 check=True, text=True, capture_output=True)
        assert not profile.stderr, profile.stderr
        profile_is_right(json.loads(profile.stdout), rows(cluster.bootstrap, "people"))
        with tempfile.TemporaryDirectory() as folder:
            run(binary, "init", "people", "--brokers", cluster.bootstrap, "--yes", "--readers", "internal", cwd=folder)
            policy = open(os.path.join(folder, "pipeline.yaml")).read()
            # A window of the whole topic would wait for its age.
            with open(os.path.join(folder, "pipeline.yaml"), "w") as file:
                file.write(policy.replace("max_age: 60s", "max_age: 5s"))
            service = subprocess.Popen([binary, "run", "-c", "pipeline.yaml"], cwd=folder, text=True, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL)
            try:
                wait_for(lambda: service.poll() is not None or len(rows(cluster.bootstrap, "people-safe")) > RECORDS * 0.8, 120,
                         "rows of the proposed policy")
                service.send_signal(signal.SIGINT)
                summary = json.loads(service.communicate(timeout=60)[0])
                assert summary["records_published"] >= RECORDS * 0.8, summary
            finally:
                service.kill()
        quasi = [line.split(": ")[1] for line in policy.split("  privacy:")[0].splitlines() if line.startswith("    - name: ")]
        assert set(quasi) >= {"age", "sex", "zip", "country", "education", "marital_status", "born", "occupation"}, quasi
        sizes = collections.Counter(tuple(row[name] for name in quasi) for row in rows(cluster.bootstrap, "people-safe"))
        assert min(sizes.values()) >= 5, min(sizes.values())
        print(f"PASS first hour: {RECORDS} records, {len(quasi)} quasi-identifiers, {len(sizes)} classes")
    finally:
        cluster.down()


if __name__ == "__main__":
    main(sys.argv[1])
