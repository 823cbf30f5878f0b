"""Runs the program on a case and gathers all that it wrote: the evidence."""

import json
import os
import random
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache

import formats
from cases import LINK

# A case takes well under a second; a program that hangs is a finding.
PATIENCE = 60


@dataclass
class Output:
    """One command: how it ended and what it wrote."""

    exit: int
    stdout: str
    stderr: str
    data: bytes = b""
    columns: list = None
    rows: list = field(default_factory=list)
    unreadable: str = ""


@dataclass
class Evidence:
    case: object
    first: Output = None
    again: Output = None
    permuted: Output = None
    verify: Output = None
    search: Output = None
    optimal: Output = None
    report: dict = None
    manifests: list = field(default_factory=list)
    manifests_again: list = field(default_factory=list)
    journal: list = field(default_factory=list)  # For operators: what each window finished.
    figures: str = ""  # Manifests and reports as text.


@lru_cache(maxsize=None)
def knows(binary):
    """What this build of the program can be asked for."""
    run = lambda *args: subprocess.run([binary, *args], capture_output=True, text=True, timeout=PATIENCE).stdout
    schema = run("schema")
    sink = json.loads(schema)["$defs"]["RawFileSink"]["properties"]
    return {"reviewed": '"reviewed"' in schema, "journal": "journal" in sink, "manifest": "--manifest" in run("verify", "--help")}


def kept(name, binary):
    """A kept field as the policy writes it. A field that is nearly unique must be said to have been looked at."""
    return {"name": name, "reviewed": True} if name == LINK and knows(binary)["reviewed"] else name


def gather(case, binary, keep=None):
    """The evidence of a case. `keep` names a folder in which its files stay."""
    folder = keep or tempfile.mkdtemp(prefix="audit-")
    os.makedirs(folder, exist_ok=True)
    try:
        return Driver(case, binary, folder).evidence()
    finally:
        if not keep:
            shutil.rmtree(folder)


class Driver:
    def __init__(self, case, binary, folder):
        self.case, self.binary, self.folder = case, os.path.abspath(binary), folder

    def evidence(self):
        case = self.case
        for name, text in case.files.items():
            self.write(name, text.encode())
        self.write(f"in.{case.source}", self.input(case.records))
        return self.anonymize() if case.mode == "anonymize" else self.stream()

    def write(self, name, data):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(data)

    def read(self, name):
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def input(self, records):
        return formats.write(self.case.source, self.case.names, records, self.case.delimiter)

    def config(self, name, **sections):
        policy = dict(self.case.policy)
        if "keep" in policy:
            policy["keep"] = [kept(field, self.binary) for field in policy["keep"]]
        sections = {"policy": policy, "search": self.case.search} | sections
        # JSON is YAML.
        self.write(name, json.dumps(sections, ensure_ascii=False, indent=1).encode())

    def run(self, *args, stdin=None):
        try:
            done = subprocess.run([self.binary, *args], input=stdin, capture_output=True, cwd=self.folder, timeout=PATIENCE,
                                  env={"PATH": os.environ.get("PATH", ""), "NO_COLOR": "1"})
            return Output(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
        except subprocess.TimeoutExpired:
            return Output(-1, "", f"did not end within {PATIENCE} s")

    def with_rows(self, output, data):
        output.data = data
        if not data:
            return output
        try:
            delimiter = self.case.delimiter if self.case.source == "csv" else ","
            output.columns, output.rows = formats.read(self.case.sink, data, delimiter)
        except (ValueError, KeyError, IndexError) as error:
            output.unreadable = f"{type(error).__name__}: {error}"
        return output

    def anonymize(self):
        case = self.case
        self.config("case.yaml")
        shuffled = list(case.records)
        random.Random(case.seed).shuffle(shuffled)
        self.write(f"permuted.{case.source}", self.input(shuffled))

        def release(source, out):
            target = f"{out}.{case.sink}"
            done = self.run("anonymize", "-c", "case.yaml", f"{source}.{case.source}", "-o", target, "--report", f"{out}.json")
            return self.with_rows(done, self.read(target))

        evidence = Evidence(case, release("in", "first"), release("in", "again"), release("permuted", "moved"))
        evidence.figures = self.read("first.json").decode()
        evidence.report = json.loads(evidence.figures) if evidence.figures else None
        if evidence.first.data:
            evidence.verify = self.run("verify", "-c", "case.yaml", f"first.{case.sink}", "--json")
        search = ["search", "-c", "case.yaml", f"in.{case.source}", "--json"]
        evidence.search, evidence.optimal = self.run(*search), self.run(*search, "--algorithm", "optimal")
        return evidence

    def stream(self):
        case, outputs = self.case, []
        for name in ("first", "again"):
            source = {"file": {"path": f"in.{case.source}"}}
            sink = {"file": {"path": f"{name}.{case.sink}", "manifest": f"{name}.manifest"}}
            if knows(self.binary)["journal"]:
                sink["file"]["journal"] = f"{name}.journal"
            if case.stdio:
                source, sink = {"stdio": {"format": case.source}}, {"stdio": {"format": case.sink}}
            elif case.source == "csv":
                source["file"]["delimiter"] = case.delimiter
            # Time must not decide, or a busy machine would.
            search = case.search | {"time_budget": "50s"}
            self.config(f"{name}.yaml", search=search, window=case.window, source=source, sink=sink)
            output = self.run("run", "-c", f"{name}.yaml", stdin=self.input(case.records) if case.stdio else b"")
            data = output.stdout.encode() if case.stdio else self.read(f"{name}.{case.sink}")
            outputs.append(self.with_rows(output, data))
        text = [self.read(f"{name}.manifest").decode() for name in ("first", "again")]
        evidence = Evidence(case, *outputs, figures=text[0])
        evidence.manifests, evidence.manifests_again = [[json.loads(line) for line in t.splitlines()] for t in text]
        evidence.journal = [json.loads(line) for line in self.read("first.journal").decode().splitlines()]
        if evidence.first.rows and not case.stdio and knows(self.binary)["manifest"]:
            file = f"first.{case.sink}"
            evidence.verify = self.run("verify", "-c", "first.yaml", file, "--manifest", "first.manifest", "--json")
        return evidence
