"""What the policy asks of the rows: criteria, held records, snapshots, limits, levels, renderings."""

import math
from collections import defaultdict

import recount
from check_rows import key_of
from hierarchies import TOP
from trial import Mixed, check, close, needs


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
    needs(trial.case.mode != "changes")  # They are of the rows that are sent: see `changelog`.
    for release in trial.shown:
        for said, figure in zip(release.said.get("criteria", []), trial.criteria.figures(release.rows)):
            if said["criterion"] != figure.name:
                yield f"{said['criterion']} where {figure.name} stands in the policy"
            elif not figure.vague and not close(said["achieved"], figure.reached):
                yield f"{figure.name}: {said['achieved']}, counted {figure.reached}"
        sizes = [recount.people(rows) for rows in recount.classes(release.rows).values()]
        if release.said["k_achieved"] != min(sizes):
            yield f"k_achieved {release.said['k_achieved']}, counted {min(sizes)}"
        if release.said["classes"] != len(sizes):
            yield f"classes {release.said['classes']}, counted {len(sizes)}"


@check
def held_join(trial):
    """Records that were held join only classes that satisfy the policy without them."""
    needs(trial.case.mode == "hold" and trial.linked and trial.shown)
    start = 0
    for release in trial.shown:  # What a window read that published nothing starts over with the next.
        fresh = [row for row in release.rows if row.source is not None and row.source >= start]
        joined = {row.labels for row in release.rows} - {row.labels for row in fresh}
        if joined:
            yield f"{len(joined)} classes consist of held records alone"
        touched = {row.labels for row in release.rows if row.source is not None and row.source < start}
        rest = [row for row in fresh if row.labels in touched]
        for figure in trial.criteria.figures(rest, fresh):
            if not figure.holds() and not figure.name.startswith(("lkc", "min-security")) and " over " not in figure.name:
                yield f"{figure.name} reaches {figure.reached:.6g} without those held"
        start = release.read.stop


def neighbours(trial):
    """Each two snapshots that follow one another, of full-domain recodings."""
    needs(trial.case.slides and trial.linked and len(trial.shown) > 1)
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
                labels = tuple(trial.case.hierarchy(i).label(leaf, join[i]) for i, leaf in enumerate(leaves))
                groups[labels].add(trial.person(source))
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


@check
def suppression_limit(trial):
    """Where something is published, no more is left out than the limit allows, for whatever reason."""
    needs("sequential" not in trial.case.policy)  # Who would be found again is left out whatever the limit.
    needs(not trial.case.slides and trial.linked and trial.shown)
    start = 0
    for number, release in enumerate(trial.shown):
        # Where records wait, those of a window that published nothing start over with the next.
        start = start if trial.case.mode == "hold" else release.read.start
        window = [s for s in range(start, release.read.stop) if trial.fates[s] != "reject"]
        shown = {row.source for row in release.rows}
        out = [s for s in window if s not in shown]
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
            known = [level] if isinstance(level, int) else level if isinstance(level, Mixed) else []
            if level is None or not all(low <= one <= high for one in known):
                yield f"release {number}: {trial.case.quasi[i]} at {level}, not {low} to {high}"
        node = release.recoding
        if last and not any(isinstance(level, list) for level in last + node):
            finer = lambda i: not trial.case.refines(i, last[i], node[i])
            if moves == "monotone" and any(map(finer, range(len(node)))) or moves == "fixed" and last != node:
                yield f"release {number}: {node} after {last} under {moves}"
        last = node


@check
def cuts(trial):
    """A cut names the labels that occur, and one value is never published in two ways."""
    cut = [(release, i) for release in trial.shown for i, level in enumerate(release.recoding)
           if isinstance(level, list) and not isinstance(level, Mixed)]
    needs(cut and trial.case.mode != "changes")
    for release, i in cut:
        by_label = trial.case.policy.get("render", "label") == "label"
        if by_label and {row.labels[i] for row in release.rows} != set(release.recoding[i]):
            yield f"{trial.case.quasi[i]}: the cut names other labels than occur"
        ways = defaultdict(set)
        for row in release.rows:
            if trial.linked and row.source is not None and isinstance(trial.fates[row.source], list):
                ways[trial.fates[row.source][i]].add(row.labels[i])
        if trial.case.policy.get("render") != "microaggregate" and any(len(labels) > 1 for labels in ways.values()):
            yield f"{trial.case.quasi[i]}: one value in two ways"


@check
def local_regions(trial):
    """Local recoding: equal records of a release are published alike, in as narrow labels as their class allows."""
    needs(trial.case.policy.get("recoding") == "local" and trial.linked and trial.shown)
    # Records keep the labels that they came with, so equal ones of two slides can differ, and labels stay when others leave.
    needs(not trial.case.slides)
    needs(trial.case.policy.get("render", "label") == "label")
    for number, release in enumerate(trial.shown):
        ways, members = defaultdict(set), defaultdict(list)
        for row in release.rows:
            if row.source is not None and isinstance(trial.fates[row.source], list):
                leaves = tuple(trial.fates[row.source])
                ways[leaves].add(row.labels)
                members[row.labels].append(leaves)
        if any(len(labels) > 1 for labels in ways.values()):
            yield f"release {number}: equal records are published in different ways"
        for labels, tuples in members.items():
            for i, label in enumerate(labels):
                hierarchy, (low, _) = trial.case.hierarchy(i), trial.case.bounds(i)
                leaves = {leaves[i] for leaves in tuples}
                if TOP in leaves:
                    continue
                narrow = next(l for l in range(low, hierarchy.height + 1) if len({hierarchy.label(leaf, l) for leaf in leaves}) == 1)
                if label != hierarchy.label(next(iter(leaves)), narrow):
                    yield f"release {number}, {trial.case.quasi[i]}: {label!r} is wider than its class"


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
    """A cell at its top says nothing, however the column is rendered."""
    for _, i, level, hierarchy, groups in blocks(trial):
        shown = {row.labels[i] for row in groups[hierarchy.top]} - {hierarchy.top}
        if shown:
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
