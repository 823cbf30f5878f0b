#!/usr/bin/env python3
"""One fault after the other, through the real service on a real broker, each judged by the oracle.

    tests/kafka/faults.py BINARY [NAME...]

BINARY must be built with the `failpoints` feature. Scenarios that leave the brokers alone share one, each in topics of its
own, some at a time. Those whose names end with `_apart` have their input in another cluster than their output: the same
scenario, judged by the same oracle. Controls that must turn red are part of the list: what a check has never been seen to catch, it does
not check. VEILSTREAM_LONG=1 makes the slow ones longer.
"""

import concurrent.futures
import contextlib
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter, defaultdict

import cluster as c
import oracle
import proxy
import tokens

STEPS = ["closed", "gated", "before-plan", "planned", "begun", "produced", "dead-letters", "flushed", "offsets-sent", "committed"]
LONG = bool(os.environ.get("VEILSTREAM_LONG"))
# Scenarios at a time. More: they wait for each other's JVMs. Fewer: they wait for their own timeouts one by one.
AT_A_TIME = 3
# Scenarios with brokers of their own at a time. More: brokers that are started again starve. Fewer: as above.
CLUSTERS_AT_A_TIME = 2
BINARY = None
SHARED = ORIGIN = None
OUTPUT = threading.local()


def say(*words):
    print(*words, file=OUTPUT.text)


def judge(space, **options):
    return oracle.judge(space.bootstrap, space.source, space.sink, c.QUASI, "diagnosis", 5, 2, origin=space.origin.bootstrap,
                        **options)


def accept(space, seconds=120, tail=0, aborted=False, share=0.5, **options):
    """Drains, stops every instance, and judges."""
    space.drained(seconds, tail)
    for instance in space.instances.values():
        instance.kill(signal.SIGTERM)
    space.settle()
    verdict = judge(space, **options)
    say(verdict.text())
    assert verdict.ok, "a statement is violated"
    assert verdict.missing <= tail, f"{verdict.missing} records have no outcome"
    assert verdict.figures["published"] >= share * verdict.figures["records"], "too little was published to be a pass"
    if aborted:
        assert verdict.figures["aborted copies"] > 0, "nothing was aborted: the fault did not hit"
    return verdict


def red(verdict, *statements):
    """The control is seen to be caught."""
    for statement in statements:
        assert verdict.problems.get(statement), f"{statement} did not turn red"
    for statement in statements:
        problems = verdict.problems[statement]
        say(f"{statement} turned red, as it must: {len(problems)} violations, first: {problems[0]}")


def died(instance, how=-signal.SIGABRT):
    c.wait_for(lambda: not instance.alive(), 120, "the crash")
    assert instance.process.returncode == how, f"ended with {instance.process.returncode}"


def garbage(space):
    """Records that no decoder takes, each in another way."""
    lines = ["{", "null", "[1]", '{"age": 3}', '{"age":1,"age":2}', "\x00\x01", "[" * 5000, '{"a": NaN}', '"text"']
    space.send(("\n".join(lines) + "\n").encode())
    return len(lines)


# --- F1: a crash at every step -------------------------------------------------------------------------------------


def crash(step):
    def scenario(space):
        space.produce(BINARY, 2000)
        bad = garbage(space)
        first = c.Instance(space, BINARY, 0).start(VEILSTREAM_DIE_AT=f"{step}:2")
        died(first)
        # Somebody else takes over, with another transactional id.
        c.Instance(space, BINARY, 1).start()
        verdict = accept(space, aborted=step in ("flushed", "offsets-sent"))
        assert verdict.figures["rejected"] == bad, "garbage is not counted"
        letters = [json.loads(m[3]) for m in oracle.read(space.bootstrap, f"{space.sink}-dead-letters")]
        assert len(letters) == bad and all(set(x) == {"topic", "partition", "offset", "code", "field", "at"}
                                           for x in letters), "dead letters are wrong"

    scenario.__name__ = f"crash_{step.replace('-', '_')}"
    scenario.__doc__ = f"F1: the process dies at '{step}', and another start carries the plan out."
    return scenario


def wrong_format(space):
    """A topic that cannot be read is not dead-lettered: nothing of it is committed. Bad messages later in the stream stop nothing."""
    def letters():
        return sum(1 for _ in oracle.read(space.bootstrap, f"{space.sink}-dead-letters"))

    bad = b"no record at all\n" * 60
    space.send(bad)
    a = c.Instance(space, BINARY, 0).start()
    c.wait_for(lambda: not a.alive(), 60, "the stop")
    assert a.process.returncode == 1, f"ended with {a.process.returncode}"
    assert "100.0 % rejected as malformed" in a.said() and not letters(), "nobody was told, or they were dead-lettered"
    assert space.lag() in (None, 60), "the offsets of what was not published moved"
    # Good ones among them: it goes on, and a stretch of bad ones alone is a window without rows.
    space.produce(BINARY, 1000)
    a.start()
    a.says("release published")
    space.send(bad)
    c.wait_for(lambda: letters() == 120, 60, "dead letters", lambda: [0] if a.ended_badly() else [])
    space.produce(BINARY, 1000)
    verdict = accept(space)
    assert verdict.figures["rejected"] == 120, "bad messages are not counted"


def crash_revoked(space):
    """F1: the process dies inside a rebalance."""
    first = c.Instance(space, BINARY, 0).start(VEILSTREAM_DIE_AT="revoked")
    space.produce(BINARY, 2000)
    first.says("release published")
    c.Instance(space, BINARY, 1).start()
    died(first)
    space.produce(BINARY, 1000)
    accept(space)


# --- F2, F3, F7: members ---------------------------------------------------------------------------------------------


def zombie(space):
    """F2: an instance is stopped past its session while a peer takes over, and wakes up again."""
    a = c.Instance(space, BINARY, 0).start()
    b = c.Instance(space, BINARY, 1).start()
    for instance in (a, b):
        instance.says("partitions assigned")
    space.produce(BINARY, 4000)
    a.says("release published")
    a.kill(signal.SIGSTOP)
    taken = b.said().count("partitions assigned")
    space.produce(BINARY, 4000)
    b.says("partitions assigned", times=taken + 1)
    since = lambda: b.said().rpartition("partitions assigned")[2]
    c.wait_for(lambda: since().count("release published") >= 2, 90, "the peer to publish what it has taken over")
    a.process.send_signal(signal.SIGCONT)
    space.produce(BINARY, 2000)
    accept(space)
    assert b.process.returncode == 0


def one_id_twice(space):
    """F3: two instances with one transactional id; the loser is fenced and says which id."""
    same = f"{space.group}-same"
    a = c.Instance(space, BINARY, 0, id=same).start()
    space.produce(BINARY, 2000)
    space.drained()
    b = c.Instance(space, BINARY, 1, id=same).start()
    b.says("partitions assigned")
    space.produce(BINARY, 6000)
    died(a, 3)
    assert same in a.said(), "the loser does not say which id"
    a.process = None
    accept(space)


def one_id_twice_while_publishing(space):
    """F3: the id is lost inside a large release, where the first error is that of a row; the second instance keeps the id."""
    # Without names in the group, only the id tells the two from each other.
    same, rows = f"{space.group}-same", 20000
    options = {"id": same, "rebalance": "consumer", "window": rows, "max_age": "600s", "timeout": "60s"}
    a = c.Instance(space, BINARY, 0, **options).start()
    a.says("partitions assigned partitions=4")
    b = c.Instance(space, BINARY, 1, **options).start()
    b.says("partitions assigned partitions=2")
    space.produce(BINARY, 4000)
    c.wait_for(lambda: b.metric("veilstream_records_read_total"), 60, "the second instance to have the id")
    space.produce(BINARY, 3 * rows)
    died(a, 3)
    assert same in a.said() and "release published" not in a.said(), "the loser does not say which id, or has published"
    a.process = None
    accept(space, tail=rows)
    assert b.process.returncode == 0, f"the second owner ended with {b.process.returncode}"


def members_come_and_go(space):
    """F7: members join and leave; partitions are added."""
    # What the input gets, the progress topics get too.
    makes = {"sink_more": ", create_topics: true"} if space.apart else {}
    host = c.Instance(space, BINARY, 0, extra=', topic.metadata.refresh.interval.ms: "2000"', **makes).start()
    guest = c.Instance(space, BINARY, 1, **makes)
    for turn in range(4):
        space.produce(BINARY, 1000)
        assigned = guest.said().count("partitions assigned")
        guest.start()
        guest.says("partitions assigned", times=assigned + 1)
        guest.kill(signal.SIGTERM)
        assert guest.process.returncode == 0, f"a drain ended with {guest.process.returncode}"
    space.origin.tool("topics", "--alter", "--topic", space.source, "--partitions", "6")
    space.partitions = 6
    space.produce(BINARY, 2000)
    host.says("partitions assigned partitions=6")
    accept(space)


