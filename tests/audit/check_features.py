"""What single features promise: all snapshots together, changelogs, tables of audiences, levels, messages, people who return."""

from collections import defaultdict
from dataclasses import replace

import recount
from hierarchies import TOP
from trial import changed, check, needs, text

# Criteria that ask of each class by itself, so that they can be asked of any group of records.
BY_CLASS = {"k-anonymity", "l-diversity", "p-sensitive", "alpha-k", "confidential"}


def failing_alone(trial, rows):
    """The figures of one group of records that fail, of the criteria that look at nothing else."""
    together = [replace(row, labels=()) for row in rows]
    for criterion in trial.case.policy["privacy"]:
        (kind, spec), = criterion.items()
        if kind in BY_CLASS and not (isinstance(spec, dict) and "over" in spec):
            yield from (figure for figure in trial.criteria.of(criterion, together, together) if not figure.holds())


@check
def snapshots_together(trial):
    """Records that all snapshots together, any two, any three, do not tell from one another satisfy the policy by themselves."""
    needs(trial.case.slides and trial.linked and len(trial.shown) > 1)
    traces, rows = defaultdict(dict), {}
    for number, release in enumerate(trial.shown):
        for row in release.rows:
            if row.source is not None:
                traces[row.source][number] = row.labels
                rows[row.source] = row
    groups = defaultdict(list)
    for source, trace in traces.items():
        groups[tuple(sorted(trace.items()))].append(rows[source])
    bad = [figure for group in groups.values() for figure in failing_alone(trial, group)]
    if bad:
        yield f"{len(bad)} of {len(groups)} groups, such as {bad[0].name} at {bad[0].reached:.6g} of {bad[0].required}"


@check
def records_stay(trial):
    """A record is in consecutive snapshots: one that left does not come again."""
    needs(trial.case.slides and trial.linked and len(trial.shown) > 2)
    gone, here = set(), set()
    for number, release in enumerate(trial.shown):
        now = {row.source for row in release.rows}
        if now & gone:
            yield f"release {number}: {len(now & gone)} records return"
        gone, here = gone | (here - now), now


@check
def changelog(trial):
    """Changes apply to the snapshot before them, and by themselves satisfy what is asked of classes."""
    needs(trial.case.mode == "changes" and trial.linked and trial.shown)
    snapshot, last = [], None
    plain = lambda row: tuple((name, text(value)) for name, value in row.items() if name != "change")
    for number, release in enumerate(trial.shown):
        said, kinds = release.said.get("snapshot") or {}, {row["change"] for row in release.sent}
        whole = kinds == {"="}
        if not (whole or kinds <= {"+", "-"}) or said.get("kind") != ("whole" if whole else "changes"):
            yield f"release {number}: rows of the kinds {sorted(kinds)} in {said.get('kind')}"
        if not whole and said.get("base") != last:
            yield f"release {number}: changes of another release than the last"
        left = [plain(row) for row in release.sent if row["change"] == "-"]
        before = [plain(row) for row in snapshot]
        if any(left.count(row) > before.count(row) for row in set(left)):
            yield f"release {number}: a row leaves that is not there"
        snapshot, last = changed(snapshot, release.sent), release.said["release_id"]
        if said.get("rows") != len(snapshot):
            yield f"release {number}: {len(snapshot)} rows afterwards, {said.get('rows')} said"
        sent = sent_rows(trial, release)
        for group in recount.classes(sent).values():
            for figure in failing_alone(trial, group):
                yield f"release {number}: {figure.name} reaches {figure.reached:.6g} in the rows that come or leave"
        smallest = min(recount.people(rows) for rows in recount.classes(sent).values())
        if release.said["k_achieved"] != smallest:
            yield f"release {number}: k_achieved {release.said['k_achieved']}, counted {smallest}"


def sent_rows(trial, release):
    """The rows of a changelog: those that come and those that leave are different classes."""
    rows = trial.counted(release.sent)
    return [replace(row, labels=row.labels + (sent["change"],)) for row, sent in zip(rows, release.sent)]


def by_release(trial, table):
    """The rows of an audience's table with the release that they are of."""
    at = 0
    named = {release.said["release_id"]: release for release in trial.shown}
    for said in table.manifests:
        rows = table.rows[at:at + said["rows"]]
        at += said["rows"]
        if rows:
            yield said, rows, named.get(said["release_id"])


@check
def audiences(trial):
    """A table of an audience has the rows of its release, no value finer than its levels, no field that it must not see."""
    needs(trial.case.audiences and trial.shown)
    case = trial.case
    for audience, table in zip(case.audiences, trial.evidence.tables):
        name = audience["name"]
        expected = [field for field in case.published if field not in audience["drop"]]
        for said, rows, release in by_release(trial, table):
            if release is None:
                yield f"{name}: a release that nobody else has"
                continue
            if any(list(row) != expected for row in rows):
                yield f"{name}: other fields than {expected}"
                continue
            own, theirs = ({trial.source_of(row): row for row in some} for some in (release.published, rows))
            if set(own) != set(theirs):
                yield f"{name}: other records than its release has"
            for source, row in theirs.items():
                if source in own:
                    yield from (f"{name}: {wrong}" for wrong in raised(trial, release, audience, source, own[source], row))
            for dropped in audience["drop"]:
                if dropped in str(said):
                    yield f"{name}: its manifest names {dropped}"




