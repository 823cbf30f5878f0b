"""What came out at all: rows, their fields, their labels and values."""

from collections import Counter
from decimal import Decimal

import hierarchies
import recount
from cases import BADGE
from trial import check, known, needs, text


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
    # In nested rows the fields of one object stand together.
    order = list if trial.case.shape.ordered else sorted
    expected = order(trial.case.published)
    if trial.evidence.first.columns is not None and order(trial.evidence.first.columns) != expected:
        yield f"columns {trial.evidence.first.columns}, not {expected}"
    for row in trial.evidence.first.rows:
        if order(row) != expected:
            yield f"a row has the fields {list(row)}"
            break


@check
def canaries(trial):
    """Nothing that leaves holds a value of a field that is not published."""
    evidence = trial.evidence
    leaves = {"output": evidence.first.data.decode(errors="replace"), "figures": evidence.figures,
              "stdout": evidence.first.stdout, "stderr": evidence.first.stderr}
    leaves |= {f"table {i}": table.data.decode(errors="replace") for i, table in enumerate(evidence.tables)}
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
        if trial.case.slides:
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
def nobody_without_a_name(trial):
    """A record whose subject is null or blank is about nobody who can be counted: it is not published."""
    needs("subject" in trial.case.policy and trial.linked and trial.shown)
    for release in trial.shown:
        for row in release.rows:
            if row.source is not None and row.person is None:
                yield f"record {row.source} has no subject and is published"


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
    return row.labels + tuple(row.form(name) for name in case.sensitive)


def key_of(trial, release, source):
    record = trial.case.records[source]
    labels = tuple(next(iter(release.allowed(i, leaf))) for i, leaf in enumerate(trial.fates[source]))
    return labels + tuple(recount.canonical(known(record[name])) for name in trial.case.sensitive)


@check
def values(trial):
    """Sensitive and kept values are those of the record, as they are counted."""
    yield from compared(trial, lambda a, b: recount.canonical(a) == recount.canonical(known(b)))


@check
def values_as_written(trial):
    """Sensitive and kept values are published as written; numbers by value."""
    yield from compared(trial, same)


def same(out, given):
    if isinstance(given, list):
        return recount.canonical(out) == recount.canonical(given)
    if isinstance(given, Decimal) and isinstance(out, Decimal):
        return given == out
    if isinstance(given, Decimal):
        return out == hierarchies.plain(given)
    given = known(given)
    return out == given or isinstance(out, str) and out == text(given)


def compared(trial, alike):
    needs(trial.linked and trial.shown)
    for release in trial.shown:
        names = [n for n in trial.case.sensitive + trial.case.policy.get("keep", []) if not release.withheld(n)]
        for row in release.rows:
            record = None if row.source is None else trial.case.records[row.source]
            for name in names if isinstance(record, dict) else []:
                if not alike(row.values[name], record[name]):
                    yield f"record {row.source}, {name}: {row.values[name]!r}, not {record[name]!r}"


@check
def kept_fields(trial):
    """A kept field that is unique is left empty, unless the policy says that somebody has looked at it."""
    needs(BADGE in trial.case.policy.get("keep", []) and trial.shown)
    for number, release in enumerate(trial.shown):
        told = sum(row.form(BADGE) is not None for row in release.rows)
        if told:
            yield f"release {number}: {told} of {len(release.rows)} rows show a unique value"
