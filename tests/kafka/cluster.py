"""A real cluster and instances of the service, for the tests that break them."""

import os
import pathlib
import signal
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
INFRA = ROOT / "tests" / "infra" / "kafka"
QUASI = ["age", "sex", "zip", "country", "education"]

POLICY = """
policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [5, 10, 20, 40], min: 0, max: 120 } } }
    - { name: sex, hierarchy: trivial }
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
    - { name: country, hierarchy: trivial }
    - { name: education, hierarchy: trivial }
  sensitive: [{ name: diagnosis }]
  keep: [ts]
  subject: user_id
  privacy:
    - { k-anonymity: 5 }
    - { l-diversity: { field: diagnosis, l: 2, variant: distinct } }
  suppression: { limit: 0.05, action: %(action)s }
search: { time_budget: %(time_budget)s }
window: { tumbling: { max_records: %(window)d, max_age: %(max_age)s } }
source:
  kafka:
    brokers: %(bootstrap)s
    topics: [people]
    group: veil
    properties: { session.timeout.ms: "%(session)d", heartbeat.interval.ms: "500", max.poll.interval.ms: "60000"%(extra)s }
sink:
  kafka: { topic: safe, transactional_id: %(id)s, transaction_timeout: 20s }
http: { listen: "127.0.0.1:%(port)d" }
"""


def run(*command, **options):
    return subprocess.run([str(c) for c in command], check=True, text=True, capture_output=True, **options).stdout


def patiently(*command, tries=3):
    """A busy machine may not get a broker up in time: that is not what is tested here."""
    for left in reversed(range(tries)):
        try:
            return run(*command)
        except subprocess.CalledProcessError as error:
            if not left:
                raise AssertionError(f"no cluster: {error.stderr}") from error


class Cluster:
    def __init__(self, name, brokers=1, settings=()):
        self.dir = ROOT / "target" / "infra" / "run" / name
        more = [f for s in ("group.min.session.timeout.ms=1000", *settings) for f in ("--set", s)]
        env = patiently(INFRA, "up", "--brokers", brokers, "--dir", self.dir, "--owner", os.getpid(), *more)
        self.env = dict(line.split("=", 1) for line in env.splitlines() if "=" in line)
        self.bootstrap = self.env["BOOTSTRAP"].strip("'\"")
        self.instances = {}
        self.people = None

    def tool(self, *args):
        return run(INFRA, "tool", self.dir, *args)

    def topics(self, partitions):
        for topic, count in (("people", partitions), ("safe", 3), ("safe-manifests", 1), ("safe-dead-letters", 1)):
            self.tool("topics", "--create", "--topic", topic, "--partitions", count)

    def settle(self):
        """Waits until no transaction is open. One that a crash left behind hides what comes after it until the broker's
        timeout has aborted it, topic by topic: who reads meanwhile compares rows of one moment with manifests of another."""
        wait_for(lambda: self.open_transactions() == 0, 90, "open transactions to end")

    def open_transactions(self):
        """How many there are, or None while it cannot be told."""
        try:
            lines = self.tool("transactions", "list").splitlines()
        except subprocess.CalledProcessError:
            return None
        return sum(any(state in line for state in ("Ongoing", "PrepareCommit", "PrepareAbort")) for line in lines)

    def broker(self, action, number):
        run(INFRA, f"{action}-broker", self.dir, number)

    def produce(self, binary, records, subjects=2000, options=()):
        """More synthetic people. One generator for the whole run: its timestamps tell every record from every other."""
        if self.people is None:
            self.people = subprocess.Popen([binary, "generate", "--records", "0", "--subjects", str(subjects)],
                                           stdout=subprocess.PIPE)
        lines = b"".join(self.people.stdout.readline() for _ in range(records))
        subprocess.run(["kcat", "-P", "-b", self.bootstrap, "-t", "people", "-X", "linger.ms=20", *options],
                       input=lines, check=True, timeout=300)

    def down(self):
        for instance in self.instances.values():
            instance.kill()
        if self.people:
            self.people.kill()
        run(INFRA, "down", self.dir)


class Instance:
    """One process of the service with an id of its own."""

    def __init__(self, cluster, binary, number, port, env=None, **settings):
        values = {"bootstrap": cluster.bootstrap, "window": 500, "max_age": "2s", "session": 3000, "extra": "",
                  "action": "drop", "time_budget": "100ms", "id": f"veil-{number}", "port": port, **settings}
        self.cluster, self.binary, self.number, self.port = cluster, binary, number, port
        self.config = cluster.dir / f"instance-{number}.yaml"
        self.config.write_text(POLICY % values)
        self.log = open(cluster.dir / f"instance-{number}.log", "ab")
        self.env = env or {}
        self.process = None
        cluster.instances[number] = self

    def start(self, **env):
        self.process = subprocess.Popen([self.binary, "run", "-c", self.config], stdout=self.log, stderr=self.log,
                                        env={**os.environ, "RUST_LOG": "veilstream=info", **self.env, **env})
        return self

    def kill(self, how=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            if how != signal.SIGSTOP:
                self.process.wait(timeout=60)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def metric(self, name):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2) as answer:
                for line in answer.read().decode().splitlines():
                    if line.startswith(name + " ") or line.startswith(name + "{"):
                        return float(line.rsplit(" ", 1)[1])
        except OSError:
            return None
        return None


def committed(cluster, group="veil", topic="people"):
    """Sum of lag over all partitions, or None while it cannot be told."""
    try:
        text = cluster.tool("consumer-groups", "--describe", "--group", group)
    except subprocess.CalledProcessError:
        return None
    lag, seen = 0, False
    for line in text.splitlines():
        parts = line.split()
        if len(parts) > 5 and parts[1] == topic:
            # Nothing is committed where nothing came: then all that is there is still to be read.
            behind = parts[5] if parts[5] != "-" else parts[4]
            if not behind.isdigit():
                return None
            lag, seen = lag + int(behind), True
    return lag if seen else None


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds} s in vain for {what}")
