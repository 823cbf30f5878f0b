"""The rules, each a check of its own that names what it found. A check that has nothing to look at does not apply."""

import itertools
import json
import math
from collections import Counter, defaultdict
from decimal import Decimal
from functools import cached_property

import formats
import hierarchies
import recount
from cases import LINK
from hierarchies import TOP
from recount import Row

CHECKS = {}
# Every node of a lattice is tried where nodes times records are no more than this; more take seconds.
TRIED = 12_000
# What readers of a manifest may see: totals, whole ranges, and figures of the published rows.
MANIFEST_KEYS = {
    "release_id", "window_id", "close_reason", "offsets", "ranges", "recoding", "losses", "records_in", "records_published",
    "records_suppressed", "records_held", "records_rejected", "algorithm", "nodes_checked", "nodes_total", "nodes_predicted",
    "stop", "search_ms", "policy_fingerprint", "closed_at", "criteria", "k_achieved", "classes", "rows",
}


def check(function):
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


class DoesNotApply(Exception):
    pass


def needs(condition):
    if not condition:
        raise DoesNotApply


def judge(trial):
    """What every check that applies found: name -> problems."""
    found = {}
    for name, function in CHECKS.items():
        try:
            found[name] = list(function(trial))
        except DoesNotApply:
            pass
    return found


class Release:
    """The rows of one release, what is said of it, and the records that were read for it."""

    def __init__(self, trial, rows, said, read):
        self.trial, self.published, self.said, self.read = trial, rows, said, read
        recoding = said.get("recoding", {})
        if isinstance(recoding, list):
            recoding = {a["attribute"]: a.get("cut", a["level"]) for a in recoding}
        self.recoding = [recoding.get(name) for name in trial.case.quasi]

    @cached_property
    def rows(self):
        """The rows as they are counted. Without a link every row is somebody else."""
        case = self.trial.case
        rows = []
        for i, row in enumerate(self.published):
            source = self.trial.source_of(row)
            person = i if source is None else self.trial.person(source)
            labels = tuple(text(row.get(name)) for name in case.quasi)
            rows.append(Row(labels, {n: row.get(n) for n in case.sensitive + case.policy.get("keep", [])}, person, source))
        return rows

    @cached_property
    def by_records(self):
        """The same rows counted as a reader counts them."""
        return [Row(row.labels, row.values, i, row.source) for i, row in enumerate(self.rows)]

    def allowed(self, i, leaf):
        """The texts under which the release may publish a leaf of quasi-identifier i; None if microaggregated."""
        case, hierarchy = self.trial.case, self.trial.case.hierarchy(i)
        render, level = case.policy.get("render", "label"), self.recoding[i]
        if render == "microaggregate" and hierarchy.measure != "category" and leaf is not TOP:
            return None
        shown = hierarchy.interval if render == "interval" and hierarchy.measure in ("number", "date") else hierarchy.label
        if not isinstance(level, list):
            return {shown(leaf, level)}
        low, high = case.bounds(i)
        levels = [l for l in range(low, high + 1) if leaf is TOP or hierarchy.label(leaf, l) in level]
        return {shown(leaf, l) for l in levels}

    def level(self, i, leaf, shown):
        """The level at which a leaf is published."""
        level, hierarchy = self.recoding[i], self.trial.case.hierarchy(i)
        if not isinstance(level, list):
            return level
        fitting = [l for l in range(hierarchy.height + 1) if shown in (hierarchy.label(leaf, l), hierarchy.interval(leaf, l))]
        return fitting[0] if fitting else None


