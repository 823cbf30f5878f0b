"""The oracle: judges a run by what kcat reads from the topics. Shares no code with the engine.

Statements (see the README's promise):
  I1 nothing lost     every input offset is covered by exactly one entry of the journal, or still held; the counts add up
  I2 nothing twice    no input record is published twice under read_committed
  I3 nothing unsafe   every class of every release has at least k distinct subjects, and l distinct sensitive values
  I4 replay identical every physical copy of a published record, aborted ones included, has the same bytes and the same release
  I6 fail closed      records of fewer than k people, alone at the end of the input, are in no copy of the output (`judge_few`)
  I7 no leak          a canary that was planted in the input is in nothing that left (`judge_leaks`)

A record is recognised by a kept field that is unique in the input (`ts`). Its subject is looked up in the input. Where the
input cannot be read here (`opaque`), offsets and counts are judged, and classes by their rows.
"""

import json
import subprocess
import time
from collections import defaultdict

SEPARATOR = "\x1f"


def consume(bootstrap, topic, form, isolation="read_committed"):
    """The bytes that kcat prints of a whole topic. A broker that has just come up may not know the topic yet: then it is asked again."""
    command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q", "-f", form,
               "-X", f"isolation.level={isolation}", "-X", "check.crcs=true"]
    for _ in range(10):
        done = subprocess.run(command, capture_output=True, timeout=300)
        if done.returncode == 0:
            return done.stdout
        time.sleep(2)
    raise AssertionError(f"{topic} cannot be read: {done.stderr.decode(errors='replace')[-500:]}")


def read(bootstrap, topic, isolation="read_committed"):
    """Every message of a topic as (partition, offset, headers, payload)."""
    messages = []
    for line in consume(bootstrap, topic, SEPARATOR.join(["%p", "%o", "%h", "%s"]) + "\n", isolation).decode().split("\n"):
        if line:
            partition, offset, headers, payload = line.split(SEPARATOR, 3)
            messages.append((int(partition), int(offset), headers, payload))
    return messages


def release_of(headers):
    for header in headers.split(","):
        name, _, value = header.partition("=")
        if name == "veilstream-release":
            return value
    return None


def runs(offsets):
    """Sorted runs of offsets, for people."""
    found = []
    for offset in sorted(offsets):
        if found and found[-1][1] + 1 == offset:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found


class Verdict:
    def __init__(self):
        self.problems = defaultdict(list)
        self.figures = {}

    left = None

    def fail(self, statement, text):
        self.problems[statement].append(text)

    @property
    def ok(self):
        return not self.problems

    def text(self, statements=4):
        lines = []
        for statement in (f"I{number}" for number in range(1, statements + 1)):
            problems = self.problems.get(statement, [])
            lines.append(f"{statement}: {'ok' if not problems else f'{len(problems)} violations, first: {problems[0]}'}")
        if self.left:
            text = str(self.left)
            lines.append(f"without an outcome: {text[:400]}{' ...' if len(text) > 400 else ''}")
        lines.append("figures: " + ", ".join(f"{name} {value}" for name, value in self.figures.items()))
        return "\n".join(lines)


def raw(bootstrap, topic):
    """All bytes of a topic: keys, headers and payloads, of aborted transactions too."""
    return consume(bootstrap, topic, "%k %h %s\n", "read_uncommitted")


def offsets_of(bootstrap, topic):
    """Every offset of a topic whose messages may be anything, newlines included."""
    return [tuple(map(int, line.split())) for line in consume(bootstrap, topic, "%p %o\n").decode().splitlines()]


def outcomes(verdict, bootstrap, output):
    """What the journal says: how many records each release published, in their order; which offsets are done; totals by outcome.
    Entries of another kind say which records a release shows, for instances that take over."""
    published, covered, counts = {}, defaultdict(set), defaultdict(int)
    entries = (json.loads(payload) for _, _, _, payload in read(bootstrap, f"{output}-journal"))
    for entry in (entry for entry in entries if "finished" in entry):
        name = entry["release_id"]
        if name in published:
            verdict.fail("I2", f"release {name} was committed twice")
        published[name] = entry["records_published"]
        for outcome in ("published", "suppressed", "rejected"):
            counts[outcome] += entry[f"records_{outcome}"]
        for part in entry["finished"]:
            for first, last in part["spans"]:
                for offset in range(first, last + 1):
                    if offset in covered[part["partition"]]:
                        verdict.fail("I1", f"offset {part['partition']}:{offset} has two outcomes")
                    covered[part["partition"]].add(offset)
    judge_manifests(verdict, bootstrap, output, published)
    return published, covered, counts