def windows_stay(rebalance):
    def scenario(space):
        # No window closes by its age: what is counted is read once, unless a window starts over.
        options = {"rebalance": rebalance, "window": 6000, "max_age": "600s"}
        host = c.Instance(space, BINARY, 0, **options).start()
        guest = c.Instance(space, BINARY, 1, **options)
        read = lambda: host.metric("veilstream_records_read_total") or 0
        open_now = lambda: host.metric("veilstream_window_records")
        space.produce(BINARY, 4000)
        c.wait_for(lambda: open_now() == 4000, 60, "the window to fill")
        for turn in range(3):
            before = read()
            guest.start()
            guest.says("partitions assigned partitions=2", times=turn + 1)
            c.wait_for(lambda: 0 < open_now() < 4000, 60, "the records of two partitions to leave the window")
            left = open_now()
            time.sleep(2)  # long enough to read them all again
            assert (read(), open_now()) == (before, left), "the window of the partitions that stay was started over"
            guest.kill(signal.SIGKILL if turn == 1 else signal.SIGTERM)
            c.wait_for(lambda: open_now() == 4000, 60, "the records to come back")
            assert read() == before + 4000 - left, "more was read than what has moved"
            say(f"{left:.0f} of 4000 records stayed, {4000 - left:.0f} moved and came back")
        space.produce(BINARY, 2000)
        verdict = accept(space)
        assert verdict.figures["releases"] == 1, "the window was cut into pieces"

    scenario.__name__ = f"windows_stay_{rebalance}"
    scenario.__doc__ = f"F7: a member comes, goes and dies; open windows of the partitions that stay are kept ({rebalance})."
    return scenario