class Trial:
    """A case, its evidence, and what follows from both."""

    def __init__(self, evidence):
        self.evidence, self.case = evidence, evidence.case
        self.criteria = recount.Criteria(self.case.policy, self.case.files)
        self.linked = LINK in self.case.policy.get("keep", [])

    @cached_property
    def fates(self):
        """What must become of each record before any release: its places in the hierarchies, `suppress` or `reject`."""
        return [self.fate(record) for record in self.case.records]

    def fate(self, record):
        policy = self.case.policy
        if isinstance(record, str):
            return "reject"
        leaves = []
        for i, name in enumerate(self.case.quasi):
            value = record[name]
            if isinstance(value, formats.Raw):
                return "reject"
            leaf = self.case.hierarchy(i).leaf(value)
            if leaf is None:
                reason = "missing_value" if value is formats.MISSING else "null_value" if value is None else "unknown_value"
                fallback = policy.get(reason, "reject")
                if fallback != "top":
                    return fallback
                leaf = TOP
            leaves.append(leaf)
        if any(record[name] is formats.MISSING for name in self.case.sensitive):
            return "reject"
        if "subject" in policy and recount.canonical(record["person"]) is None:
            return "reject"
        return leaves

    def person(self, source):
        return recount.canonical(self.case.records[source]["person"]) if "subject" in self.case.policy else source

    def source_of(self, row):
        name = row.get(LINK) if self.linked else None
        if not isinstance(name, str) or not name[1:].isdigit() or int(name[1:]) >= len(self.case.records):
            return None
        return int(name[1:])

    @cached_property
    def releases(self):
        evidence, everything = self.evidence, range(len(self.case.records))
        rows = evidence.first.rows
        if self.case.mode == "anonymize":
            return [Release(self, rows, evidence.report or {}, everything)] if evidence.first.data else []
        if self.case.stdio:
            return []
        releases, at, read = [], 0, 0
        for said in evidence.manifests:
            window = range(read, read + said["records_in"])
            releases.append(Release(self, rows[at:at + said["rows"]], said, window))
            at, read = at + said["rows"], read + said["records_in"]
        return releases

    @cached_property
    def shown(self):
        return [release for release in self.releases if release.published]

    @property
    def limit(self):
        limit = self.case.policy.get("suppression", {}).get("limit", 0)
        return float(limit[:-1]) / 100 if isinstance(limit, str) else limit

    @property
    def k(self):
        privacy = self.case.policy["privacy"]
        return max([c["k-anonymity"] for c in privacy if "k-anonymity" in c] + [c["alpha-k"]["k"] for c in privacy if "alpha-k" in c] + [1])


def text(value):
    return formats.csv_text(value)


# What came out at all.


@check
def exit_code(trial):
    """A command ends with 0, or with 1 because the policy is not met; it never breaks down."""
    evidence = trial.evidence
    for name in ("first", "again", "permuted", "search", "optimal", "verify"):
        output = getattr(evidence, name)
        if output is not None and (output.exit not in (0, 1) or "panicked" in output.stderr):
            yield f"{name} ended with {output.exit}: {output.stderr.strip()[-300:]}"
    if evidence.first.unreadable:
        yield f"the output cannot be read: {evidence.first.unreadable}"


@check
def gate_and_search_agree(trial):
    """What the search chose passes the gate."""
    for name in ("first", "search", "optimal"):
        output = getattr(trial.evidence, name)
        if output is not None and " is not met: a class of" in output.stderr:
            yield f"{name}: {output.stderr.strip()[-300:]}"


@check
def columns(trial):
    """Published are the fields that the policy names, and no other."""
    needs(trial.evidence.first.data and not trial.evidence.first.unreadable)
    expected = trial.case.published
    if trial.evidence.first.columns not in (None, expected):
        yield f"columns {trial.evidence.first.columns}, not {expected}"
    for row in trial.evidence.first.rows:
        if list(row) != expected:
            yield f"a row has the fields {list(row)}"
            break


@check
def canaries(trial):
    """Nothing that leaves holds a value of a field that is not published."""
    evidence = trial.evidence
    leaves = {"output": evidence.first.data.decode(errors="replace"), "figures": evidence.figures,
              "stdout": evidence.first.stdout, "stderr": evidence.first.stderr}
    if evidence.verify:
        leaves["verify"] = evidence.verify.stdout + evidence.verify.stderr
    for name, said in leaves.items():
        for canary in ("canary-", "subj-"):
            if canary in said.lower():
                yield f"{canary} in {name}"


