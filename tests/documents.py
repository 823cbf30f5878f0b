"""Runs every code block of the documents as a reader would, in a scratch folder beside which the project stands.

Usage: documents.py BINARY

Every block of every document must be named in BLOCKS, so that a new one cannot stay untried. Blocks that take hours, or
that would run this very test, are tried by asking their program whether it knows the command (`--help`, `--no-run`).
"""

import glob
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Longer than any of these steps on a busy machine of two cores.
PATIENCE = 300


def blocks(document):
    """The fenced blocks of a document: (language, text)."""
    with open(os.path.join(ROOT, document)) as file:
        return re.findall(r"^```(\w*)\n(.*?)^```$", file.read(), re.M | re.S)


class Reader:
    """Somebody who types what the documents say, in one shell per document."""

    def __init__(self, folder, binary):
        self.folder = folder
        self.binary = binary
        for name in ["Cargo.toml", "src", "tests", "deploy", "schemas"]:
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
        # `cargo build` of the tour: the program is built already, and stands where the tour expects it.
        os.makedirs(os.path.join(folder, "target/release"))
        os.symlink(binary, os.path.join(folder, "target/release/veilstream"))
        self.tools = os.path.join(folder, "tools")
        os.makedirs(self.tools)
        self.tool("cargo", 'case "$1" in build) ;; run) while [ "$1" != -- ]; do shift; done; shift; exec veilstream "$@" ;; *) exit 2 ;; esac')
        self.tool("docker", '[ "$1" = build ] && [ -f "$3" ]')  # the image itself is built by tests/deploy
        helm = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "tools/deploy/bin/helm")
        self.tool("helm", f'shift; exec {shlex.quote(helm)} template "${{@//--create-namespace/--debug}}"')
        self.script = ""

    def tool(self, name, text):
        path = os.path.join(self.tools, name)
        with open(path, "w") as file:
            file.write(f"#!/usr/bin/env bash\n{text}\n")
        os.chmod(path, 0o755)

    def start(self, text):
        """Starts a block. What earlier blocks of this reader left (folder, variables) is there."""
        state = os.path.join(self.folder, "state")
        before = f"source {shlex.quote(state)}; cd \"$OLD_PLACE\"\n" if os.path.exists(state) else ""
        after = f"\nOLD_PLACE=$PWD; declare -p OLD_PLACE PATH ${{BOOTSTRAP+BOOTSTRAP KAFKA_DIR}} > {shlex.quote(state)}\n"
        script = "set -euo pipefail\n" + before + text + after
        environment = dict(os.environ, PATH=f"{self.tools}:{os.path.dirname(self.binary)}:{os.environ['PATH']}")
        return subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    def run(self, text):
        """Runs a block to its end; returns what it wrote to standard output."""
        process = self.start(text)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, f"exit code {process.returncode} of\n{text}\n{out}{err}"
        return out


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.2)


def runs(reader, text):
    reader.run(text)


def the_pipeline(reader, text):
    """The tour's service: ends with the summary that schemas/README.md shows."""
    out = reader.run(text)
    summary = json.loads(next(line for line in out.splitlines() if line.startswith('{"records_in"')))
    assert summary["records_in"] == 10000, summary
    reader.summary = summary


def the_summary(reader, text):
    """A summary has the fields that the document shows, and counts that add up."""
    shown = json.loads(text)
    assert list(shown) == list(reader.summary), (list(shown), list(reader.summary))
    parts = ["records_published", "records_suppressed", "records_held", "records_rejected"]
    assert sum(shown[part] for part in parts) == shown["records_in"], shown


AROUND = """
policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [5, 10, 20], min: 0, max: 120 } } }
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
  keep: [score]
  privacy: [{ k-anonymity: 5 }]
source: { kafka: { brokers: "localhost:9092", topic: people, group: veilstream } }
sink: { kafka: { topic: safe, transactional_id: veilstream-1 } }
"""


def valid(reader, text):
    """A configuration, or a section of one."""
    path = os.path.join(reader.folder, "valid.yaml")
    with open(path, "w") as file:
        around = [line for line in AROUND.splitlines(True) if line.split(":")[0] + ":" not in text or line.startswith(" ")]
        file.write(text if "policy:" in text else "".join(around) + text)
    checked = subprocess.run([reader.binary, "validate", "-c", path], capture_output=True, text=True, timeout=PATIENCE)
    assert checked.returncode == 0, checked.stderr