def come_and_go(rebalance, action, scope="instance"):
    def scenario(space):
        options = {"rebalance": rebalance, "action": action, "scope": scope, "max_age": "1s"}
        host = c.Instance(space, BINARY, 0, **options).start()
        guests = [c.Instance(space, BINARY, n, **options) for n in (1, 2)]
        over = threading.Event()

        def load():
            while not over.is_set():
                space.produce(BINARY, 300)
                over.wait(0.3)

        loader = threading.Thread(target=load)
        loader.start()
        try:
            for turn in range(20 if LONG else 8):
                guest = guests[turn % 2]
                if guest.alive():
                    how = (signal.SIGTERM, signal.SIGKILL)[turn // 2 % 2]
                    guest.kill(how)
                    assert how == signal.SIGKILL or guest.process.returncode == 0, f"a drain ended with {guest.process.returncode}"
                else:
                    assigned = guest.said().count("partitions assigned")
                    guest.start()
                    guest.says("partitions assigned", times=assigned + 1)
                published = host.said().count("release published")
                host.says("release published", times=published + 1)
        finally:
            over.set()
            loader.join()
        space.produce(BINARY, 3000)
        say(f"the host started over {host.said().count('joined anew')} times")
        if action == "drop":
            accept(space)
            return
        # Each partition may have windows, and so held records, of its own.
        c.wait_for(lambda: judge(space).missing < 100 * space.partitions, 120, "outcomes of all but a few held records")
        for instance in space.instances.values():
            instance.kill(signal.SIGTERM)
        space.settle()
        verdict = judge(space)
        say(verdict.text())
        assert verdict.ok and verdict.figures["published"] > 0.8 * verdict.figures["records"]

    scenario.__name__ = f"come_and_go_{rebalance}_{action}" + ("" if scope == "instance" else f"_{scope}")
    scenario.__doc__ = f"F7: two members come, go and die under load ({rebalance}, {action}, {scope})."
    return scenario


def plan_beside_open_windows(space):
    """F7: a member dies behind its plan; the one that takes its partitions over carries the plan out, and keeps its own window."""
    options = {"rebalance": "cooperative", "action": "hold", "max_age": "600s"}
    host = c.Instance(space, BINARY, 0, window=3000, **options).start()
    host.says("partitions assigned partitions=4")
    guest = c.Instance(space, BINARY, 1, window=500, **options).start(VEILSTREAM_DIE_AT="flushed:2")
    guest.says("partitions assigned partitions=2")
    space.produce(BINARY, 4000)
    died(guest)
    host.says("a release that was planned before is carried out")
    space.produce(BINARY, 5000)
    c.wait_for(lambda: judge(space).missing < 3000 and host.said().count("release published") > 2, 120, "outcomes")
    host.kill(signal.SIGTERM)
    space.settle()
    verdict = judge(space)
    say(verdict.text())
    assert verdict.ok and verdict.figures["aborted copies"] > 0, "nothing was aborted: the fault did not hit"
    assert host.said().count("partitions revoked partitions=4") <= 1, "the host has started over"


def rebalanced_while_paused(space):
    """F7: partitions go and come back while the pipeline is full: what was paused for one assignment flows in the next."""
    paused = 'veilstream_partitions{state="paused"}'
    host = c.Instance(space, BINARY, 0).start(VEILSTREAM_SLEEP_AT="closed:2:15")
    space.produce(BINARY, 40000)
    c.wait_for(lambda: host.metric(paused) == 4, 60, "the pipeline to be full")
    guest = c.Instance(space, BINARY, 1).start()
    host.says("partitions assigned partitions=2")
    space.drained()
    guest.kill(signal.SIGTERM)
    space.produce(BINARY, 4000)
    accept(space)


def given_back_while_full(space):
    """F7: partitions are to move while the pipeline is full and stays so: their new owner does not wait for that."""
    paused = 'veilstream_partitions{state="paused"}'
    options = {"rebalance": "cooperative", "poll": 120000}
    host = c.Instance(space, BINARY, 0, **options).start(VEILSTREAM_SLEEP_AT="closed:2:90")
    space.produce(BINARY, 40000)
    c.wait_for(lambda: host.metric(paused) == 4, 60, "the pipeline to be full")
    guest = c.Instance(space, BINARY, 1, **options).start()
    read = "veilstream_records_read_total"
    c.wait_for(lambda: guest.metric(read), 60, "the partitions to have moved, while the host's pipeline is full")
    assert "did not end in time" in host.said(), "the host does not say why it has left"
    accept(space)


def topic_recreated(space):
    """F7: the input is deleted and made anew while it is read: the service stops, and starts over nowhere by itself."""
    a = c.Instance(space, BINARY, 0, extra=', topic.metadata.refresh.interval.ms: "2000"').start()
    space.produce(BINARY, 4000)
    space.drained()
    space.origin.tool("topics", "--delete", "--topic", space.source)

    def again():
        try:
            space.origin.tool("topics", "--create", "--topic", space.source, "--partitions", 4)
            return True
        except subprocess.SubprocessError:
            return False  # deletion takes a moment

    c.wait_for(again, 90, "the topic to be made anew")
    space.produce(BINARY, 200)
    died(a, 3)
    published = len(oracle.read(space.bootstrap, space.sink))
    assert published <= 4000, "what came after was published under old offsets"
    assert "was the topic recreated?" in a.said(), "the stop does not say why"


def rebalanced_while_rereading(space):
    """F7: partitions are lost while a plan's records are read again, and come back: nothing that came meanwhile is passed over."""
    space.produce(BINARY, 400)  # one window, of all partitions
    died(c.Instance(space, BINARY, 0).start(VEILSTREAM_DIE_AT="planned:1"))
    guest = c.Instance(space, BINARY, 1, poll=6000, session=6000).start(VEILSTREAM_SLEEP_AT="rereading:1:20")
    guest.says("partitions assigned partitions=4")
    # Its partitions are paused while it reads the plan's records. That takes too long, and somebody else carries it out.
    host = c.Instance(space, BINARY, 2).start()
    host.says("release published")
    guest.says("partitions assigned", times=2)
    space.produce(BINARY, 2000)
    accept(space)


# --- F5, F8, F9, F10: slow and stuck -----------------------------------------------------------------------------------


@contextlib.contextmanager
def proxied(name, origin=None):
    """A cluster that can also be reached through a proxy, and a space on it."""
    port = c.free_port()
    cluster = c.Cluster(f"fault-{name}", flags=["--proxied", port])
    between = space = None
    try:
        host, real = cluster.env["PROXIED"].split(":")
        between = proxy.Proxy((host, int(real)), port)
        space = c.Space(cluster, name, origin=origin)
        yield between, space, f"127.0.0.1:{port}"
    finally:
        if space:
            space.close()
        if between:
            between.close()
        cluster.down()


def bad_network(_):
    """F5: connections are cut, half-open, and slower than the request timeout."""
    with proxied("network") as (between, space, address):
        short = ', socket.timeout.ms: "6000", reconnect.backoff.max.ms: "1000"'
        a = c.Instance(space, BINARY, 0, bootstrap=address, extra=short, session=10000).start()
        space.produce(BINARY, 2000)
        a.says("release published")
        for mode, delay, seconds in (("cut", 0, 4), ("half-open", 0, 10), ("delay", 8, 12)) * (3 if LONG else 1):
            for _ in range(3):
                published = a.said().count("release published")
                space.produce(BINARY, 500)
                a.says("release published", times=published + 1)
            space.produce(BINARY, 500)  # under way when the network breaks
            between.set(mode, delay)
            time.sleep(seconds)  # the length of the fault
            between.set("pass")
            before = a.said().count("release published")
            space.produce(BINARY, 1000)
            a.says("release published", times=before + 1)
        accept(space, 180)
        assert a.process.returncode == 0, f"ended with {a.process.returncode}"


def late_plan(origin):
    """F5: the commit of a plan is delivered when its release has long gone through: refused, or the release were published again."""
    offset_commit, refusals = 8, {22: "ILLEGAL_GENERATION", 25: "UNKNOWN_MEMBER_ID", 82: "FENCED_INSTANCE_ID"}
    with proxied("late", origin) as (between, space, address):
        # The client sends the commit again when it is not answered; the session outlasts that.
        short = ', socket.timeout.ms: "4000"'
        for number, member in enumerate(("", ', group.instance.id: "veil"')):
            a = c.Instance(space, BINARY, number, bootstrap=address, extra=short + member, session=30000).start()
            for held in (False, True):
                if held:
                    between.hold(offset_commit)
                space.produce(BINARY, 500)
                a.says("release published", times=1 + held)
            assert between.request, "no plan was held back"
            space.drained()
            answer = int.from_bytes(between.deliver()[-5:-3], "big")  # of the last partition
            # What is committed now is what the next start goes by.
            a.kill()
            a.start()
            space.produce(BINARY, 500)
            a.says("release published", times=3)
            space.drained()
            a.kill(signal.SIGTERM)
            say(f"the late commit was answered with {refusals.get(answer, answer)}")
        accept(space)
        assert answer in refusals


def late_producer(origin):
    """F5: a request for the transactional id is delivered late and takes the id away from the very instance that has sent it."""
    init_producer_id = 22
    with proxied("late-producer", origin) as (between, space, address):
        # In a large release the first error is that of a row. A name under `properties` does as well as one of the service's own.
        for number, (records, member) in enumerate(((500, ""), (20000, f', group.instance.id: "{space.group}-1"'))):
            between.hold(init_producer_id)
            short = ', socket.timeout.ms: "4000"'
            a = c.Instance(space, BINARY, number, bootstrap=address, extra=short + member, session=30000, window=records,
                           timeout="60s").start()
            space.produce(BINARY, records)
            a.says("release published")
            assert between.request, "no request was held back"
            space.drained()
            published = a.said().count("release published")
            between.deliver()
            space.produce(BINARY, records)
            a.says("a late request of this instance has taken its transactional id")
            a.says("release published", times=published + 1)
            assert a.metric("veilstream_transactional_id_taken_back_total") == 1
            space.drained()
            a.kill(signal.SIGTERM)
            assert a.process.returncode == 0, f"ended with {a.process.returncode}"
        accept(space)


def late_join(origin):
    """F5: a join is delivered late and takes the name in the group away from the very instance that has sent it."""
    join_group = 11
    with proxied("late-join", origin) as (between, space, address):
        for number, member in enumerate(("", f', group.instance.id: "{space.group}-1"')):
            between.hold(join_group)
            # A join is given up a little after the poll interval.
            a = c.Instance(space, BINARY, number, bootstrap=address, extra=member, session=6000, poll=6000).start()
            space.produce(BINARY, 500)
            a.says("release published")
            assert between.request, "no join was held back"
            space.drained()
            published = a.said().count("release published")
            between.deliver()
            a.says("a late join of this instance has taken its name in the group")
            space.produce(BINARY, 500)
            a.says("release published", times=published + 1)
            assert a.metric("veilstream_member_name_taken_back_total") == 1
            space.drained()
            a.kill(signal.SIGTERM)
            assert a.process.returncode == 0, f"ended with {a.process.returncode}"
        accept(space)


def token_logins(_):
    """Logins by token: wrong ones are told, right ones are renewed under load, over idle time and over new keys; no token is logged."""
    server = tokens.Tokens()
    cluster = space = None
    try:
        cluster = c.Cluster("fault-tokens", flags=["--oauth", server.url], settings=[
            "listener.name.oauth.oauthbearer.connections.max.reauth.ms=8000"])
        space = c.Space(cluster, "tokens")
        address = cluster.env["OAUTH_BOOTSTRAP"].strip("'\"")

        def instance(number, secret="${SECRET}"):
            login = f"oauth: {{ token_endpoint: '{server.url}/token', client_id: veil, client_secret: '{secret}', scope: kafka }}"
            return c.Instance(space, BINARY, number, bootstrap=address, more=login)

        def refused(number, words, **env):
            bad = instance(number)
            told = subprocess.run([BINARY, "validate", "--connect", "-c", bad.config], capture_output=True, text=True, timeout=120,
                                  env={**os.environ, "SECRET": server.secret, **env})
            assert told.returncode == 3 and words in told.stdout + told.stderr, f"{told.returncode}: {told.stdout} {told.stderr}"
            return told.stdout + told.stderr

        said = refused(7, "cannot be used", SECRET="wrong-secret-31")
        assert "wrong-secret-31" not in said and server.denied, "the endpoint was not asked, or the secret is shown"
        server.skew = -3600
        refused(7, "cannot be used")  # expired
        server.skew, server.audience = 0, "somebody else"
        refused(7, "cannot be used")
        server.audience, server.lifetime = "kafka", 10
        right = subprocess.run([BINARY, "validate", "--connect", "-c", instance(7).config], capture_output=True, text=True, timeout=120,
                               env={**os.environ, "SECRET": server.secret})
        assert right.returncode == 0, right.stdout + right.stderr
        a = instance(0).start(SECRET=server.secret, RUST_LOG="trace")
        for turn in range(3):
            for _ in range(4):
                space.produce(BINARY, 500)
                time.sleep(1)
            server.rotate()
            given = len(server.given)
            c.wait_for(lambda: len(server.given) >= given + 4, 60, "tokens of the new key, for consumer and producer")
        given = len(server.given)
        time.sleep(25)  # idle: tokens and sessions end several times
        assert len(server.given) >= given + 4, "tokens were not renewed while idle"
        space.produce(BINARY, 1000)
        a.says("release published", times=a.said().count("release published") + 1)
        accept(space)
        assert a.process.returncode == 0, f"ended with {a.process.returncode}"
        leaked = [token for token in server.given if token.split(".")[2] in a.said() or token in a.said()]
        assert not leaked and server.secret not in a.said(), "a token or the secret is in the log"
        say(f"{len(server.given)} tokens, {len(server.keys)} keys, none in the log")
    finally:
        if space:
            space.close()
        if cluster:
            cluster.down()
        server.close()


def slow_broker(_):
    """F5: a broker that always answers slowly costs one rebalance, not one per release."""
    with proxied("slow") as (between, space, address):
        a = c.Instance(space, BINARY, 0, bootstrap=address, session=30000).start()
        space.produce(BINARY, 500)
        a.says("release published")
        between.set("delay", 0.6)  # in each direction
        for turn in range(3):
            published = a.said().count("release published")
            space.produce(BINARY, 500)
            a.says("release published", times=published + 1)
        between.set("pass")
        accept(space)
        joined = a.said().count("the group is joined anew")
        say(f"the group was joined anew {joined} times in {a.said().count('release published')} releases")
        assert joined == 1
        assert a.process.returncode == 0, f"ended with {a.process.returncode}"


def restarted(space, instances, subjects=2000, **options):
    """Kills instances in turn under load, half of them at a step of a release; from their start to their first commit it takes seconds."""
    options = {"session": 45000, "max_age": "1s", "timeout": "60s", **options}
    all_of_them = [c.Instance(space, BINARY, n, **options).start() for n in range(instances)]
    over, times, turns = threading.Event(), [], random.Random(7)
    doomed = []  # those that die at a step that their last start was told

    def load():
        while not over.is_set():
            space.produce(BINARY, 150, subjects)
            over.wait(0.3)

    loader = threading.Thread(target=load)
    loader.start()
    try:
        for instance in all_of_them:
            instance.says("release published", times=6)
        turns_in_all = 40 if LONG else 10
        for turn in range(turns_in_all):
            victim = all_of_them[turn % instances]
            time.sleep(turns.uniform(0, 1.5))
            if victim in doomed:
                died(victim)
                doomed.remove(victim)
            elif turn + instances < turns_in_all:
                doomed.append(victim)
            victim.kill()
            mark = victim.said().count("release published")
            began = time.monotonic()
            victim.start(**({"VEILSTREAM_DIE_AT": f"{turns.choice(STEPS)}:4"} if victim in doomed else {}))
            while victim.said().count("release published") == mark:
                assert time.monotonic() - began < 60, "nothing was published for a minute after a restart"
                time.sleep(0.02)
            times.append(time.monotonic() - began)
    finally:
        over.set()
        loader.join()
    times.sort()
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))]
    say(f"restart to first commit, of {len(times)}: {at(0.5):.1f} s in the median, {at(0.99):.1f} s at the 99th percentile, {times[-1]:.1f} s at most")
    assert times[-1] <= 8, f"a restart took {times[-1]:.1f} s"


def quick_restarts(space):
    """F1: from the start of an instance that was killed to its first commit it takes seconds, whatever its session timeout is."""
    restarted(space, 2)
    accept(space)


def quick_restarts_sequential(space):
    """F1: the same for an instance that first has to learn who is in the releases before."""
    restarted(space, 1, subjects=400, subject=RETURNING)
    accept(space)


def quick_restarts_sliding(space):
    """F1: the same for an instance that first has to learn what the last snapshots show."""
    restarted(space, 1, windows="{ sliding: { size: 1500, slide: 300 } }")
    space.instances[0].kill(signal.SIGTERM)
    space.settle()
    verdict = oracle.Verdict()
    snapshots(space, verdict)
    say(verdict.text())
    assert verdict.ok, "a statement is violated"