@check
def links(trial):
    """Every row is a record that may be published; none is published twice, but in the snapshots of a sliding window."""
    needs(trial.linked and trial.shown)
    seen = Counter()
    for number, release in enumerate(trial.shown):
        if trial.case.mode == "sliding":
            seen.clear()
        for row in release.published:
            source = trial.source_of(row)
            if source is None:
                yield f"release {number}: a row that is no record of the input"
                continue
            seen[source] += 1
            if seen[source] > 1:
                yield f"record {source} is published twice"
            if not isinstance(trial.fates[source], list):
                yield f"record {source} is published, it must be: {trial.fates[source]}"
            if source >= release.read.stop:
                yield f"record {source} is published before it was read"


@check
def labels(trial):
    """Every label is what the input value becomes at the level that the manifest names."""
    needs(trial.linked and trial.shown)
    for release in trial.shown:
        for row in release.rows:
            if row.source is None or not isinstance(trial.fates[row.source], list):
                continue
            for i, leaf in enumerate(trial.fates[row.source]):
                allowed = release.allowed(i, leaf)
                if allowed is not None and row.labels[i] not in allowed:
                    yield f"record {row.source}, {trial.case.quasi[i]}: {row.labels[i]!r}, not {sorted(allowed)}"


@check
def labels_unlinked(trial):
    """Without a link: the rows are, as a multiset, among the input's records generalized by the manifest's levels."""
    needs(not trial.linked and trial.shown and trial.case.policy.get("render") != "microaggregate")
    for release in trial.shown:
        needs(not any(isinstance(level, list) for level in release.recoding))
        offered = Counter()
        for source in range(release.read.stop):
            if isinstance(trial.fates[source], list):
                offered[key_of(trial, release, source)] += 1
        missing = Counter(key(row, trial.case) for row in release.rows) - offered
        if missing:
            yield f"{sum(missing.values())} rows that no record becomes, such as {next(iter(missing))}"


def key(row, case):
    return row.labels + tuple(recount.canonical(row.values[name]) for name in case.published[len(case.quasi):])


def key_of(trial, release, source):
    record = trial.case.records[source]
    labels = tuple(next(iter(release.allowed(i, leaf))) for i, leaf in enumerate(trial.fates[source]))
    return labels + tuple(recount.canonical(known(record[name])) for name in trial.case.published[len(trial.case.quasi):])


def known(value):
    return None if value is formats.MISSING else value


@check
def values(trial):
    """Sensitive and kept values are those of the record, as they are counted."""
    yield from compared(trial, lambda a, b: recount.canonical(a) == recount.canonical(known(b)))


@check
def values_as_written(trial):
    """Sensitive and kept values are published as written; numbers by value."""
    yield from compared(trial, same)


def same(out, given):
    if isinstance(given, Decimal) and isinstance(out, Decimal):
        return given == out
    if isinstance(given, Decimal):
        return out == hierarchies.plain(given)
    given = known(given)
    return out == given or isinstance(out, str) and out == text(given)


def compared(trial, alike):
    needs(trial.linked and trial.shown)
    for release in trial.shown:
        for row in release.rows:
            record = trial.case.records[row.source] if row.source is not None else None
            for name in trial.case.published[len(trial.case.quasi):] if isinstance(record, dict) else []:
                if not alike(row.values[name], record[name]):
                    yield f"record {row.source}, {name}: {row.values[name]!r}, not {record[name]!r}"


# The criteria.


@check
def criteria(trial):
    """Every class of every release satisfies every criterion; k counts people."""
    needs(trial.shown)
    for number, release in enumerate(trial.shown):
        # Without a link people cannot be counted, and rows are more than people only where sizes decide.
        needs(trial.linked or "subject" not in trial.case.policy)
        for figure in trial.criteria.failing(release.rows):
            yield f"release {number}: {figure.name} reaches {figure.reached:.6g}, {figure.required} required"


@check
def people_unlinked(trial):
    """Without a link: the people whose records may be in a class are at least k."""
    needs(trial.shown and not trial.linked and "subject" in trial.case.policy)
    needs(trial.case.policy.get("render") != "microaggregate")
    for release in trial.shown:
        needs(not any(isinstance(level, list) for level in release.recoding))
        offered = defaultdict(set)
        for source in range(release.read.stop):
            if isinstance(trial.fates[source], list):
                offered[key_of(trial, release, source)[:len(trial.case.quasi)]].add(trial.person(source))
        for labels in recount.classes(release.rows):
            if len(offered[labels]) < trial.k:
                yield f"at most {len(offered[labels])} people in a class"


