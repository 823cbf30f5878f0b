"""A real cluster, spaces of topics on it, and instances of the service, for the tests that break them."""

import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
INFRA = ROOT / "tests" / "infra" / "kafka"
RUN = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "infra" / "run"
QUASI = ["age", "sex", "zip", "country", "education"]

POLICY = """
policy:
  quasi_identifiers:
    - { name: age, hierarchy: { %(age)s }%(age_more)s }
    - { name: sex, hierarchy: trivial }
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
    - { name: country, hierarchy: trivial }
    - { name: education, hierarchy: trivial }
  sensitive: [{ name: diagnosis }]
  keep: [{ name: ts, reviewed: true }]
  %(subject)s
  privacy:
    - { k-anonymity: 5 }
    - { l-diversity: { field: diagnosis, l: 2, variant: distinct } }
    %(criteria)s
  suppression: { limit: %(limit)s, action: %(action)s }
search: { algorithm: %(algorithm)s, time_budget: %(time_budget)s }
window: %(windows)s
source:
  kafka:
    brokers: %(origin)s
    topics: [%(source)s]
    group: %(group)s
    rebalance: %(rebalance)s
    properties: { %(timing)smax.poll.interval.ms: "%(poll)d"%(extra)s }
    %(more)s
sink:
  kafka: { topic: %(sink)s, transactional_id: %(id)s, transaction_timeout: %(timeout)s%(elsewhere)s%(sink_more)s }
http: { listen: "127.0.0.1:%(port)d" }
%(route)s
%(end)s
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


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Cluster:
    """Brokers. Scenarios that do not touch the brokers share one, each in a space of its own."""

    def __init__(self, name, brokers=1, settings=(), flags=()):
        self.dir = RUN / name
        more = [f for s in settings for f in ("--set", s)]
        env = patiently(INFRA, "up", "--brokers", brokers, "--dir", self.dir, "--owner", os.getpid(), *more, *flags)
        self.env = dict(line.split("=", 1) for line in env.splitlines() if "=" in line)
        self.bootstrap = self.env["BOOTSTRAP"].strip("'\"")

    def tool(self, *args):
        # Kafka's tools wait for a minute when a broker is away; some then end with 0, some do not.
        return run(INFRA, "tool", self.dir, *args, timeout=180)

    def broker(self, action, number):
        run(INFRA, f"{action}-broker", self.dir, number)

    def down(self):
        run(INFRA, "down", self.dir)


class Space:
    """Topics, a group and instances that no other scenario uses. Without a name: `people` and `safe`. The input may be in another
    cluster: `origin`."""

    def __init__(self, cluster, name, partitions=4, origin=None):
        self.cluster, self.name, self.partitions = cluster, name, partitions
        self.origin, self.apart = origin or cluster, origin is not None
        self.bootstrap = cluster.bootstrap
        end = f"-{name}" if name else ""
        self.source, self.sink, self.group = f"people{end}", f"safe{end}", f"veil{end}"
        self.dir = cluster.dir / "spaces" / (name or "plain")
        self.dir.mkdir(parents=True, exist_ok=True)
        for old in self.dir.iterdir():
            old.unlink()
        self.instances = {}
        self.people = None
        # Of the group's offsets.
        self.shared = f"progress-{self.source}" if self.apart else self.source
        wanted = [(cluster, self.sink, 3), *((cluster, f"{self.sink}-{end}", 1) for end in ("manifests", "dead-letters", "journal")),
                  *((place, topic, partitions) for place, topic in {(self.origin, self.source), (cluster, self.shared)})]
        threads = [threading.Thread(target=self.create, args=topic) for topic in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def create(self, cluster, topic, partitions):
        def created():
            try:
                cluster.tool("topics", "--create", "--if-not-exists", "--topic", topic, "--partitions", partitions)
                return True
            except subprocess.SubprocessError:
                return False  # a busy machine: not what is tested here

        wait_for(created, 180, f"the topic {topic} to be made")

    def settle(self):
        """Waits until no transaction is open. One that a crash left behind hides what comes after it until the broker's
        timeout has aborted it, topic by topic: who reads meanwhile compares rows of one moment with manifests of another."""
        wait_for(lambda: self.open_transactions() == 0, 120, "open transactions to end")

    def open_transactions(self):
        """How many there are, or None while it cannot be told."""
        try:
            lines = self.cluster.tool("transactions", "list").splitlines()
        except subprocess.SubprocessError:
            return None
        ours = [line for line in lines if line.startswith(f"{self.group}-")]
        return sum(any(state in line for state in ("Ongoing", "PrepareCommit", "PrepareAbort")) for line in ours)

    def generate(self, binary, records, subjects=2000):
        """More synthetic people. One generator for the whole run: its timestamps tell every record from every other."""
        if self.people is None:
            self.people = subprocess.Popen([binary, "generate", "--records", "0", "--subjects", str(subjects)],
                                           stdout=subprocess.PIPE)
        return b"".join(self.people.stdout.readline() for _ in range(records))

    def produce(self, binary, records, subjects=2000):
        self.send(self.generate(binary, records, subjects))

    def send(self, lines):
        """Evenly over the partitions: a batch that sticks to one may leave an instance without a record."""
        subprocess.run(["kcat", "-P", "-b", self.origin.bootstrap, "-t", self.source, "-X", "linger.ms=20",
                        "-X", "sticky.partitioning.linger.ms=0"],
                       input=lines, check=True, timeout=300)

    def lag(self):
        """Sum over all partitions, or None while it cannot be told."""
        try:
            text = self.cluster.tool("consumer-groups", "--describe", "--group", self.group)
            ends = self.origin.tool("get-offsets", "--topic", self.source) if self.apart else ""
        except subprocess.SubprocessError:
            return None
        lag, seen = 0, set()
        ends = dict(line.split(":")[1:] for line in ends.splitlines() if line.startswith(f"{self.source}:"))
        for line in text.splitlines():
            parts = line.split()
            if len(parts) > 5 and parts[1] == self.shared:
                # Nothing is committed where nothing came: then all that is there is still to be read.
                behind = parts[5] if parts[5] != "-" else parts[4]
                if self.apart and parts[2] in ends:
                    behind = str(int(ends[parts[2]]) - (int(parts[3]) if parts[3] != "-" else 0))
                if not behind.isdigit():
                    return None
                lag += int(behind)
                seen.add(parts[2])
        # A partition that nobody has noticed yet is not in the list.
        return lag if len(seen) >= self.partitions else None

    def lag_of(self, group, topic):
        """That of another group, or None while it cannot be told."""
        try:
            lines = self.cluster.tool("consumer-groups", "--describe", "--group", group).splitlines()
        except subprocess.SubprocessError:
            return None
        parts = [line.split() for line in lines]
        behind = [row[5] if row[5] != "-" else row[4] for row in parts if len(row) > 5 and row[1] == topic]
        return sum(map(int, behind)) if behind and all(lag.isdigit() for lag in behind) else None

    def drained(self, seconds=120, tail=0):
        wait_for(lambda: (lag := self.lag()) is not None and lag <= tail, seconds, "the lag to return to zero",
                 lambda: [i.number for i in self.instances.values() if i.ended_badly()])

    def close(self):
        for instance in self.instances.values():
            instance.kill()
            instance.log.close()
        if self.people:
            self.people.kill()
            self.people.wait()
            self.people.stdout.close()


# The last words of an instance whose name in the group was taken. A supervisor starts it again.
NAME_LOST = "in the group was taken by another instance"


class Instance:
    """One process of the service with an id of its own."""

    def __init__(self, space, binary, number, command="run", **settings):
        self.space, self.binary, self.number, self.port = space, binary, number, free_port()
        self.command = command
        self.values = {"bootstrap": space.bootstrap, "source": space.source, "sink": space.sink, "group": space.group,
                       "window": 500, "max_age": "2s", "session": 3000, "poll": 60000, "extra": "", "more": "",
                       "sink_more": "", "route": "", "end": "", "action": "drop", "scope": "instance", "rebalance": "range", "time_budget": "100ms",
                       "algorithm": "auto", "criteria": "", "limit": 0.05,
                       "age": "intervals: { widths: [5, 10, 20, 40], min: 0, max: 120 }", "age_more": "", "subject": "subject: user_id",
                       "timeout": "20s", "id": f"{space.group}-{number}", "port": self.port, **settings}
        # `bootstrap` is the way to the output; to the input too, unless that is in another cluster.
        apart = ", brokers: '%(bootstrap)s', progress: progress" % self.values if space.apart else ""
        self.values.setdefault("elsewhere", apart)
        self.values.setdefault("origin", space.origin.bootstrap if space.apart else self.values["bootstrap"])
        # By the new group protocol the brokers decide.
        timing = 'session.timeout.ms: "%(session)d", heartbeat.interval.ms: "500", ' % self.values
        self.values.setdefault("timing", "" if self.values["rebalance"] == "consumer" else timing)
        tumbling = "{ tumbling: { max_records: %(window)d, max_age: %(max_age)s }, scope: %(scope)s }"
        self.values.setdefault("windows", tumbling % self.values)
        self.config = space.dir / f"instance-{number}.yaml"
        self.config.write_text(POLICY % self.values)
        self.path = space.dir / f"instance-{number}.log"
        self.log = open(self.path, "ab")
        self.process = None
        self.revives = False
        space.instances[number] = self

    def start(self, within=(), **env):
        self.process = subprocess.Popen([*within, self.binary, self.command, "-c", self.config], stdout=self.log, stderr=self.log,
                                        env={**os.environ, "RUST_LOG": "veilstream=info", **env})
        return self

    def kill(self, how=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            if how != signal.SIGSTOP:
                try:
                    self.process.wait(timeout=90)
                except subprocess.TimeoutExpired as error:
                    self.process.kill()
                    raise AssertionError(f"instance {self.number} does not end on signal {how}") from error

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def ended_badly(self):
        """Ended by itself, with an error. Those that a test has killed, or made to die, have not."""
        ended = self.process is not None and (self.process.poll() or 0) > 0
        if ended and self.revives and NAME_LOST in self.said().rstrip().rpartition("\n")[2]:
            self.start()
            return False
        return ended

    def said(self):
        return self.path.read_text(errors="replace")

    def says(self, words, seconds=90, times=1):
        wait_for(lambda: self.said().count(words) >= times, seconds, f"instance {self.number} to say {words!r}",
                 lambda: [self.number] if self.ended_badly() else [])

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

    def metric(self, name):
        """The value of a series, or None while it cannot be read."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                for line in answer.read().decode().splitlines():
                    if line.startswith(name + " ") or line.startswith(name + "{"):
                        return float(line.rsplit(" ", 1)[1])
        except OSError:
            return None
        return None


def wait_for(condition, seconds, what, dead=lambda: []):
    """Until the condition holds. Ends early when somebody who should bring it about is dead."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        if ended := dead():
            raise AssertionError(f"instances {ended} ended by themselves while {what} was awaited; see their logs")
        time.sleep(0.3)
    raise AssertionError(f"waited {seconds} s in vain for {what}")