def output_blocked(_):
    """F10: the output takes nothing while the input comes at ten times the rate: memory is bounded, nothing is dropped."""
    limit = 256 << 20
    with proxied("blocked") as (between, space, address):
        a = c.Instance(space, BINARY, 0, window=5000, sink_more=f", brokers: '{address}'", end="limits: { memory: 128MiB }")
        a.start()
        space.produce(BINARY, 5000)
        a.says("release published")
        between.set("half-open")  # only what the sink sends goes this way
        most = 0
        for _ in range(40 if LONG else 12):
            space.produce(BINARY, 20_000)
            most = max(most, a.memory())
        # Past the time after which a call counts as lost, and its producer is replaced.
        until = time.monotonic() + (180 if LONG else 35)
        while time.monotonic() < until:
            most = max(most, a.memory())
            time.sleep(0.5)
        assert a.alive(), "ended while the output was blocked"
        c.wait_for(lambda: (space.lag() or 0) >= 12 * 20_000, 60, "the lag of a blocked output")
        between.set("pass")
        accept(space, 300)
        say(f"at most {most >> 20} MiB resident while blocked")
        assert most < limit, f"{most >> 20} MiB"
        assert a.process.returncode == 0, f"ended with {a.process.returncode}"


def slow_search(space):
    """F8: a search is slower than max.poll.interval; the group is kept all the same."""
    a = c.Instance(space, BINARY, 0, poll=6000, session=6000)
    a.start(VEILSTREAM_SLEEP_AT="closed:2:14")
    space.produce(BINARY, 4000)
    space.drained()
    assert "partitions revoked" not in a.said(), "the group was lost"
    accept(space)


def slow_transaction(space):
    """F9: a transaction is open for longer than its timeout: aborted by the broker, and carried out again."""
    a = c.Instance(space, BINARY, 0, timeout="10s").start(VEILSTREAM_SLEEP_AT="flushed:2:14")
    space.produce(BINARY, 4000)
    accept(space, aborted=True)
    assert "longer than `transaction_timeout`" in a.said(), "the cause is not named"
    assert a.process.returncode == 0
    for wrong, words in (("5s", "write 10s or more"), ("20m", "write 15m or less")):
        bad = c.Instance(space, BINARY, 9, timeout=wrong)
        told = subprocess.run([BINARY, "validate", "-c", bad.config], capture_output=True, text=True, timeout=60)
        assert told.returncode == 2 and words in told.stdout + told.stderr, f"validate takes {wrong}"


def misspelt_input_apart(space):
    """F10: the input is not there: the service says so, and reads it once it is."""
    later = f"{space.source}-later"
    a = c.Instance(space, BINARY, 0, source=later, sink_more=", create_topics: true").start()
    a.says("check its name")
    space.origin.tool("topics", "--create", "--topic", later, "--partitions", 2)
    a.says("partitions assigned partitions=2")
    a.kill(signal.SIGTERM)
    assert a.process.returncode == 0, f"ended with {a.process.returncode}"


misspelt_input_apart.apart = True


# --- F14, F15, held records ----------------------------------------------------------------------------------------------


def deleted_by_retention(space):
    """F14: committed offsets are gone; the service stops and says so, unless told to go on."""
    a = c.Instance(space, BINARY, 0).start()
    space.produce(BINARY, 4000)
    space.drained()
    a.kill(signal.SIGTERM)
    space.produce(BINARY, 8000)
    spec = space.dir / "delete.json"
    parts = [{"topic": space.source, "partition": p, "offset": 2000} for p in range(4)]
    spec.write_text(json.dumps({"partitions": parts, "version": 1}))
    space.origin.tool("delete-records", "--offset-json-file", spec)
    a.start()
    died(a, 3)
    assert "on_gap" in a.said(), "the remedy is not named"
    a.config.write_text(a.config.read_text().replace("    group:", "    on_gap: continue\n    group:"))
    a.start()
    space.drained()
    assert a.alive()