@check
def figures(trial):
    """The figures that manifest or report give are those of the weakest class."""
    needs(trial.shown and (trial.linked or "subject" not in trial.case.policy))
    for release in trial.shown:
        said = {c["criterion"]: c["achieved"] for c in release.said.get("criteria", [])}
        for figure in trial.criteria.figures(release.rows):
            if not figure.vague and figure.name in said and not close(said[figure.name], figure.reached):
                yield f"{figure.name}: {said[figure.name]}, counted {figure.reached}"
        sizes = [recount.people(rows) for rows in recount.classes(release.rows).values()]
        if release.said["k_achieved"] != min(sizes):
            yield f"k_achieved {release.said['k_achieved']}, counted {min(sizes)}"
        if release.said["classes"] != len(sizes):
            yield f"classes {release.said['classes']}, counted {len(sizes)}"


def close(said, counted):
    """Equal to three digits."""
    return said is not None and abs(said - counted) <= 0.006 * abs(counted) + 1e-9


@check
def held_join(trial):
    """Records that were held join only classes that satisfy the policy without them."""
    needs(trial.case.mode == "hold" and trial.linked and trial.shown)
    start = 0
    for release in trial.releases:
        if not release.published:
            continue  # What it read starts over with the next window.
        fresh = [row for row in release.rows if row.source is not None and row.source >= start]
        joined = {row.labels for row in release.rows} - {row.labels for row in fresh}
        if joined:
            yield f"{len(joined)} classes consist of held records alone"
        touched = {row.labels for row in release.rows if row.source is not None and row.source < start}
        rest = [row for row in fresh if row.labels in touched]
        for figure in trial.criteria.figures(rest, fresh):
            if not figure.holds() and not figure.name.startswith(("lkc", "min-security")):
                yield f"{figure.name} reaches {figure.reached:.6g} without those held"
        start = release.read.stop


def neighbours(trial):
    """Each two snapshots that follow one another, of full-domain recodings."""
    needs(trial.case.mode == "sliding" and trial.linked and len(trial.shown) > 1)
    for earlier, later in zip(trial.shown, trial.shown[1:]):
        if not any(isinstance(level, list) for level in earlier.recoding + later.recoding):
            yield earlier, later


@check
def sliding_differences(trial):
    """Who left and who came between two snapshots are at least k in every class that a reader can subtract."""
    for earlier, later in neighbours(trial):
        join = [max(pair) for pair in zip(earlier.recoding, later.recoding)]
        before, after = ({row.source for row in release.rows if row.source is not None} for release in (earlier, later))
        for sources in (before - after, after - before):
            groups = defaultdict(set)
            for source in sources:
                leaves = trial.fates[source] if isinstance(trial.fates[source], list) else []
                groups[tuple(trial.case.hierarchy(i).label(leaf, join[i]) for i, leaf in enumerate(leaves))].add(trial.person(source))
            small = [len(group) for group in groups.values() if len(group) < trial.k]
            if small:
                yield f"{len(small)} groups of fewer than {trial.k}, the least {min(small)}"


@check
def sliding_stayers(trial):
    """Where the recodings of two snapshots cross, those who stay are at least k in every pair of labels."""
    for earlier, later in neighbours(trial):
        pairs = list(zip(earlier.recoding, later.recoding))
        if all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs):
            continue
        before = {row.source: row for row in earlier.rows}
        groups = defaultdict(set)
        for row in later.rows:
            if row.source in before:
                groups[before[row.source].labels + row.labels].add(row.person)
        small = [len(group) for group in groups.values() if len(group) < trial.k]
        if small:
            yield f"{len(small)} pairs of labels with fewer than {trial.k} people, the least {min(small)}"


# Counts and limits.