def judge_manifests(verdict, bootstrap, output, published):
    """What readers are told: totals of releases that have rows, whole ranges of offsets, figures of three digits. Nothing else."""
    for _, _, _, payload in read(bootstrap, f"{output}-manifests"):
        manifest = json.loads(payload)
        name = manifest["release_id"]
        if published.get(name) != manifest["records_published"]:
            verdict.fail("I1", f"release {name}: the manifest and the journal differ")
        if not manifest["rows"]:
            verdict.fail("I7", f"release {name}: a manifest about nothing but records that were left out")
        if any(set(part) != {"partition", "first", "last"} for part in manifest["offsets"]):
            verdict.fail("I7", f"release {name}: a manifest tells of single records")
        if any(float(f"{loss['value']:.2e}") != loss["value"] for loss in manifest["losses"]):
            verdict.fail("I7", f"release {name}: a loss has more than three digits")


def records_of(bootstrap, source, row=lambda record: record, key="ts"):
    """The records of the input by their key, and the offsets of all messages. Garbage is covered by its offset alone."""
    inputs, offsets = {}, defaultdict(set)
    for partition, offset, _, payload in read(bootstrap, source):
        offsets[partition].add(offset)
        try:
            record = row(json.loads(payload))
            inputs[record[key]] = record
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
    return inputs, offsets


def judge(bootstrap, source, output, quasi, sensitive, k, l, subject="user_id", key="ts", opaque=False, origin=None, row=lambda record: record):
    """`origin`: the cluster of the input, if it is another one. `row` finds the row in a message of the input."""
    verdict = Verdict()
    origin = origin or bootstrap
    inputs, offsets = ({}, defaultdict(set)) if opaque else records_of(origin, source, row, key)
    if opaque:
        for partition, offset in offsets_of(origin, source):
            offsets[partition].add(offset)
    total = sum(len(o) for o in offsets.values())

    published_by_release, covered, counts = outcomes(verdict, bootstrap, output)
    left = {p: o - covered[p] for p, o in offsets.items()}
    for partition, extra in ((p, covered[p] - offsets[p]) for p in covered):
        if extra:
            verdict.fail("I1", f"partition {partition}: {len(extra)} offsets covered that hold no record")
    missing = sum(len(o) for o in left.values())
    if sum(counts.values()) + missing != total:
        verdict.fail("I1", f"{dict(counts)} and {missing} open do not add up to {total}")

    rows = defaultdict(list)
    once = defaultdict(int)
    for _, _, headers, payload in read(bootstrap, output):
        record = json.loads(payload)
        once[record[key]] += 1
        rows[release_of(headers)].append(record)
    for value, times in once.items():
        if times > 1:
            verdict.fail("I2", f"a record was published {times} times")
        if value not in inputs and not opaque:
            verdict.fail("I2", "a record was published that was never in the input")
    for name, records in rows.items():
        if published_by_release.get(name) != len(records):
            verdict.fail("I1", f"release {name}: {len(records)} rows, the journal says {published_by_release.get(name)}")
        classes = defaultdict(list)
        for record in records:
            classes[tuple(record[q] for q in quasi)].append(record)
        for members in classes.values():
            people = [r[key] if opaque else inputs[r[key]][subject] for r in members if opaque or r[key] in inputs]
            if len(set(people)) < k:
                verdict.fail("I3", f"release {name}: a class of {len(set(people))} people")
            if len({r[sensitive] for r in members}) < l:
                verdict.fail("I3", f"release {name}: a class with fewer than {l} values of {sensitive}")

    copies = defaultdict(set)
    physical = 0
    for _, _, headers, payload in read(bootstrap, output, "read_uncommitted"):
        physical += 1
        copies[json.loads(payload)[key]].add((release_of(headers), payload))
    for texts in copies.values():
        if len(texts) > 1:
            verdict.fail("I4", f"{len(texts)} different generalizations of one record")

    verdict.figures = {
        "records": total, "published": counts["published"], "suppressed": counts["suppressed"],
        "rejected": counts["rejected"], "open": missing, "releases": len(rows),
        "physical copies": physical, "aborted copies": physical - sum(once.values()),
    }
    verdict.missing = missing
    verdict.left = {p: runs(o) for p, o in left.items() if o}
    return verdict


