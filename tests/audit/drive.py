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
    manifests: list = field(default_factory=list)


@dataclass
class Evidence:
    case: object
    first: Output = None
    again: Output = None
    permuted: Output = None
    verify: Output = None
    search: Output = None
    optimal: Output = None
    tables: list = field(default_factory=list)  # Of the audiences: rows and manifests.
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
        self.write(self.source(), self.input(case.records))
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

    def source(self, name="in"):
        return name + (self.case.shape.extension or f".{self.case.source}")

    def input(self, records):
        return self.case.shape.write(self.case, records)

    def text(self, name):
        return self.case.shape.unnamed(self.read(name).decode())

    def config(self, name, **sections):
        policy = dict(self.case.policy)
        if "keep" in policy:
            policy["keep"] = [kept(field, self.binary) for field in policy["keep"]]
        policy = self.case.shape.policy(policy)
        sections = {"policy": policy, "search": self.case.search} | sections
        # JSON is YAML.
        self.write(name, json.dumps(sections, ensure_ascii=False, indent=1).encode())

    def run(self, *args, stdin=None):
        try:
            done = subprocess.run([self.binary, *args], input=stdin, capture_output=True, cwd=self.folder, timeout=PATIENCE,
                                  env={"PATH": os.environ.get("PATH", ""), "NO_COLOR": "1"})
            said = [self.case.shape.unnamed(text.decode(errors="replace")) for text in (done.stdout, done.stderr)]
            return Output(done.returncode, *said)
        except subprocess.TimeoutExpired:
            return Output(-1, "", f"did not end within {PATIENCE} s")

    def with_rows(self, output, data):
        output.data = data
        if not data:
            return output
        try:
            delimiter = self.case.delimiter if self.case.source == "csv" else ","
            columns, rows = formats.read(self.case.sink, data, delimiter)
            output.rows = [self.case.shape.flat(row) for row in rows]
            short = [self.case.shape.unnamed(column) for column in columns or []]
            output.columns = list(output.rows[0]) if output.rows else short or None
        except (ValueError, KeyError, IndexError) as error:
            output.unreadable = f"{type(error).__name__}: {error}"
        return output

    def anonymize(self):
        case = self.case
        self.config("case.yaml")
        shuffled = list(case.records)
        random.Random(case.seed).shuffle(shuffled)
        self.write(self.source("permuted"), self.input(shuffled))
        encoding = [part for key, value in case.shape.source.items() for part in (f"--{key}", value)]

        def release(source, out):
            target = f"{out}.{case.sink}"
            report = ["-o", target, "--report", f"{out}.json"]
            done = self.run("anonymize", "-c", "case.yaml", self.source(source), *encoding, *report)
            return self.with_rows(done, self.read(target))

        evidence = Evidence(case, release("in", "first"), release("in", "again"), release("permuted", "moved"))
        evidence.figures = self.text("first.json")
        evidence.report = json.loads(evidence.figures) if evidence.figures else None
        if evidence.first.data:
            evidence.verify = self.run("verify", "-c", "case.yaml", f"first.{case.sink}", "--json")
        search = ["search", "-c", "case.yaml", self.source(), *encoding, "--json"]
        evidence.search, evidence.optimal = self.run(*search), self.run(*search, "--algorithm", "optimal")
        return evidence

    def stream(self):
        case, outputs = self.case, []
        for name in ("first", "again"):
            source = {"file": {"path": self.source(), **case.shape.source}}
            sink = {"file": {"path": f"{name}.{case.sink}", "manifest": f"{name}.manifest"}}
            if knows(self.binary)["journal"]:
                sink["file"]["journal"] = f"{name}.journal"
            if case.stdio:
                source, sink = {"stdio": {"format": case.source}}, {"stdio": {"format": case.sink}}
            elif case.source == "csv":
                source["file"]["delimiter"] = case.delimiter
            # Time must not decide, or a busy machine would.
            search = case.search | {"time_budget": "50s"}
            tables = [a | {"path": f"{name}-{a['name']}.{case.sink}", "manifest": f"{name}-{a['name']}.manifest"}
                      for a in case.audiences]
            more = {"audiences": tables} if tables else {}
            self.config(f"{name}.yaml", search=search, window=case.window, source=source, sink=sink, **more)
            output = self.run("run", "-c", f"{name}.yaml", stdin=self.input(case.records) if case.stdio else b"")
            data = output.stdout.encode() if case.stdio else self.read(f"{name}.{case.sink}")
            outputs.append(self.with_rows(output, data))
        text = [self.text(f"{name}.manifest") for name in ("first", "again")]
        evidence = Evidence(case, *outputs, figures=text[0])
        evidence.manifests, evidence.manifests_again = [[json.loads(line) for line in t.splitlines()] for t in text]
        evidence.journal = [json.loads(line) for line in self.read("first.journal").decode().splitlines()]
        for audience in case.audiences:
            name = f"first-{audience['name']}"
            table = self.with_rows(Output(0, "", ""), self.read(f"{name}.{case.sink}"))
            table.manifests = [json.loads(line) for line in self.text(f"{name}.manifest").splitlines()]
            evidence.tables.append(table)
            evidence.figures += self.text(f"{name}.manifest")
        if evidence.first.rows and not case.stdio and knows(self.binary)["manifest"]:
            file = f"first.{case.sink}"
            evidence.verify = self.run("verify", "-c", "first.yaml", file, "--manifest", "first.manifest", "--json")
        return evidence
