"""A case and its evidence as the checks see them: releases of rows, each with the people and the places it is about."""

from functools import cached_property

import formats
import recount
from cases import LINK
from hierarchies import TOP
from recount import Row

CHECKS = {}


def check(function):
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


class DoesNotApply(Exception):
    pass


def needs(condition):
    if not condition:
        raise DoesNotApply


class Mixed(list):
    """The levels that occur where every record has its own: local recoding."""


def as_reported(attribute):
    """A quasi-identifier of a manifest's recoding as a report writes it."""
    if attribute.get("finest") is not None:
        return {"finest": attribute["finest"], "coarsest": attribute["level"]}
    return attribute["level"] if attribute.get("cut") is None else attribute["cut"]


def mixed(level):
    return Mixed(range(level["finest"], level["coarsest"] + 1)) if isinstance(level, dict) else level


class Release:
    """The rows of one release, what is said of it, and the records that were read for it."""

    def __init__(self, trial, rows, said, read, sent=None):
        self.trial, self.published, self.said, self.read = trial, rows, said, read
        # Of a changelog the rows that were sent; `published` is the snapshot that a reader then has.
        self.sent = rows if sent is None else sent
        recoding = said.get("recoding", {})
        if isinstance(recoding, list):
            recoding = {a["attribute"]: as_reported(a) for a in recoding}
        self.recoding = [mixed(recoding.get(name)) for name in trial.case.quasi]
        if trial.case.mode == "changes":
            # A manifest of changes is about the rows that are sent: others of the snapshot can have any level.
            levels = enumerate(self.recoding)
            self.recoding = [Mixed(range(b[0], b[1] + 1)) if isinstance(level, list) else level
                             for (i, level) in levels for b in [trial.case.bounds(i)]]

    @cached_property
    def rows(self):
        """The rows as they are counted. Without a link every row is somebody else."""
        return self.trial.counted(self.published)

    @cached_property
    def by_records(self):
        """The same rows counted as a reader counts them."""
        shown = set(self.trial.case.published)
        values = lambda row: {name: value for name, value in row.values.items() if name in shown}
        return [Row(row.labels, values(row), i, row.source) for i, row in enumerate(self.rows)]

    def withheld(self, name):
        """True if a kept field that nobody has looked at is left empty throughout."""
        unseen = name not in self.trial.case.sensitive and name != LINK
        return unseen and all(row.form(name) is None for row in self.rows)

    def allowed(self, i, leaf):
        """The texts under which the release may publish a leaf of quasi-identifier i; None if microaggregated."""
        case, hierarchy = self.trial.case, self.trial.case.hierarchy(i)
        render, level = case.policy.get("render", "label"), self.recoding[i]
        if render == "microaggregate" and hierarchy.measure != "category":
            return None
        shown = hierarchy.interval if render == "interval" and hierarchy.measure in ("number", "date") else hierarchy.label
        if not isinstance(level, list):
            return {shown(leaf, level)}
        if isinstance(level, Mixed):
            return {shown(leaf, l) for l in level}
        low, high = case.bounds(i)
        levels = [l for l in range(low, high + 1) if leaf is TOP or hierarchy.label(leaf, l) in level]
        return {shown(leaf, l) for l in levels}

    def level(self, i, leaf, shown):
        """The level at which a leaf is published."""
        level, hierarchy = self.recoding[i], self.trial.case.hierarchy(i)
        if not isinstance(level, list):
            return level
        if isinstance(level, Mixed) and leaf is TOP:
            return self.trial.case.bounds(i)[1]
        # By a cut a value can have any level; a class of local recoding has the finest one that is permitted and fits.
        low = self.trial.case.bounds(i)[0] if isinstance(level, Mixed) else 0
        fitting = [l for l in range(low, hierarchy.height + 1) if shown in (hierarchy.label(leaf, l), hierarchy.interval(leaf, l))]
        return fitting[0] if fitting else None

    def coarsest_level(self, i, leaf, shown):
        """The coarsest level at which a cut can show a leaf so: a label can stand on several levels of a ragged tree."""
        if not isinstance(self.recoding[i], list) or isinstance(self.recoding[i], Mixed):
            return self.level(i, leaf, shown)
        hierarchy = self.trial.case.hierarchy(i)
        return max(l for l in range(hierarchy.height + 1) if shown in (hierarchy.label(leaf, l), hierarchy.interval(leaf, l)))


class Trial:
    """A case, its evidence, and what follows from both."""

    def __init__(self, evidence):
        self.evidence, self.case = evidence, evidence.case
        self.criteria = recount.Criteria(self.case.policy, self.case.files)
        self.linked = LINK in self.case.policy.get("keep", [])

    @cached_property
    def fates(self):
        """What must become of each record before any release: its places in the hierarchies, `suppress` or `reject`."""
        fates = [self.fate(record) for record in self.case.records]
        for group in self.case.groups:
            # One element that cannot be read turns the whole message away.
            if any(fates[number] == "reject" for number in group):
                for number in group:
                    fates[number] = "reject"
        return fates

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

    def counted(self, published):
        """Rows as they are counted."""
        case, rows = self.case, []
        for i, row in enumerate(published):
            source = self.source_of(row)
            person = i if source is None else self.person(source)
            labels = tuple(text(row.get(name)) for name in case.quasi)
            values = {n: row.get(n) for n in case.sensitive + case.policy.get("keep", [])}
            if source is not None:
                # What conditions of sentences read of the record and nobody publishes.
                values |= {name: known(case.records[source][name]) for name in case.private}
            rows.append(Row(labels, values, person, source))
        return rows

    def person(self, source):
        record = self.case.records[source]
        return recount.canonical(record["person"]) if "subject" in self.case.policy and isinstance(record, dict) else source

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
        releases, at, snapshot = [], 0, []
        for said in evidence.manifests:
            sent = rows[at:at + said["rows"]]
            at += said["rows"]
            snapshot = changed(snapshot, sent) if self.case.mode == "changes" else sent
            releases.append(Release(self, snapshot, said, self.window(said["window_id"]), sent))
        return releases

    def window(self, number):
        """The records that are read for a window: all are of one length, but the last."""
        window, total = self.case.window, len(self.case.records)
        if self.case.groups:
            return range(total)
        length = window["sliding"]["slide"] if "sliding" in window else window["tumbling"]["max_records"]
        return range(min(number * length, total), min((number + 1) * length, total))

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
        sizes = [c["k-anonymity"] for c in privacy if isinstance(c.get("k-anonymity"), int)] + [c["alpha-k"]["k"] for c in privacy if "alpha-k" in c]
        return max(sizes, default=1)


def changed(snapshot, sent):
    """The snapshot after a release of a changelog; a row that leaves and is not there stays as it is, to be found."""
    plain = lambda row: {name: value for name, value in row.items() if name != "change"}
    if any(row["change"] == "=" for row in sent):
        return [plain(row) for row in sent]
    snapshot = list(snapshot)
    for row in sent:
        if row["change"] == "-" and plain(row) in snapshot:
            snapshot.remove(plain(row))
        elif row["change"] == "+":
            snapshot.append(plain(row))
    return snapshot


def text(value):
    return formats.csv_text(value)


def known(value):
    return None if value is formats.MISSING else value


def close(said, counted):
    """Equal to three digits."""
    return said is not None and abs(said - counted) <= 0.006 * abs(counted) + 1e-9