@check
def counts(trial):
    """Published, suppressed, held and rejected add up, and are those of the rows and of the input."""
    needs(trial.releases)
    total = len(trial.case.records)
    finished = held = 0
    for number, release in enumerate(trial.releases):
        said = release.said
        parts = [said["records_published"], said["records_suppressed"], said["records_rejected"]]
        before, held = held, said.get("records_held", 0)
        if sum(parts) + held - before != said["records_in"]:
            yield f"release {number}: {parts} and {held - before} more held are not {said['records_in']}"
        if said.get("rows", len(release.published)) != len(release.published):
            yield f"release {number}: {len(release.published)} rows, {said['rows']} said"
        if trial.case.mode != "sliding" and said["records_published"] != len(release.published):
            yield f"release {number}: {len(release.published)} rows, {said['records_published']} published"
        rejected = sum(trial.fates[source] == "reject" for source in release.read if source < total)
        if said["records_rejected"] != rejected:
            yield f"release {number}: {said['records_rejected']} rejected, {rejected} expected"
        finished += sum(parts)
    if finished + held != total:
        yield f"{finished} finished and {held} held of {total} records"
    rows = sum(len(release.published) for release in trial.releases)
    if rows != len(trial.evidence.first.rows):
        yield f"{len(trial.evidence.first.rows)} rows in the file, {rows} in its releases"


@check
def summary(trial):
    """What a run says at its end is what its manifests and its rows say."""
    needs(trial.case.mode != "anonymize")
    first = trial.evidence.first
    stream = first.stderr if trial.case.stdio else first.stdout
    lines = [line for line in stream.splitlines() if line.startswith("{")]
    if not lines:
        yield f"no summary: {first.stderr.strip()[-300:]}"
        return
    said = json.loads(lines[-1])
    if said["records_in"] != len(trial.case.records):
        yield f"{said['records_in']} records read of {len(trial.case.records)}"
    parts = [said[f"records_{part}"] for part in ("published", "suppressed", "held", "rejected")]
    if sum(parts) != said["records_in"]:
        yield f"{parts} are not {said['records_in']}"
    if trial.case.mode != "sliding" and said["records_published"] != len(first.rows):
        yield f"{said['records_published']} published, {len(first.rows)} rows"
    for part in ("published", "suppressed", "rejected") if trial.evidence.manifests else ():
        manifests = sum(m[f"records_{part}"] for m in trial.evidence.manifests)
        if said[f"records_{part}"] != manifests:
            yield f"{said[f'records_{part}']} {part}, {manifests} by the manifests"


@check
def suppression_limit(trial):
    """Where something is published, no more is left out than the limit allows, for whatever reason."""
    needs(trial.case.mode != "sliding" and trial.linked and trial.shown)
    start = 0
    for number, release in enumerate(trial.releases):
        if not release.published:
            if trial.case.mode == "tumbling":
                start = release.read.stop
            continue
        window = range(start, release.read.stop)
        shown = {row.source for row in release.rows}
        out = [s for s in window if trial.fates[s] != "reject" and s not in shown]
        if len(out) > math.floor(trial.limit * len(window) + 1e-9):
            by_value = sum(trial.fates[s] == "suppress" for s in out)
            yield f"release {number}: {len(out)} of {len(window)} left out, {by_value} for a value; the limit is {trial.limit}"
        start = release.read.stop


@check
def levels(trial):
    """Levels stay within the policy's bounds, and move as `window.levels` says."""
    needs(trial.shown)
    moves = trial.case.window.get("levels")
    last = None
    for number, release in enumerate(trial.shown):
        for i, level in enumerate(release.recoding):
            low, high = trial.case.bounds(i)
            if level is None or not isinstance(level, list) and not low <= level <= high:
                yield f"release {number}: {trial.case.quasi[i]} at {level}, not {low} to {high}"
        node = release.recoding
        if last and not any(isinstance(level, list) for level in last + node):
            if moves == "monotone" and any(a > b for a, b in zip(last, node)) or moves == "fixed" and last != node:
                yield f"release {number}: {node} after {last} under {moves}"
        last = node


@check
def cuts(trial):
    """A cut names the labels that occur, and one value is never published in two ways."""
    cut = [(release, i) for release in trial.shown for i, level in enumerate(release.recoding) if isinstance(level, list)]
    needs(cut)
    for release, i in cut:
        if trial.case.policy.get("render", "label") == "label" and {row.labels[i] for row in release.rows} != set(release.recoding[i]):
            yield f"{trial.case.quasi[i]}: the cut names other labels than occur"
        ways = defaultdict(set)
        for row in release.rows:
            if trial.linked and row.source is not None and isinstance(trial.fates[row.source], list):
                ways[trial.fates[row.source][i]].add(row.labels[i])
        if trial.case.policy.get("render") != "microaggregate" and any(len(labels) > 1 for labels in ways.values()):
            yield f"{trial.case.quasi[i]}: one value in two ways"