def judge_sequential(verdict, bootstrap, source, output, quasi, sensitive, releases, candidates, subject="user_id",
                     key="ts", origin=None):
    """I3, for a reader who finds somebody in several of the last releases and intersects the values of their classes. The
    releases are in the order of their manifests: one instance at a time, one partition of manifests."""
    who = {name: record[subject] for name, record in records_of(origin or bootstrap, source, key=key)[0].items()}
    classes = defaultdict(lambda: defaultdict(list))
    for _, _, headers, payload in read(bootstrap, output):
        record = json.loads(payload)
        classes[release_of(headers)][tuple(record[q] for q in quasi)].append(record)
    past, returned = [], 0
    for _, _, _, payload in read(bootstrap, f"{output}-manifests"):
        seen = {}
        for members in classes[json.loads(payload)["release_id"]].values():
            values = {r[sensitive] for r in members}
            for person in {who[r[key]] for r in members}:
                seen[person] = seen.get(person, values) & values
        if not seen:
            continue
        for person, values in seen.items():
            earlier = [release[person] for release in past if person in release]
            returned += bool(earlier)
            left = len(values.intersection(*earlier))
            if earlier and left < candidates:
                verdict.fail("I3", f"{left} candidate values are left for somebody who was in {len(earlier) + 1} of {releases} releases")
        past = (past + [seen])[-(releases - 1):]
    verdict.figures["returned"] = returned


def released(bootstrap, output, inputs, key="ts"):
    """The rows of each release, each with its record of the input."""
    rows = defaultdict(list)
    for _, _, headers, payload in read(bootstrap, output):
        row = json.loads(payload)
        rows[release_of(headers)].append((row, inputs[row[key]]))
    return rows


def judge_criteria(verdict, bootstrap, source, output, quasi, over, k, sensitive, secret, minds, subject="user_id"):
    """I3, for a reader who looks people up by the fields `over` alone, and for the confidential sentence that the sensitive value is one
    of `secret`: in a class with somebody who `minds`, somebody falsifies it."""
    for name, rows in released(bootstrap, output, records_of(bootstrap, source)[0]).items():
        alike, classes = defaultdict(set), defaultdict(list)
        for row, record in rows:
            alike[tuple(row[q] for q in over)].add(record[subject])
            classes[tuple(row[q] for q in quasi)].append((row[sensitive], record))
        if (least := min(map(len, alike.values()))) < k:
            verdict.fail("I3", f"release {name}: {least} people look alike in {', '.join(over)}")
        for members in classes.values():
            if all(value in secret for value, _ in members) and any(minds(record) for _, record in members):
                verdict.fail("I3", f"release {name}: a confidential sentence follows about a class")


def judge_means(verdict, bootstrap, source, output, field, off, subject="user_id"):
    """I3, where cells show the mean of their people: it is that of the people of the block, each counted once, give or take `off`."""
    compared = 0
    for name, rows in released(bootstrap, output, records_of(bootstrap, source)[0]).items():
        blocks = defaultdict(lambda: defaultdict(list))
        for row, record in rows:
            if row[field].replace(".", "", 1).isdigit() and "." in row[field]:
                blocks[row[field]][record[subject]].append(record[field])
        for text, people in blocks.items():
            mean = sum(sum(own) / len(own) for own in people.values()) / len(people)
            compared += 1
            if abs(mean - float(text)) > off:
                verdict.fail("I3", f"release {name}: {text} stands for people whose mean of {field} is {mean:.2f}")
    verdict.figures["means"] = compared


def header_of(headers, wanted):
    for header in headers.split(","):
        name, _, value = header.partition("=")
        if name == wanted:
            return value
    return None