def raised(trial, release, audience, source, own, row):
    """What is wrong with a row of an audience's table."""
    case, leaves = trial.case, trial.fates[source]
    for i, name in enumerate(case.quasi if isinstance(leaves, list) else []):
        least, hierarchy, leaf = audience["min_levels"].get(name, 0), case.hierarchy(i), leaves[i]
        levels = range(least, hierarchy.height + 1)
        if text(row[name]) not in {hierarchy.label(leaf, level) for level in levels}:
            yield f"record {source}, {name}: {row[name]!r} is no label from level {least} on"
        level = release.recoding[i]
        if isinstance(level, int) and text(row[name]) != hierarchy.label(leaf, max(level, least)):
            yield f"record {source}, {name}: {row[name]!r}, not that of level {max(level, least)}"
    for name in case.sensitive + case.policy.get("keep", []):
        if name not in audience["drop"] and text(own[name]) != text(row[name]):
            yield f"record {source}, {name}: {row[name]!r} in the table"


@check
def audiences_together(trial):
    """Whoever has all tables, and knows which rows are of one record, finds no group that breaks the policy (T32)."""
    needs(trial.case.audiences and trial.shown)
    found = defaultdict(list)
    for number, table in enumerate(trial.evidence.tables):
        for said, rows, release in by_release(trial, table):
            for row in trial.counted(rows) if release else []:
                found[said["release_id"], row.source].append((number, row.labels))
    groups = defaultdict(list)
    for release in trial.shown:
        for row in release.rows:
            seen = tuple(found.get((release.said["release_id"], row.source), ()))
            if seen:
                groups[release.said["release_id"], seen].append(row)
    bad = [figure for group in groups.values() for figure in failing_alone(trial, group)]
    if bad:
        yield f"{len(bad)} groups of {len(groups)}, such as {bad[0].name} at {bad[0].reached:.6g} of {bad[0].required}"


@check
def audience_criteria(trial):
    """Each table by itself satisfies every criterion."""
    needs(trial.case.audiences and trial.shown)
    for audience, table in zip(trial.case.audiences, trial.evidence.tables):
        for said, rows, release in by_release(trial, table):
            own = {row.source: row for row in release.rows} if release else {}
            # Fields that are dropped are counted all the same.
            counted = [replace(row, values=own[row.source].values if row.source in own else row.values, counted={})
                       for row in trial.counted(rows)]
            for figure in trial.criteria.failing(counted):
                yield f"{audience['name']}: {figure.name} reaches {figure.reached:.6g}, {figure.required} required"


@check
def row_levels(trial):
    """The level beside a label is the coarsest one that has the label, so it follows from the label."""
    needs(trial.case.policy.get("row_levels") and trial.linked and trial.shown)
    case = trial.case
    for release in trial.shown:
        levels = defaultdict(set)
        for row, published in zip(release.rows, release.published):
            for i, name in enumerate(case.quasi):
                levels[i, row.labels[i]].add(text(published[f"{name}_level"]))
                leaf = trial.fates[row.source][i] if row.source is not None and isinstance(trial.fates[row.source], list) else TOP
                if leaf is TOP:
                    continue
                hierarchy = case.hierarchy(i)
                fitting = [l for l in range(hierarchy.height + 1) if hierarchy.label(leaf, l) == row.labels[i]]
                if fitting and text(published[f"{name}_level"]) != str(max(fitting)):
                    yield f"record {row.source}, {name}: level {published[f'{name}_level']}, the label's is {max(fitting)}"
        if any(len(some) > 1 for some in levels.values()):
            yield "rows that read alike have different levels"


@check
def messages(trial):
    """A message of several records has one outcome, and what is counted is messages."""
    needs(trial.case.groups and trial.releases)
    case, said = trial.case, trial.releases[0].said
    shown = {row.source for release in trial.shown for row in release.rows}
    published = sum(any(number in shown for number in group) for group in case.groups)
    rejected = sum(trial.fates[group[0]] == "reject" for group in case.groups)
    expected = {"records_in": len(case.groups), "records_published": published, "records_rejected": rejected,
                "records_suppressed": len(case.groups) - published - rejected}
    for account in (said, trial.evidence.journal[0]):
        for name, count in expected.items():
            if account.get(name, count) != count:
                yield f"{name} {account[name]}, counted {count}"
    if said["rows"] != len(trial.evidence.first.rows):
        yield f"{said['rows']} rows said, {len(trial.evidence.first.rows)} in the file"
    finished = [offset for part in trial.evidence.journal[0]["finished"] for a, b in part["spans"] for offset in range(a, b + 1)]
    if finished != list(range(len(case.groups))):
        yield f"{len(finished)} messages finished of {len(case.groups)}"


@check
def returning(trial):
    """Who was in one of the last releases keeps so many candidates in the intersection of all their classes."""
    needs("sequential" in trial.case.policy and trial.linked and len(trial.shown) > 1)
    asked = trial.case.policy["sequential"]
    past = []
    for number, release in enumerate(trial.shown):
        now = {}
        for rows in recount.classes(release.rows).values():
            values = {row.form(asked["field"]) for row in rows} - {None}
            for row in rows:
                now[row.person] = now.get(row.person, values) & values
        few = 0
        for person, values in now.items():
            earlier = [seen[person] for seen in past if person in seen]
            few += bool(earlier) and len(values.intersection(*earlier)) < asked["candidates"]
        if few:
            yield f"release {number}: {few} people have fewer than {asked['candidates']} candidates left"
        past = (past + [now])[-(asked["releases"] - 1):] if asked["releases"] > 1 else []