# Losses.


def own_losses(trial, release):
    """What the losses can be by the published rows: for each, by how many records in all."""
    case, quasi = trial.case, trial.case.policy["quasi_identifiers"]
    weights = [q.get("weight", 1) for q in quasi]
    glm = precision = 0.0
    for row in release.rows:
        for i, leaf in enumerate(trial.fates[row.source]):
            level, hierarchy = release.level(i, leaf, row.labels[i]), case.hierarchy(i)
            needs(level is not None)
            glm += weights[i] * hierarchy.loss(leaf, level)
            precision += weights[i] * level / hierarchy.height
    sizes = [len(rows) for rows in recount.classes(release.rows).values()]
    shown, width = len(release.rows), sum(weights)
    of = lambda cells: lambda n: (cells + (n - shown) * width) / (n * width)
    return {"glm": of(glm), "precision": of(precision), "aecs": lambda n: n / (len(sizes) * trial.k),
            "dm": lambda n: (sum(f * f for f in sizes) + (n - shown) * n) / (n * n)}


@check
def losses(trial):
    """The losses that are reported follow from the published rows and the totals."""
    needs(trial.linked and trial.shown and trial.case.policy.get("render") != "microaggregate")
    for number, release in enumerate(trial.shown):
        needs(all(row.source is not None and isinstance(trial.fates[row.source], list) for row in release.rows))
        said = release.said.get("loss", {}) or {n["name"]: n["value"] for n in release.said.get("losses", [])}
        totals = release.said
        candidates = {len(release.rows), totals["records_in"], totals["records_in"] - totals["records_rejected"],
                      len(release.rows) + totals["records_suppressed"],
                      len(release.rows) + totals["records_suppressed"] + totals.get("records_held", 0)}
        for name, loss in own_losses(trial, release).items():
            able = [loss(n) for n in candidates if n >= len(release.rows)]
            if name in said and not any(close(said[name], figure) for figure in able):
                yield f"release {number}: {name} {said[name]}, by the rows {sorted(set(able))}"


@check
def rounded(trial):
    """Figures for readers have three digits."""
    needs(trial.evidence.manifests)

    def long(value, path):
        if isinstance(value, float) and float(f"{value:.3g}") != value:
            yield path
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
            yield from long(inner, f"{path}.{key}" if isinstance(key, str) else path)

    paths = sorted({path for manifest in trial.evidence.manifests for path in long(manifest, "") if "required" not in path})
    if paths:
        yield f"more than three digits in {', '.join(paths)}"


@check
def manifest_keys(trial):
    """A manifest says nothing that is not listed here."""
    needs(trial.evidence.manifests)
    strange = {key for manifest in trial.evidence.manifests for key in manifest} - MANIFEST_KEYS
    if strange:
        yield f"unknown: {sorted(strange)}"


@check
def whole_ranges(trial):
    """Where a manifest names offsets, it names what was read as one range; no gap and no single record shows."""
    needs(trial.evidence.manifests)
    for number, release in enumerate(trial.releases):
        for part in release.said.get("offsets", release.said.get("ranges", [])):
            spans = part.get("spans") or [[part.get("first"), part.get("last")]]
            expected = [[release.read.start, release.read.stop - 1]] if len(release.read) else []
            if [list(span) for span in spans] != expected:
                yield f"release {number}: {spans[:3]}, read was {expected}"


@check
def release_ids(trial):
    """Names of releases are no function of the seed."""
    needs(trial.evidence.manifests and trial.evidence.manifests_again)
    ids, again = ({m["release_id"].split("-")[-1] for m in ms} for ms in (trial.evidence.manifests, trial.evidence.manifests_again))
    if ids & again:
        yield f"{len(ids & again)} of {len(ids)} names are the same in two runs with one seed"
    if len(ids) < len(trial.evidence.manifests):
        yield "two releases have one name"


# The same again.