def rebuilt(verdict, order, rows, bases, key):
    """The snapshot after each release of a changelog, as a reader keeps it: whole ones begin anew, changes go on from their base."""
    snapshots = {}
    for name in (name for name in order if rows[name]):
        whole = {record["change"] for record in rows[name]} == {"="}
        if whole != (bases[name] is None):
            verdict.fail("I4", "a release mixes a whole snapshot with changes")
        if not whole and bases[name] not in snapshots:
            verdict.fail("I4", "changes of a snapshot that nobody has")
            continue
        snapshot = {} if whole else dict(snapshots[bases[name]])
        for record in sorted(rows[name], key=lambda record: record["change"] != "-"):
            shown = {field: value for field, value in record.items() if field != "change"}
            if record["change"] != "-":
                if record[key] in snapshot:
                    verdict.fail("I2", "a record comes that is there")
                snapshot[record[key]] = shown
            elif snapshot.pop(record[key], None) != shown:
                verdict.fail("I4", "a row leaves that is not there, or reads otherwise")
        snapshots[name] = snapshot
    return snapshots


def judge_snapshots(verdict, bootstrap, source, output, quasi, sensitive, k, l, subject="user_id", key="ts", origin=None):
    """The statements for a sliding window, where a record may be in many snapshots: in each once, and if all snapshots are put side
    by side, record by record, every group that can be told apart has at least k people and l values. Snapshots are in the order of
    the journal: one instance at a time."""
    inputs, offsets = records_of(origin or bootstrap, source, key=key)
    snapshots, sent, bases = defaultdict(dict), defaultdict(list), {}
    for _, _, headers, payload in read(bootstrap, output):
        record = json.loads(payload)
        if record[key] in snapshots[release_of(headers)]:
            verdict.fail("I2", "a record is in a snapshot twice")
        snapshots[release_of(headers)][record[key]] = record
        sent[release_of(headers)].append(record)
        bases[release_of(headers)] = header_of(headers, "veilstream-base")
    copies, physical = defaultdict(set), 0
    for _, _, headers, payload in read(bootstrap, output, "read_uncommitted"):
        copies[release_of(headers), json.loads(payload)[key]].add(payload)
        physical += 1
    if any(len(texts) > 1 for texts in copies.values()):
        verdict.fail("I4", "different generalizations of one record in one snapshot")
    unfinished = {name for name, _ in copies} - set(snapshots)
    if unfinished:
        verdict.fail("I4", f"{len(unfinished)} snapshots were begun and never carried out")
    order, covered, counts = outcomes(verdict, bootstrap, output)
    total = sum(len(o) for o in offsets.values())
    verdict.missing = sum(len(offsets[p] - covered[p]) for p in offsets)
    if sum(counts.values()) + verdict.missing != total:
        verdict.fail("I1", f"{dict(counts)} and {verdict.missing} open do not add up to {total}")
    changelog = any("change" in record for records in sent.values() for record in records)
    if changelog:
        snapshots = defaultdict(dict, rebuilt(verdict, order, sent, bases, key))
    shown = {name for rows in snapshots.values() for name in rows}
    if counts["published"] != len(shown):
        verdict.fail("I1", f"{len(shown)} records were shown, the journal says {counts['published']}")

    def check(records, labels, what):
        classes = defaultdict(list)
        for record in records:
            classes[labels(record)].append(inputs[record[key]])
        for members in classes.values():
            if len({m[subject] for m in members}) < k or len({m[sensitive] for m in members}) < l:
                verdict.fail("I3", f"{what}: a class of {len({m[subject] for m in members})} people")

    # For each record where it is and as what. Records with the same trace are those that a reader of all snapshots cannot tell
    # apart; what two or three of them tell apart is made of such groups.
    traces, last, compared = defaultdict(list), {}, 0
    for number, name in enumerate(name for name in order if snapshots[name]):
        rows = snapshots[name]
        check(rows.values(), lambda r: tuple(r[q] for q in quasi), "a snapshot")
        for n, r in rows.items():
            if traces[n] and traces[n][-1][0] != number - 1:
                verdict.fail("I3", "a record is back after a snapshot without it")
            traces[n].append((number, *(r[q] for q in quasi)))
        compared += 0 < sum(n in rows for n in last) < min(len(last), len(rows))
        last = rows
    for name, records in sent.items() if changelog else ():
        check(records, lambda r: (r["change"], *(r[q] for q in quasi)), "rows that come or leave")
    check([r for rows in snapshots.values() for r in rows.values()], lambda r: tuple(traces[r[key]]), "snapshots side by side")
    verdict.figures = {"records": total, **counts, "open": verdict.missing, "snapshots": len(snapshots), "compared": compared,
                       "aborted copies": physical - sum(map(len, sent.values()))}
    if changelog:
        verdict.figures["changes"] = sum(base is not None for base in bases.values())