def nested(reader, text):
    """A policy with paths, and the record that is shown with it: rows have the shape that is shown."""
    shown = [json.loads(found) for found in re.findall(r"`(\{\"customer\".*?\})`", open(os.path.join(ROOT, "schemas/README.md")).read(), re.S)]
    policy, people, safe = (os.path.join(reader.folder, name) for name in ["nested.yaml", "nested.jsonl", "nested-safe.jsonl"])
    with open(policy, "w") as file:
        file.write(text)
    with open(people, "w") as file:
        for number in range(10):
            shown[0]["customer"]["id"] = number
            file.write(json.dumps(shown[0]) + "\n")
    subprocess.run([reader.binary, "anonymize", "-c", policy, people, "-o", safe], check=True, capture_output=True, timeout=PATIENCE)
    with open(safe) as file:
        rows = [json.loads(line) for line in file]
    shape = lambda value: {key: shape(inner) for key, inner in value.items()} if isinstance(value, dict) else None
    assert len(rows) == 10 and all(shape(row) == shape(shown[1]) for row in rows), rows
    assert all(row["diagnosis"] == shown[1]["diagnosis"] for row in rows), rows


def kafka(reader, text):
    """The service on Kafka: publishes, and ends well when it is interrupted."""
    process = reader.start(text.replace("veilstream run", 'printf "%s" "$BOOTSTRAP" > bootstrap; veilstream run'))
    bootstrap = os.path.join(reader.folder, "bootstrap")
    directory = None
    try:
        wait_until(lambda: process.poll() is not None or os.path.exists(bootstrap) and open(bootstrap).read(), "a broker")
        assert process.poll() is None, process.communicate()
        address = open(bootstrap).read()

        def published():
            command = ["kcat", "-C", "-q", "-e", "-b", address, "-t", "safe", "-X", "isolation.level=read_committed"]
            read = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            return len(read.stdout.splitlines()) > 10000 or process.poll() is not None

        wait_until(published, "rows in the topic")
        assert process.poll() is None, process.communicate()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert '"records_published"' in out, out + err
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        found = glob.glob(os.path.join(ROOT, "target/infra/run/*/env"))
        for env in found:
            with open(env) as file:
                if os.path.exists(bootstrap) and open(bootstrap).read() in file.read():
                    directory = os.path.dirname(env)
        if directory:
            subprocess.run([os.path.join(ROOT, "tests/infra/kafka"), "down", directory], check=True, capture_output=True)


def a_picture(_, text):
    assert "──▶" in text


def this_test(_, text):
    command = text.strip()
    assert os.access(os.path.join(ROOT, command), os.X_OK), command


def options_exist(_, text):
    """A command that takes long: its program must know its options."""
    for line in text.strip().splitlines():
        program, *arguments = shlex.split(line, comments=True)
        interpreter = [program] if program == "python3" else []
        program, *arguments = arguments if interpreter else [program, *arguments]
        command = [*interpreter, os.path.join(ROOT, program), "--help"]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert asked.returncode == 0, line
        for option in (argument for argument in arguments if argument.startswith("--")):
            assert option in asked.stdout, f"{program} does not know {option}"


def benches_exist(_, text):
    with open(os.path.join(ROOT, "Cargo.toml")) as file:
        manifest = file.read()
    for line in text.strip().splitlines():
        words = shlex.split(line, comments=True)
        assert words[:3] == ["cargo", "bench", "--bench"], line
        assert f'[[bench]]\nname = "{words[3]}"' in manifest, line


BLOCKS = {
    "README.md": [a_picture, runs, this_test, runs, runs, the_pipeline, kafka],
    "schemas/README.md": [valid, valid, valid, valid, valid, nested, the_summary],
    "deploy/README.md": [runs, valid, valid],
    "tests/README.md": [options_exist, options_exist],
    "tests/infra/README.md": [runs],
    "benches/README.md": [benches_exist],
    "deploy/SIZING.md": [options_exist],
    "CHANGELOG.md": [],
    "SECURITY.md": [],
    "schemas/CONFIGURATION.md": [],
    "THREAT_MODEL.md": [],
    "tests/mutants.md": [],
}


def main():
    binary = os.path.realpath(sys.argv[1])
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    documents = listed or [os.path.relpath(path, ROOT) for path in glob.glob(f"{ROOT}/**/*.md", recursive=True) if "/target/" not in path]
    unknown = [document for document in documents if document not in BLOCKS]
    assert not unknown, f"not in BLOCKS: {unknown}"
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(folder, binary)
        for document, ways in BLOCKS.items():
            found = blocks(document)
            assert len(found) == len(ways), f"{document} has {len(found)} code blocks, {len(ways)} are known here"
            for number, ((_, text), way) in enumerate(zip(found, ways), 1):
                way(reader, text)
                print(f"{document}: block {number} of {len(found)} works", flush=True)
            state = os.path.join(folder, "state")
            if os.path.exists(state):
                os.remove(state)
    print("every code block of the documents works")


if __name__ == "__main__":
    main()