@check
def same_seed(trial):
    """The same seed gives the same rows."""
    if trial.evidence.first.rows != trial.evidence.again.rows:
        yield f"{len(trial.evidence.first.rows)} and {len(trial.evidence.again.rows)} rows, not the same"


@check
def order(trial):
    """The order of rows is a function of the rows alone: it stays when the input comes in another order."""
    permuted = trial.evidence.permuted
    needs(permuted and trial.evidence.first.rows)
    shape = lambda rows: [json.dumps(row, default=str, sort_keys=True) for row in rows]
    a, b = shape(trial.evidence.first.rows), shape(permuted.rows)
    needs(sorted(a) == sorted(b))
    if a != b:
        moved = sum(x != y for x, y in zip(a, b))
        yield f"{moved} of {len(a)} rows stand elsewhere"


# What other commands say.


@check
def verify(trial):
    """`verify` says of the file what a recount of it says, in records."""
    output = trial.evidence.verify
    needs(output and trial.case.mode == "anonymize" and not trial.evidence.first.unreadable)
    failing = trial.criteria.failing(trial.releases[0].by_records)
    if (output.exit == 0) != (not failing):
        names = [f"{f.name} {f.reached:.6g}" for f in failing]
        yield f"exit {output.exit}, a recount fails {names}: {output.stderr.strip()[-200:]}"
        return
    said = json.loads(output.stdout.splitlines()[0])
    if not failing and said["records"] != len(trial.evidence.first.rows):
        yield f"{said['records']} records, {len(trial.evidence.first.rows)} in the file"


@check
def verify_by_release(trial):
    """`verify --manifest` judges release by release."""
    needs(trial.case.mode != "anonymize" and trial.shown)
    output = trial.evidence.verify
    if output is None:
        yield "`verify` takes no manifest"
        return
    failing = {f.name for release in trial.shown for f in trial.criteria.failing(release.by_records)}
    if (output.exit == 0) != (not failing):
        yield f"exit {output.exit}, a recount fails {sorted(failing)}: {output.stderr.strip()[-200:]}"


@check
def search_agrees(trial):
    """`search` finds with the same seed what `anonymize` published."""
    output, report = trial.evidence.search, trial.evidence.report
    needs(output and report and output.stdout.startswith("{"))
    said = json.loads(output.stdout.splitlines()[0])
    for key in ("recoding", "satisfies", "records_published", "records_suppressed", "records_rejected", "classes", "stop"):
        if said[key] != report[key]:
            yield f"{key}: {said[key]}, published {report[key]}"


class Node:
    """One node of the lattice, counted by itself: what satisfies, what it loses."""

    def __init__(self, trial, rows, levels, allowed):
        case = trial.case
        labelled = [Row(tuple(case.hierarchy(i).label(leaf, level) for i, (leaf, level) in enumerate(zip(leaves, levels))),
                        values, person) for leaves, values, person in rows]
        groups = recount.classes(labelled)
        if allowed:
            good = {labels for labels, group in groups.items() if not trial.criteria.failing(group)}
        else:
            good = set() if trial.criteria.failing(labelled) else set(groups)
        out = sum(len(group) for labels, group in groups.items() if labels not in good)
        self.satisfies = bool(good) and out <= allowed
        if not self.satisfies:
            return
        weights = [q.get("weight", 1) for q in case.policy["quasi_identifiers"]]
        n, width = len(rows), sum(weights)
        shown = [leaves for (leaves, _, _), row in zip(rows, labelled) if row.labels in good]
        cell = lambda of: (sum(of(i, leaf) * weights[i] for leaves in shown for i, leaf in enumerate(leaves)) + out * width) / (n * width)
        self.losses = {
            "glm": cell(lambda i, leaf: case.hierarchy(i).loss(leaf, levels[i])),
            "precision": cell(lambda i, leaf: levels[i] / case.hierarchy(i).height),
            "dm": (sum(len(g) ** 2 for l, g in groups.items() if l in good) + out * n) / n**2,
            "aecs": n / (len(good) * trial.k),
        }