def judge_deleted(verdict, bootstrap, sources, output, row=lambda record: record, key="ts"):
    """No row of somebody deleted is in a release that was planned after the delete was read. A release has read everything that it
    finishes, and a delete has its outcome with the first release after it: so a row stands in an earlier one, or nowhere. Releases
    are in the order of the journal: one instance at a time. `sources` are topics in which a person has one partition. Returns the
    rows that are nowhere because of a delete, and the releases."""
    owner, deletes = {}, defaultdict(list)
    for source in sources:
        for line in consume(bootstrap, source, SEPARATOR.join(["%p", "%o", "%k", "%s"]) + "\n").decode().split("\n"):
            if not line:
                continue
            partition, offset, person, payload = line.split(SEPARATOR, 3)
            message = json.loads(payload) if payload else None
            place = (source, int(partition), int(offset))
            if message is None or message.get("op") == "d":
                deletes[source, person].append(place)
            elif row(message):
                owner[row(message)[key]] = (place, (source, person))
    when, order = {}, {}
    entries = (json.loads(payload) for _, _, _, payload in read(bootstrap, f"{output}-journal"))
    for entry in (entry for entry in entries if "finished" in entry):
        order[entry["release_id"]] = len(order)
        for part in entry["finished"]:
            for first, last in part["spans"]:
                for offset in range(first, last + 1):
                    when[part["topic"], part["partition"], offset] = order[entry["release_id"]]
    late, early = 0, 0
    for _, _, headers, payload in read(bootstrap, output):
        place, person = owner[json.loads(payload)[key]]
        after = [when.get(delete, len(order)) for delete in deletes[person] if delete[2] > place[2]]
        if after and order[release_of(headers)] >= min(after):
            late += 1
        early += bool(after)
    if late:
        verdict.fail("I3", f"{late} rows of deleted people are in releases that were planned after the delete was read")
    verdict.figures.update({"deletes": sum(map(len, deletes.values())), "rows from before a delete": early})
    published = {json.loads(payload)[key] for _, _, _, payload in read(bootstrap, output)}
    gone = [name for name, (place, person) in owner.items() if any(d[2] > place[2] for d in deletes[person])]
    kept_back = [name for name in gone if name not in published]
    verdict.figures["rows that a delete kept back"] = len(kept_back)
    return kept_back, list(order)


def judge_reader(verdict, bootstrap, output, seen):
    """I2, for somebody who read with read_committed during the faults: (partition, offset, payload) each once, as they stand."""
    final = {(str(partition), str(offset)): payload for partition, offset, _, payload in read(bootstrap, output)}
    met = set()
    for partition, offset, payload in seen:
        if (partition, offset) in met:
            verdict.fail("I2", "a reader was given one row twice")
        met.add((partition, offset))
        if final.get((partition, offset)) != payload:
            verdict.fail("I2", "a reader was given a row that is not there, or reads otherwise now")


def judge_few(verdict, bootstrap, output, keys, key="ts"):
    """I6: nothing of these was sent, in a transaction that was aborted neither."""
    for _, _, _, payload in read(bootstrap, output, "read_uncommitted"):
        if json.loads(payload)[key] in keys:
            verdict.fail("I6", "a record of fewer than k people was sent")


def judge_leaks(verdict, exits, canary):
    """I7: `exits` are the bytes that left, by the way they took. One that is empty was not looked at."""
    for name, data in exits.items():
        if canary.encode() in data:
            verdict.fail("I7", f"a planted string left by way of: {name}")
        if not data and not name.endswith("dead-letters"):
            verdict.fail("I7", f"nothing was there to look at: {name}")