def registry_away(space):
    """F15: the registry is away: known schemas go on, an unknown one stops its own partition until it can be had."""
    where = c.RUN / "fault-registry"
    script = c.ROOT / "tests" / "infra" / "registry"
    env = c.patiently(script, "up", "--dir", where)
    url = next(line.split("=", 1)[1] for line in env.splitlines() if line.startswith("REGISTRY=")).strip("'\"")
    try:
        def people(records, seed):
            subprocess.run([BINARY, "generate", "--records", str(records), "--subjects", "500", "--seed", str(seed),
                            "--format", "avro", "--registry", url,
                            "--brokers", space.bootstrap, "--topic", space.source], check=True, timeout=120)

        def message(number, partition):
            """A message of a schema that nobody has seen yet: of no use, but nobody can know before they have asked."""
            path = space.dir / f"message-{number}"
            path.write_bytes(bytes([0]) + number.to_bytes(4, "big") + b"\x01\x02")
            subprocess.run(["kcat", "-P", "-b", space.bootstrap, "-t", space.source, "-p", str(partition), str(path)],
                           check=True, timeout=60)

        def order(what):
            c.patiently(script, what, where)

        people(2000, 1)
        schema = json.dumps({"type": "record", "name": "Stranger", "fields": [{"name": "age", "type": "int"}]})
        request = urllib.request.Request(f"{url}/subjects/strangers-value/versions", json.dumps({"schema": schema}).encode(),
                                         {"Content-Type": "application/vnd.schemaregistry.v1+json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            stranger = json.load(answer)["id"]
        a = c.Instance(space, BINARY, 0, more=f"format: confluent-avro\n    registry: {{ url: '{url}' }}",
                       sink_more=", format: json").start()
        space.drained()
        order("stop")
        message(stranger, 0)
        a.says("a partition waits for its schema")
        released = a.said().count("release published")
        # What is known goes on: written by a generator that needs the registry, so by hand, from what is there already.
        copied = subprocess.run(["kcat", "-C", "-b", space.bootstrap, "-t", space.source, "-p", "1", "-o", "beginning", "-c",
                                 "400", "-e", "-q", "-f", "%R%s"], capture_output=True, check=True, timeout=60).stdout
        payloads, at = [], 0
        while at < len(copied):
            size = int.from_bytes(copied[at:at + 4], "big")
            payloads.append(copied[at + 4:at + 4 + size])
            at += 4 + size
        files = []
        for number, payload in enumerate(payloads):
            files.append(space.dir / f"copy-{number}")
            files[-1].write_bytes(payload)
        subprocess.run(["kcat", "-P", "-b", space.bootstrap, "-t", space.source, "-p", "1", *map(str, files)], check=True,
                       timeout=60)
        a.says("release published", times=released + 1)
        c.wait_for(lambda: space.lag() == 1, 60, "all but the stranger to be done")
        order("start")
        space.drained()
        message(9_999_999, 0)
        space.drained()
        a.kill(signal.SIGTERM)
        codes = [json.loads(m[3])["code"] for m in oracle.read(space.bootstrap, f"{space.sink}-dead-letters")]
        assert sorted(codes) == ["malformed", "unknown_schema"], f"dead letters: {codes}"
        # The copies have the timestamps of their originals, so records are not told apart here.
        verdict = judge(space, opaque=True)
        assert not verdict.problems.get("I1") and not verdict.missing, f"{verdict.problems} {verdict.missing}"
        say(f"figures: {verdict.figures}")
    finally:
        c.run(script, "down", where)


def registry_late(space):
    """F15: the registry is away when the output's schemas are to be registered, at the start and for the first release: both wait."""
    where, script = c.RUN / "fault-registry-late", c.ROOT / "tests" / "infra" / "registry"
    env = c.patiently(script, "up", "--dir", where)
    url = next(line.split("=", 1)[1] for line in env.splitlines() if line.startswith("REGISTRY=")).strip("'\"")
    try:
        subprocess.run([BINARY, "generate", "--records", "2000", "--subjects", "500", "--seed", "1", "--format", "avro", "--registry",
                        url, "--brokers", space.bootstrap, "--topic", space.source], check=True, timeout=120)
        c.patiently(script, "stop", where)
        a = c.Instance(space, BINARY, 0, more=f"format: confluent-avro\n    registry: {{ url: '{url}' }}")
        a.start(VEILSTREAM_SLEEP_AT="gated:1:15")
        a.says("the schemas of the output cannot be registered yet")
        c.patiently(script, "start", where)
        c.wait_for(lambda: (a.metric("veilstream_records_read_total") or 0) >= 500, 60, "the first window")
        c.patiently(script, "stop", where)
        a.says("a release is tried again with the same bytes")
        c.patiently(script, "start", where)
        a.says("release published")
        space.drained()
        a.kill(signal.SIGTERM)
        assert a.process.returncode == 0, f"ended with {a.process.returncode}"
    finally:
        c.run(script, "down", where)


def held_records(space):
    """Records are held over releases and restarts: published once or never."""
    a = c.Instance(space, BINARY, 0, action="hold").start()
    for turn in range(5):
        before = a.said().count("release published")
        space.produce(BINARY, 1200)
        a.says("release published", times=before + 1)
        a.kill()
        a.start()
    before = a.said().count("release published")
    space.produce(BINARY, 600)
    a.says("release published", times=before + 1)
    # The lag shows where the oldest held record is. All but the held ones have an outcome, and they are few.
    c.wait_for(lambda: judge(space).missing < 0.1 * 6600, 120, "outcomes")
    a.kill(signal.SIGTERM)
    space.settle()
    verdict = judge(space)
    say(verdict.text())
    assert verdict.ok
    assert verdict.figures["published"] > 0.8 * verdict.figures["records"]


def keyed(space, lines):
    """Messages of keys and values; without a value: tombstones. Without a key: anywhere."""
    text = b"".join(key.encode() + b"\t" + value + b"\n" for key, value in lines)
    subprocess.run(["kcat", "-P", "-b", space.origin.bootstrap, "-t", space.source, "-K", "\t", "-Z"], input=text, check=True, timeout=60)


def tombstones(space):
    """T33: people are deleted while records of theirs wait, in the open window and held; the process dies before that is done."""
    def people(count):
        lines = space.generate(BINARY, count).splitlines()
        return [(json.loads(line)["user_id"] if number % 2 else "", line) for number, line in enumerate(lines)]

    def sent(lines):
        keyed(space, lines)
        return [json.loads(line) for _, line in lines]

    a = c.Instance(space, BINARY, 0, action="hold", max_age="10m").start()
    sent(people(500))
    a.says("release published")
    a.kill(signal.SIGTERM)
    left = {(p, o) for p, runs in judge(space).left.items() for first, last in runs for o in range(first, last + 1)}
    held = [json.loads(payload) for p, o, _, payload in oracle.read(space.origin.bootstrap, space.source) if (p, o) in left]
    assert len(held) > 4, "too few are held to show anything"
    a.start(VEILSTREAM_DIE_AT="flushed:1")
    fresh = sent(people(300))
    deleted = {record["user_id"] for record in held[::2] + fresh[::20]}
    gone = {record["ts"] for record in held + fresh if record["user_id"] in deleted}
    keyed(space, [(user, b"") for user in deleted])
    reading = len(held) + len(fresh) + len(deleted)
    c.wait_for(lambda: a.metric("veilstream_records_read_total") == reading, 60, "the tombstones to be read")
    sent(people(500 - len(fresh) - len(deleted)))
    died(a)
    a.start()
    before = a.said().count("release published")
    sent(people(1000))
    a.says("release published", times=before + 3)
    a.kill(signal.SIGTERM)
    space.settle()
    verdict = judge(space)
    oracle.judge_few(verdict, space.bootstrap, space.sink, gone)
    say(verdict.text())
    assert verdict.ok, "a statement is violated"
    assert verdict.figures["aborted copies"] > 0, "nothing was aborted: the fault did not hit"
    assert verdict.figures["rejected"] == len(deleted) and verdict.figures["suppressed"] >= len(gone)
    assert a.said().count("records are retracted from this release on") == 1
    published = {json.loads(payload)["ts"] for _, _, _, payload in oracle.read(space.bootstrap, space.sink)}
    others = [record for record in held if record["ts"] in published]
    assert others, "nobody who was held was published later: that the deleted were not shows nothing"
    say(f"{len(gone)} records of {len(deleted)} deleted people were retracted; of {len(held)} held, {len(others)} were published later")


def deletes(envelope):
    debezium = envelope == "debezium"
    row = (lambda message: message.get("after")) if debezium else (lambda message: message)

    def scenario(space):
        dice = random.Random(7)
        known = []

        def flow(count, deleted):
            """People come, and some of them, and of those who came before, are deleted."""
            lines = [json.loads(line) for line in space.generate(BINARY, count).splitlines()]
            known.extend(record["user_id"] for record in lines)
            wrap = (lambda record: {"before": None, "after": record, "op": "c"}) if debezium else (lambda record: record)
            messages = [(record["user_id"], json.dumps(wrap(record)).encode()) for record in lines]
            for user in dice.sample(known, deleted):
                place = dice.randrange(len(messages) + 1)
                change = {"before": {"user_id": user}, "after": None, "op": "d"}
                gone = [(user, json.dumps(change).encode())] if debezium else []
                messages[place:place] = gone + [(user, b"")]
            keyed(space, messages)

        instance = c.Instance(space, BINARY, 0, action="hold", max_age="1s", more="envelope: debezium" if debezium else "")
        for step in ["closed", "planned", "begun", "flushed", "offsets-sent", "committed"]:
            flow(700, 60)
            instance.start(VEILSTREAM_DIE_AT=f"{step}:2")
            until = time.monotonic() + 60
            while instance.alive() and time.monotonic() < until:
                flow(100, 10)
                time.sleep(0.3)
            died(instance)
        instance.start()
        flow(2000, 100)
        # Those of whom nobody alike has come are held.
        c.wait_for(lambda: judge(space, row=row).missing < 200, 120, "outcomes of all but a few held records")
        instance.kill(signal.SIGTERM)
        space.settle()
        verdict = judge(space, row=row)
        kept_back, releases = oracle.judge_deleted(verdict, space.bootstrap, [space.source], space.sink, row)
        say(verdict.text())
        assert verdict.ok, "a statement is violated"
        assert verdict.figures["aborted copies"] > 0, "nothing was aborted: the faults did not hit"
        assert verdict.figures["published"] > 0.5 * verdict.figures["records"], "too little was published to be a pass"
        assert len(kept_back) > 100, "hardly anybody waited who was deleted: that shows nothing"
        # A control: one of them in the last release must be seen.
        subprocess.run(["kcat", "-P", "-b", space.bootstrap, "-t", space.sink, "-H", f"veilstream-release={releases[-1]}"],
                       input=json.dumps({"ts": kept_back[0]}).encode(), check=True, timeout=60)
        oracle.judge_deleted(verdict, space.bootstrap, [space.source], space.sink, row)
        red(verdict, "I3")

    scenario.__name__ = f"deletes_{envelope}"
    scenario.__doc__ = f"T33: deletes ({envelope}) flow while the process dies at one step after the other."
    return scenario


ROUTE_LANES = 4


def routed(space, number, command, **settings):
    """An instance of `route`, or of `run` behind it."""
    route = f"route: {{ topic: {space.source}-routed, partitions: {ROUTE_LANES} }}"
    return c.Instance(space, BINARY, number, command=command, route=route, sink_more=", create_topics: true", **settings)


def judge_routed(verdict, space):
    """Every message of the input is in one partition of the routed topic, byte for byte, with its key and time; one without a
    payload is in all. Whose input has a key is in one partition only. Returns how many messages went to each partition."""
    def messages(topic):
        form = oracle.SEPARATOR.join(["%p", "%o", "%h", "%k", "%T", "%S", "%s"]) + "\n"
        lines = oracle.consume(space.bootstrap, topic, form).decode().split("\n")
        return [line.split(oracle.SEPARATOR) for line in lines if line]

    inputs = {f"{space.source}/{p}/{o}": (key, time, size, value) for p, o, _, key, time, size, value in messages(space.source)}
    copies, homes, lanes = defaultdict(list), defaultdict(set), Counter()
    for partition, _, headers, key, at, size, value in messages(f"{space.source}-routed"):
        origin = headers.removeprefix("veilstream-from=")
        copies[origin].append(partition)
        lanes[partition] += 1
        if inputs.get(origin) != (key, at, size, value):
            verdict.fail("I2", "a routed message is not the one of the input")
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
            homes[json.loads(value)["user_id"]].add(partition)
    for origin, (_, _, size, _) in inputs.items():
        wanted = ROUTE_LANES if int(size) < 0 else 1
        if len(set(copies[origin])) != wanted or len(copies[origin]) != wanted:
            verdict.fail("I1" if len(copies[origin]) < wanted else "I2", f"{origin} is routed to {copies[origin]}")
    split = sum(len(partitions) > 1 for partitions in homes.values())
    if split:
        verdict.fail("I2", f"{split} people are split")
    return lanes, len(homes)


def routing(rebalance):
    def scenario(space):
        dice = random.Random(3)

        def people(count):
            """Keyed by person; some give another postal code than before, and some are deleted."""
            lines = [json.loads(line) for line in space.generate(BINARY, count, subjects=1500).splitlines()]
            for record in lines:
                if dice.random() < 0.1:
                    record["zip"], record["age"] = f"{dice.randrange(100000):05}", dice.randrange(16, 90)
            messages = [(record["user_id"], json.dumps(record).encode()) for record in lines]
            gone = [(user, b"") for user, _ in dice.sample(messages, count // 50)]
            return messages + gone

        routers = [routed(space, number, "route", rebalance=rebalance) for number in (0, 1)]
        keyed(space, people(3000))
        routers[0].start()
        routers[0].says("the first map of districts is made")
        runners = [routed(space, number, "run", max_age="3s", rebalance=rebalance) for number in (2, 3)]
        for runner in runners:
            runner.start()
        for step in ["begun", "produced", "flushed", "offsets-sent", "committed", "revoked"]:
            routers[1].start(VEILSTREAM_DIE_AT=f"{step}:2")
            until = time.monotonic() + 60
            while routers[1].alive() and time.monotonic() < until:
                keyed(space, people(150))
                if step == "revoked":
                    # The other one joins again, which takes partitions away.
                    routers[0].kill(signal.SIGTERM)
                    routers[0].start()
                time.sleep(0.5)
            died(routers[1])
            runners[0].kill()
            runners[0].start()
        bad = garbage(space)
        keyed(space, people(1000))
        verdict_of = lambda: oracle.judge(space.bootstrap, f"{space.source}-routed", space.sink, c.QUASI, "diagnosis", 5, 2)
        badly = lambda: [i.number for i in space.instances.values() if i.ended_badly()]
        c.wait_for(lambda: space.lag_of(f"{space.group}-route", space.source) == 0, 120, "everything to be routed", badly)
        # Not the lag: the marks of the routers' transactions stand behind the last records.
        c.wait_for(lambda: not verdict_of().missing, 180, "everything to have an outcome", badly)
        for instance in space.instances.values():
            instance.kill(signal.SIGTERM)
        space.settle()
        # What `run` did with what it was given.
        verdict = verdict_of()
        lanes, known = judge_routed(verdict, space)
        say(verdict.text())
        say(f"{known} people in partitions of {sorted(lanes.values())} messages")
        assert verdict.ok, "a statement is violated"
        assert not verdict.missing, f"{verdict.missing} records have no outcome"
        assert verdict.figures["published"] > 0.6 * verdict.figures["records"], "too little was published to be a pass"
        assert verdict.figures["rejected"] >= bad, "garbage is not counted"
        assert len(lanes) == ROUTE_LANES and known > 500, "nothing was routed to some partition"
        aborted = len(list(oracle.read(space.bootstrap, f"{space.source}-routed", "read_uncommitted"))) - sum(lanes.values())
        assert aborted > 0, "nothing was aborted: the fault did not hit"
        # A control: a message that is routed once more, to another partition, must be seen.
        _, _, headers, payload = next(iter(oracle.read(space.bootstrap, f"{space.source}-routed")))
        for partition in range(ROUTE_LANES):
            subprocess.run(["kcat", "-P", "-b", space.bootstrap, "-t", f"{space.source}-routed", "-p", str(partition), "-H", headers],
                           input=payload.encode(), check=True, timeout=60)
        judge_routed(verdict, space)
        red(verdict, "I2")

    scenario.__name__ = f"routing_{rebalance}"
    scenario.__doc__ = ("Two routers and two instances of `run` behind them die at one step after the other; people come, move house and "
                        "are deleted.")
    return scenario


# So many candidates that who is not recalled is missed a hundred times, not now and then.
CANDIDATES = 6
RETURNING = f"subject: user_id\n  sequential: {{ releases: 4, candidates: {CANDIDATES} }}"


def restarts(space, recoding="full-domain", **env):
    """People who return, in releases of one instance after the other, each of which dies at another step."""
    a = c.Instance(space, BINARY, 0, subject=f"{RETURNING}\n  recoding: {recoding}", max_age="10m", time_budget="1s")
    for step in ["journalled:2", "planned:2", "flushed:2", "committed:2", "offsets-sent:1"]:
        space.produce(BINARY, 2000, subjects=400)
        a.start(VEILSTREAM_DIE_AT=step, **env)
        died(a)
    a.start(**env)
    space.produce(BINARY, 1000, subjects=400)
    space.drained(tail=499)
    a.kill(signal.SIGTERM)
    space.settle()
    verdict = judge(space)
    oracle.judge_sequential(verdict, space.bootstrap, space.source, space.sink, c.QUASI, "diagnosis", 4,
                            CANDIDATES, origin=space.origin.bootstrap)
    say(verdict.text())
    return verdict


def sequential(space):
    """T3: who returns keeps candidate values, although every instance dies and the next one has to learn who was published."""
    verdict = restarts(space)
    assert verdict.ok and verdict.missing < 500, f"{verdict.problems}"
    assert verdict.figures["returned"] > 0 and verdict.figures["aborted copies"] > 0, "the fault did not hit"
    journal = oracle.raw(space.bootstrap, f"{space.sink}-journal").decode().splitlines()
    entries = [json.loads(line[line.index("{"):]) for line in journal]
    shown = [entry for entry in entries if "shown" in entry]
    assert len(shown) >= verdict.figures["releases"]
    fields = {field for entry in shown for field in entry}
    assert fields == {"version", "release", "policy", "levels", "shown"}, fields


def sequential_local(space):
    """T3 with local recoding: the next instance learns the levels that were published from the journal."""
    verdict = restarts(space, "local")
    assert verdict.ok and verdict.missing < 500, f"{verdict.problems}"
    assert verdict.figures["returned"] > 0 and verdict.figures["aborted copies"] > 0, "the fault did not hit"
    assert '"packed":' in oracle.raw(space.bootstrap, f"{space.sink}-journal").decode(), "no entry has levels of records"


def local_recoding(space):
    """Local recoding by one instance after the other, each of which dies at another step: plan and commit hold the schedule."""
    a = c.Instance(space, BINARY, 0, subject="subject: user_id\n  recoding: local", max_age="10m")
    for step in ["planned:2", "flushed:2", "committed:2", "offsets-sent:1"]:
        space.produce(BINARY, 2000)
        a.start(VEILSTREAM_DIE_AT=step)
        died(a)
    space.produce(BINARY, 1000)
    a.start()
    accept(space, tail=499, aborted=True)
    manifests = oracle.raw(space.bootstrap, f"{space.sink}-manifests").decode()
    assert '"schedule"' in manifests and '"steps"' in manifests, "no schedule was published"


def subtree_recoding(space):
    """Cuts by one instance after the other, each of which dies at another step: the plan holds the cuts."""
    # Where records may be left out, a node often loses as little as the best cuts, and is taken.
    a = c.Instance(space, BINARY, 0, subject="subject: user_id\n  recoding: subtree", max_age="10m",
                   time_budget="5s", limit=0)
    for step in ["planned:2", "flushed:2", "committed:2", "offsets-sent:1"]:
        space.produce(BINARY, 2000)
        a.start(VEILSTREAM_DIE_AT=step)
        died(a)
    space.produce(BINARY, 1000)
    a.start()
    accept(space, tail=499, aborted=True)
    manifests = oracle.raw(space.bootstrap, f"{space.sink}-manifests").decode()
    assert '"cut"' in manifests, "no release has cuts, so no plan had to hold them"


def alternatives(space):
    """Steps of 7 beside steps of 5, by one instance after the other, each of which dies at another step: the plan names levels of both."""
    steps = "intervals: { widths: [%s], min: 0, max: 120 }"
    age = f"any_of: [{{ {steps % '5, 20, 40'} }}, {{ {steps % '7, 21'} }}]"
    a = c.Instance(space, BINARY, 0, age=age, max_age="10m", time_budget="5s")
    for step in ["planned:2", "flushed:2", "committed:2", "offsets-sent:1"]:
        space.produce(BINARY, 2000)
        a.start(VEILSTREAM_DIE_AT=step)
        died(a)
    space.produce(BINARY, 1000)
    a.start()
    accept(space, tail=499, aborted=True)


ORDINARY = ["cold", "back pain", "allergy", "checkup"]
CRITERIA = f"""- {{ k-anonymity: {{ k: 10, over: [age, zip] }} }}
    - {{ confidential: {{ sentences: [{{ field: diagnosis, in: {ORDINARY}, when: {{ field: salary_class, equals: ">50K" }} }}] }} }}"""
# Ages count most, so that they are shown: cuts are found that are no node, and cells that have a mean.
AGES = ", weight: 20"


def judge_criteria(space, verdict):
    """I3 by what `CRITERIA` ask for."""
    oracle.judge_criteria(verdict, space.bootstrap, space.source, space.sink, c.QUASI, ["age", "zip"], 10, "diagnosis", ORDINARY,
                          lambda record: record["salary_class"] == ">50K")


def judge_means(space, verdict):
    """Ages in steps of 20 or finer: a published mean is at most half a step of 5 off."""
    oracle.judge_means(verdict, space.bootstrap, space.source, space.sink, "age", 2.5)
    return verdict


def algorithms(space):
    """Every algorithm by its name, each in an instance that dies behind a plan: the next algorithm's instance carries it out, because the
    policy is the same. Then an instance with means instead of labels suppresses the last plan, because its policy is another one."""
    names = [choice["const"] for choice in json.loads(c.run(BINARY, "schema"))["$defs"]["Algorithm"]["oneOf"]]
    size = 1000
    options = {"id": f"{space.group}-0", "window": size, "max_age": "10m", "time_budget": "2s", "limit": 0, "criteria": CRITERIA,
               "subject": "subject: user_id\n  private: [salary_class]"}
    space.produce(BINARY, size * (2 * len(names) + 2), subjects=4000)
    for number, name in enumerate(names):
        a = c.Instance(space, BINARY, number, algorithm=name, age_more=AGES, **options)
        # The plan of the one before, a release of its own, and a plan.
        died(a.start(VEILSTREAM_DIE_AT=f"flushed:{3 if number else 2}"))
    c.Instance(space, BINARY, len(names), age_more=AGES + ", render: mean", **options).start()
    verdict = accept(space, aborted=True)
    judge_criteria(space, judge_means(space, verdict))
    assert verdict.ok and verdict.figures["means"], f"{verdict.problems}, or no means"

    def written(topic, isolation="read_committed"):
        return [json.loads(payload) for _, _, _, payload in oracle.read(space.bootstrap, f"{space.sink}-{topic}", isolation)]

    planned = {}
    for manifest in written("manifests", "read_uncommitted"):
        planned.setdefault(manifest["release_id"], manifest)
    again = [m for m in written("manifests") if m["close_reason"] == "replayed"]
    own = [m["algorithm"] for m in written("manifests") if m["close_reason"] != "replayed"]
    assert own == [*names, "auto", "auto"], f"the manifests name {own}"
    assert [planned[m["release_id"]]["algorithm"] for m in again] == names[:-1], "not every plan was carried out by the next algorithm"
    assert all(planned[m["release_id"]]["recoding"] == m["recoding"] for m in again), "a plan was carried out otherwise"
    left = [(planned[e["release_id"]]["algorithm"], e["records_suppressed"]) for e in written("journal") if not e["records_published"]]
    assert left == [(names[-1], size)], "the plan of another policy was carried out, or more than that is left out"
    cuts = sum(any("cut" in attribute for attribute in m["recoding"]) for m in again)
    say(f"{len(own)} releases by {len(set(own))} algorithms, {len(again)} carried out by the next one, {cuts} of them with cuts")
    assert cuts, "no plan of cuts was carried out by a search of levels"


def control_criteria(space):
    """Control: a policy without the criteria that `algorithms` is judged by turns I3 red, and so does a mean of other people."""
    c.Instance(space, BINARY, 0, algorithm="subtree-bottom-up", time_budget="2s", limit=0, age_more=AGES + ", render: mean").start()
    space.produce(BINARY, 2000)
    verdict = judge_means(space, accept(space))
    assert verdict.ok and verdict.figures["means"], f"{verdict.problems}, or no means"
    judge_criteria(space, verdict)
    assert all(any(words in text for text in verdict.problems["I3"]) for words in ("look alike", "sentence")), "one was not seen"
    red(verdict, "I3")
    _, _, headers, payload = next(m for m in oracle.read(space.bootstrap, space.sink) if "." in json.loads(m[3])["age"])
    forged = json.dumps({**json.loads(payload), "age": "119.5"}) + "\n"
    subprocess.run(["kcat", "-P", "-b", space.bootstrap, "-t", space.sink, "-H", f"veilstream-release={oracle.release_of(headers)}"],
                   input=forged.encode(), check=True, timeout=60)
    red(judge_means(space, oracle.Verdict()), "I3")


def audiences(space, recoding="full-domain"):
    """Two audiences beside the release, while instances die: each has every row once, in the same bytes, no finer than it may be."""
    tables = [f"{space.sink}-partner", f"{space.sink}-research"]
    own = ""
    if recoding == "local":
        tables.append(f"{space.sink}-counts")
        own = f"\n  - {{ name: counts, topic: {tables[2]}, recoding: full-domain, loss: dm }}"
    a = c.Instance(space, BINARY, 0, max_age="10m", sink_more=", create_topics: true", subject=f"subject: user_id\n  recoding: {recoding}",
                   end=f"""audiences:
  - {{ name: partner, topic: {tables[0]}, min_levels: {{ zip: 3 }}, drop: [diagnosis] }}
  - {{ name: research, topic: {tables[1]}, min_levels: {{ age: 1 }} }}{own}""")
    for step in ["planned:2", "flushed:2", "committed:2"]:
        space.produce(BINARY, 2000)
        a.start(VEILSTREAM_DIE_AT=step)
        died(a)
    space.produce(BINARY, 1000)
    a.start()
    accept(space, tail=499, aborted=True)
    wanted = Counter(json.loads(payload)["ts"] for _, _, _, payload in oracle.read(space.bootstrap, space.sink))
    for table in tables:
        rows = [json.loads(payload) for _, _, _, payload in oracle.read(space.bootstrap, table)]
        seen = Counter(row["ts"] for row in rows)
        if table.endswith("-counts"):
            assert seen <= wanted and len(rows) > 0.7 * sum(wanted.values()), f"{table} has other rows than the release, or few"
        else:
            assert seen == wanted, f"{table} has other rows than the release"
        copies = defaultdict(set)
        for _, _, headers, payload in oracle.read(space.bootstrap, table, "read_uncommitted"):
            copies[json.loads(payload)["ts"]].add((oracle.release_of(headers), payload))
        assert all(len(texts) == 1 for texts in copies.values()), f"{table} has two different copies of a row (I4)"
        if table == tables[0]:
            assert all("diagnosis" not in row and row["zip"].endswith("***") for row in rows), "partner sees too much"
        elif table == tables[1]:
            assert all(not row["age"].isdigit() for row in rows), "research sees single years"
        else:
            masks = defaultdict(set)
            for _, _, headers, payload in oracle.read(space.bootstrap, table):
                masks[oracle.release_of(headers)].add(json.loads(payload)["zip"].count("*"))
            assert all(len(levels) == 1 for levels in masks.values()), "a column of one table has two levels"
        say(f"{table}: {len(rows)} rows, {sum(map(len, copies.values()))} different physical copies")


def audiences_local(space):
    """The same where each record has levels of its own, with a third table that has one level per column."""
    audiences(space, "local")


def control_forgetful(space):
    """Control: instances that do not learn who was published turn I3 red."""
    red(restarts(space, VEILSTREAM_DEFECT="forgetful"), "I3")


def snapshots(space, verdict):
    oracle.judge_snapshots(verdict, space.bootstrap, space.source, space.sink, c.QUASI, "diagnosis", 5, 2,
                           origin=space.origin.bootstrap)


def slides(space, recoding="full-domain", publish="snapshots"):
    """Instances that die one after the other, each at another step, and the verdict on what they published."""
    windows = f"{{ sliding: {{ size: 1500, slide: 300, publish: {publish} }} }}"
    subject = f"subject: user_id\n  recoding: {recoding}"
    a = c.Instance(space, BINARY, 0, windows=windows, subject=subject)
    for step in ["journalled:4", "planned:5", "flushed:6", "committed:4", "offsets-sent:1", "rereading:1"]:
        space.produce(BINARY, 3000, subjects=4000)
        a.start(VEILSTREAM_DIE_AT=step)
        died(a)
    published = a.said().count("release published")
    space.produce(BINARY, 3000)
    a.start()
    a.says("release published", times=published + 3)
    a.kill(signal.SIGTERM)
    assert a.process.returncode == 0, f"a drain ended with {a.process.returncode}"
    b = c.Instance(space, BINARY, 1, windows=windows, subject=subject).start()
    space.produce(BINARY, 3000)
    # What is in the window, or stays in snapshots after it, is not done: the lag says nothing here.
    b.says("release published", times=10)
    b.kill(signal.SIGTERM)
    space.settle()
    verdict = oracle.Verdict()
    snapshots(space, verdict)
    say(verdict.text())
    assert verdict.ok, "a statement is violated"
    assert verdict.figures["compared"] > 5 and verdict.figures["aborted copies"] > 0, "there was nothing to see"
    assert verdict.figures["published"] > 0.7 * verdict.figures["records"]
    return verdict


def sliding(space):
    """Snapshots of a sliding window, by instances that die at every step."""
    slides(space)


def sliding_local(space):
    """Snapshots by local recoding: the journal has the levels of each record, so that a planned snapshot is made again."""
    slides(space, "local")
    assert '"packed":' in oracle.raw(space.bootstrap, f"{space.sink}-journal").decode(), "no entry has levels of records"


def sliding_changes(space):
    """A changelog instead of snapshots: a reader rebuilds every snapshot, also of releases that were made again."""
    assert slides(space, publish="changes").figures["changes"] > 5, "nothing but whole snapshots"


def sliding_local_changes(space):
    """A changelog of snapshots by local recoding."""
    assert slides(space, "local", "changes").figures["changes"] > 5, "nothing but whole snapshots"


def control_no_difference(space):
    """Control: snapshots that are not compared with the last one turn I3 red."""
    a = c.Instance(space, BINARY, 0, windows="{ sliding: { size: 1500, slide: 300 } }").start(VEILSTREAM_DEFECT="no-difference")
    space.produce(BINARY, 3000, subjects=4000)
    a.says("release published", times=8)
    a.kill(signal.SIGTERM)
    space.settle()
    verdict = oracle.Verdict()
    snapshots(space, verdict)
    red(verdict, "I3")


# --- F4: brokers -------------------------------------------------------------------------------------------------------


def broker_loss(origin):
    """F4: each of three brokers is killed and comes back while records flow; then a rolling restart."""
    cluster = c.Cluster("fault-brokers", brokers=3)
    try:
        space = c.Space(cluster, "brokers", partitions=6, origin=origin)
        instances = [c.Instance(space, BINARY, number).start() for number in range(2)]
        for instance in instances:
            instance.revives = True
        published = lambda: sum(instance.said().count("release published") for instance in instances if not instance.ended_badly())
        for broker in (1, 2, 3):
            before = published()
            space.produce(BINARY, 1500)
            c.wait_for(lambda: published() > before, 90, "a release, so that more are under way when the broker dies")
            cluster.broker("kill", broker)
            time.sleep(3)  # the length of the fault
            cluster.broker("start", broker)
        for broker in (1, 2, 3):
            space.produce(BINARY, 1500)
            cluster.broker("stop", broker)
            cluster.broker("start", broker)
        if origin:
            before = published()
            space.produce(BINARY, 6000)
            c.wait_for(lambda: published() > before, 90, "a release, so that more are read when the input's broker dies")
            origin.broker("kill", 1)
            time.sleep(3)  # the length of the fault
            origin.broker("start", 1)
        space.produce(BINARY, 1500)
        accept(space, 300)
        assert all(i.process.returncode == 0 for i in instances)
        if lost := sum(instance.said().count(c.NAME_LOST) for instance in instances):
            say(f"{lost} times an instance lost its name in the group to a late join of its own, and was started again")
        space.close()
    finally:
        cluster.down()


# --- controls: what must turn red ----------------------------------------------------------------------------------------


def control_forged(space):
    """Control: a row that was published a second time, generalized otherwise, turns I1 to I4 red."""
    c.Instance(space, BINARY, 0).start()
    space.produce(BINARY, 2000)
    accept(space)
    record = json.loads(oracle.read(space.bootstrap, space.sink)[0][3])
    record["age"] = "*" if record["age"] != "*" else "[0,5)"
    subprocess.run(["kcat", "-P", "-b", space.bootstrap, "-t", space.sink, "-H", "veilstream-release=forged"],
                   input=(json.dumps(record) + "\n").encode(), check=True, timeout=60)
    red(judge(space), "I1", "I2", "I3", "I4")


def control_rows_as_subjects(space):
    """Control: without a subject k counts rows; classes with fewer people turn I3 red."""
    c.Instance(space, BINARY, 0, subject="").start()
    space.produce(BINARY, 3000, subjects=60)
    space.drained()
    red(judge(space), "I3")


def control_gate_open(space):
    """Control: a defect publishes what is too small. The gate refuses it; with the gate open too, I3 turns red."""
    a = c.Instance(space, BINARY, 0, time_budget="20s")  # a search that is cut short may take the top, where nobody is left out
    space.produce(BINARY, 2000)
    a.start(VEILSTREAM_DEFECT="publish-all")
    c.wait_for(lambda: not a.alive(), 90, "the refusal")
    assert a.process.returncode > 0 and "the gate refused a release" in a.said()
    assert not oracle.read(space.bootstrap, space.sink, "read_uncommitted"), "something was sent before the gate had counted"
    a.start(VEILSTREAM_DEFECT="publish-all,gate-open")
    space.drained()
    red(judge(space), "I3")


def control_fresh_id(space):
    """Control: a planned release carried out under a fresh id turns I4 red."""
    space.produce(BINARY, 2000)
    a = c.Instance(space, BINARY, 0)
    a.start(VEILSTREAM_DIE_AT="flushed:2")
    died(a)
    a.start(VEILSTREAM_DEFECT="fresh-id")
    space.drained()
    space.settle()
    red(judge(space), "I4")


def control_offsets_outside(space):
    """Control: offsets committed outside the transaction lose records when the process dies in between."""
    space.produce(BINARY, 2000)
    a = c.Instance(space, BINARY, 0)
    a.start(VEILSTREAM_DIE_AT="offsets-sent:2", VEILSTREAM_DEFECT="offsets-outside")
    died(a)
    a.start(VEILSTREAM_DEFECT="offsets-outside")
    space.drained()
    space.settle()
    verdict = judge(space)
    assert verdict.missing > 0, "nothing is missing: I1 did not turn red"
    say(f"I1 turned red, as it must: {verdict.missing} records have no outcome")


def control_random_id(space):
    """Control: what an instance left open when it died blocks readers, unless it starts again with the same id."""
    for same in (True, False):
        space.produce(BINARY, 2000)
        a = c.Instance(space, BINARY, 0, timeout="15m")
        a.start(VEILSTREAM_DIE_AT="flushed:2")
        died(a)
        b = a if same else c.Instance(space, BINARY, 1, timeout="15m")
        b.start()
        space.drained()
        verdict = judge(space)
        if same:
            space.settle()
            verdict = judge(space)
            assert verdict.ok and not verdict.missing, f"{verdict.problems}"
            b.kill(signal.SIGTERM)
        else:
            c.wait_for(lambda: space.open_transactions() == 1, 60, "the transaction that is left open to be seen")
            assert verdict.missing > 0, "the reader was not blocked: I5 did not turn red"
            say(f"I5 turned red, as it must: {verdict.missing} records wait behind a transaction that nobody ends")


def apart(scenario):
    def in_two_clusters(where):
        scenario(where)

    in_two_clusters.__name__ = f"{scenario.__name__}_apart"
    in_two_clusters.__doc__ = f"{scenario.__doc__} Input and output are in two clusters."
    in_two_clusters.apart = True
    return in_two_clusters


ALONE = [broker_loss, bad_network, late_plan, late_producer, late_join, slow_broker, token_logins, output_blocked]
SPACES = [registry_away, registry_late, quick_restarts, quick_restarts_sequential, quick_restarts_sliding, control_random_id, zombie, *map(crash, STEPS), crash_revoked, one_id_twice,
          one_id_twice_while_publishing, members_come_and_go, *map(windows_stay, ["cooperative", "consumer"]), come_and_go("cooperative", "drop"),
          come_and_go("consumer", "hold"), come_and_go("cooperative", "hold", "partition"), plan_beside_open_windows,
          rebalanced_while_paused, given_back_while_full, misspelt_input_apart, rebalanced_while_rereading, topic_recreated, slow_search,
          slow_transaction, deleted_by_retention, held_records, wrong_format, tombstones, *map(routing, ["range", "cooperative"]), *map(deletes, ["tombstones", "debezium"]),
          sequential, sequential_local, sliding,
          sliding_local, sliding_changes, sliding_local_changes, local_recoding, subtree_recoding, alternatives, algorithms,
          audiences, audiences_local, control_forgetful, control_no_difference, control_criteria, control_forged, control_rows_as_subjects, control_gate_open,
          control_fresh_id, control_offsets_outside]
SPACES += map(apart, [zombie, *filter(lambda s: s.__name__.startswith("crash"), SPACES), one_id_twice, members_come_and_go,
                      plan_beside_open_windows, come_and_go("consumer", "hold"), topic_recreated, deleted_by_retention,
                      held_records, tombstones, sequential, sliding, control_fresh_id, control_offsets_outside])
ALONE += map(apart, [broker_loss, late_plan, late_producer, late_join])
# Two clusters have one protocol with one cluster, so a run without names plays these of them; VEILSTREAM_LONG plays all.
APART_IN_SHORT = ["zombie_apart", "crash_produced_apart", "crash_offsets_sent_apart", "control_fresh_id_apart"]


def play(scenario, alone=False):
    """One scenario: its name if it failed, else None. What it says is printed in one piece."""
    OUTPUT.text = io.StringIO()
    started, space, problem = time.monotonic(), None, None
    origin = ORIGIN if hasattr(scenario, "apart") else None
    try:
        space = None if alone else c.Space(SHARED, scenario.__name__.replace("_", "-"), origin=origin)
        scenario(origin if alone else space)
    except Exception as error:  # a check that breaks is a check that failed
        problem = f"{type(error).__name__}: {error}"
        if isinstance(error, subprocess.CalledProcessError):
            problem += f" {error.stderr}"
    finally:
        if space:
            space.close()
    end = f"   FAILED: {problem}" if problem else "   ok"
    text = OUTPUT.text.getvalue()
    print(f"== {scenario.__name__}: {scenario.__doc__}\n{text}{end} ({time.monotonic() - started:.0f} s)", flush=True)
    if problem and space:
        for instance in space.instances.values():
            print(f"-- the end of instance {instance.number}'s log:\n" + "\n".join(instance.said().splitlines()[-25:]))
    return scenario.__name__ if problem else None


def main():
    global BINARY, SHARED, ORIGIN
    BINARY = str(pathlib.Path(sys.argv[1]).resolve())
    wanted = sys.argv[2:]
    usual = lambda s: LONG or not hasattr(s, "apart") or s.__name__ in APART_IN_SHORT
    chosen = [[s for s in group if (s.__name__ in wanted if wanted else usual(s))] for group in (SPACES, ALONE)]
    if not any(chosen):
        print("no such scenario; there are: " + ", ".join(s.__name__ for s in SPACES + ALONE))
        return 2
    results = []
    try:
        if any(hasattr(scenario, "apart") for group in chosen for scenario in group):
            ORIGIN = c.Cluster("faults-origin")
        if chosen[0]:
            SHARED = c.Cluster("faults")
            with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
                results += pool.map(play, chosen[0])
            SHARED.down()
        with concurrent.futures.ThreadPoolExecutor(CLUSTERS_AT_A_TIME) as pool:
            results += pool.map(lambda scenario: play(scenario, alone=True), chosen[1])
    finally:
        for cluster in filter(None, (SHARED, ORIGIN)):
            cluster.down()
    failed = [name for name in results if name]
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