def every_node(trial):
    """All nodes of a small lattice; does not apply where the definition of a satisfying node leaves room."""
    case = trial.case
    lattice = list(itertools.product(*(range(low, high + 1) for low, high in (case.bounds(i) for i in range(len(case.quasi))))))
    kinds = {kind for criterion in case.policy["privacy"] for kind in criterion}
    rows = [(leaves, {n: known(v) for n, v in record.items()}, trial.person(i))
            for i, (leaves, record) in enumerate(zip(trial.fates, case.records)) if isinstance(leaves, list)]
    needs(0 < len(lattice) * len(rows) <= TRIED)
    needs(trial.limit == 0 or len(rows) == len(case.records) and not kinds & {"t-closeness", "lkc", "min-security"})
    allowed = math.floor(trial.limit * len(rows) + 1e-9)
    return [Node(trial, rows, levels, allowed) for levels in lattice]


@check
def proven(trial):
    """Where a search says `proven`, no node of the lattice has less loss."""
    loss = trial.case.policy["loss"]
    outputs = [o for o in (trial.evidence.search, trial.evidence.optimal) if o and o.stdout.startswith("{")]
    claims = [said for said in (json.loads(o.stdout.splitlines()[0]) for o in outputs) if said["stop"] == "proven"]
    needs(claims and loss in ("glm", "dm", "precision", "aecs"))
    best = min((node.losses[loss] for node in every_node(trial) if node.satisfies), default=None)
    for said in claims:
        if not said["satisfies"]:
            if best is not None:
                yield f"{said['algorithm']}: nothing satisfies, it says; a node loses {best}"
        elif best is None or said["loss"][loss] > best + 1e-9:
            yield f"{said['algorithm']}: {loss} {said['loss'][loss]}, the best is {best}"


@check
def unmet(trial):
    """Where nothing is published although the search came to its end, nothing could be."""
    search = trial.evidence.search
    needs(search and search.stdout.startswith("{") and not trial.evidence.first.data)
    said = json.loads(search.stdout.splitlines()[0])
    needs(said["stop"] == "proven" or said["algorithm"] in ("exhaustive", "bottom-up", "optimal", "auto") and said["stop"] == "exhausted")
    if any(node.satisfies for node in every_node(trial)):
        yield f"{said['algorithm']} says that nothing satisfies; a node does"


# Microaggregation.


def blocks(trial):
    """Per quasi-identifier that is microaggregated: the rows of each block."""
    needs(trial.case.policy.get("render") == "microaggregate" and trial.linked and trial.shown)
    for release in trial.shown:
        for i, level in enumerate(release.recoding):
            hierarchy = trial.case.hierarchy(i)
            if hierarchy.measure == "category" or isinstance(level, list):
                continue
            groups = defaultdict(list)
            for row in release.rows:
                if row.source is not None and isinstance(trial.fates[row.source], list):
                    groups[hierarchy.label(trial.fates[row.source][i], level)].append(row)
            yield release, i, level, hierarchy, groups


@check
def microaggregate_top(trial):
    """A column at its top says nothing, however it is rendered."""
    for _, i, level, hierarchy, groups in blocks(trial):
        shown = {row.labels[i] for rows in groups.values() for row in rows}
        if level == hierarchy.height and shown != {hierarchy.top}:
            yield f"{trial.case.quasi[i]} is at its top and shows {sorted(shown)[:3]}"


@check
def microaggregate_blocks(trial):
    """Cells of one block of the attribute's partition show one value."""
    for _, i, level, hierarchy, groups in blocks(trial):
        ways = max((len({row.labels[i] for row in rows}) for rows in groups.values()), default=1)
        if ways > 1:
            yield f"{trial.case.quasi[i]}: one block shows {ways} values"


@check
def microaggregate_nobody(trial):
    """No cell above level 0 is the raw value of fewer than k people."""
    for _, i, level, hierarchy, groups in blocks(trial):
        if not 0 < level < hierarchy.height:
            continue
        rows = [row for group in groups.values() for row in group]
        holders = defaultdict(set)
        for row in rows:
            leaf = trial.fates[row.source][i]
            holders[hierarchy.label(leaf, 0)].add(row.person)
        few = {row.labels[i] for row in rows if 0 < len(holders.get(row.labels[i], ())) < trial.k}
        if few:
            yield f"{trial.case.quasi[i]}: {len(few)} published values belong to fewer than {trial.k} people"
