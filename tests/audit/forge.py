"""Forged evidence: for every check one lie or more that it must see."""

import copy
import json
from collections import defaultdict

import judge
from cases import BADGE, LINK
from hierarchies import TOP
from judge import check_commands, check_privacy

FORGERIES = defaultdict(list)
# The snapshots of a changelog are put together from what was sent, so only these forgeries reach them.
OF_CHANGES = {"snapshots-together", "changelog", "exit-code", "canaries", "manifest-keys", "rounded"}


def forges(name):
    def register(function):
        FORGERIES[name].append(function)
        return function

    return register


def controls(evidence, found):
    """Which checks see a forgery of this evidence: name -> seen. Those that found something anyway are able to."""
    seen = {}
    for name, problems in found.items():
        if problems:
            seen[name] = True
        elif name in FORGERIES and (evidence.case.mode != "changes" or name in OF_CHANGES):
            answers = [answer for answer in (saw(name, forge, evidence) for forge in FORGERIES[name]) if answer is not None]
            if answers:
                seen[name] = all(answers)
    return seen


def saw(name, forge, evidence):
    """Whether the check sees the forgery; None where the case gives nothing to forge."""
    forged = copy.deepcopy(evidence)
    forged.case.__dict__.pop("built", None)
    trial = judge.Trial(forged)
    if forge(forged, trial) is False:
        return None
    try:
        return bool(list(judge.CHECKS[name](judge.Trial(forged))))
    except judge.DoesNotApply:
        return False


def drop(evidence, trial, release, positions):
    """Takes rows out of a release, and lets its manifest say so."""
    if trial.case.mode == "changes":
        return take_back(evidence, trial, release, positions)
    gone = {id(release.published[position]) for position in positions}
    evidence.first.rows = [row for row in evidence.first.rows if id(row) not in gone]
    if evidence.manifests:
        evidence.manifests[trial.releases.index(release)]["rows"] -= len(gone)


def take_back(evidence, trial, release, positions):
    """The same of a changelog: the release sends the rows that stay as a whole snapshot."""
    stay = [row for i, row in enumerate(release.published) if i not in set(positions)]
    whole = [{name: "=" if name == "change" else row.get(name) for name in trial.case.published} for row in stay]
    at = sum(len(earlier.sent) for earlier in trial.releases[:trial.releases.index(release)])
    evidence.first.rows[at:at + len(release.sent)] = whole
    said = evidence.manifests[trial.releases.index(release)]
    said["rows"], said["snapshot"] = len(whole), {"kind": "whole", "rows": len(whole)}


@forges("exit-code")
def breaks_down(evidence, trial):
    evidence.first.exit = 3


@forges("gate-and-search-agree")
def refused(evidence, trial):
    evidence.first.stderr += "the gate refused the release: k-anonymity is not met: a class of 1 reaches 1"


@forges("columns")
def another_field(evidence, trial):
    if not evidence.first.rows:
        return False
    evidence.first.rows[-1]["secret"] = "x"


@forges("canaries")
def in_the_log(evidence, trial):
    secrets = [record["secret"] for record in evidence.case.records if isinstance(record, dict)]
    if not secrets:
        return False
    evidence.first.stderr += secrets[-1]


@forges("canaries")
def in_the_figures(evidence, trial):
    evidence.figures += "Subj-17"


@forges("links")
def twice(evidence, trial):
    release = max(trial.shown, key=lambda r: len(r.published))
    if len(release.published) < 2:
        return False
    release.published[0].update(release.published[1])


@forges("links")
def from_nowhere(evidence, trial):
    evidence.first.rows[0][LINK] = "r999999"


@forges("nobody-without-a-name")
def unnamed(evidence, trial):
    evidence.case.records[trial.shown[0].rows[0].source]["person"] = "\u00ad "


@forges("labels")
def swapped_labels(evidence, trial):
    for release in trial.shown:
        for i, name in enumerate(trial.case.quasi):
            by_label = {}
            for position, row in enumerate(release.rows):
                by_label.setdefault(row.labels[i], position)
            exact = not isinstance(release.recoding[i], list) and release.allowed(i, TOP) is not None
            if exact and len(by_label) > 1:
                a, b = (release.published[position] for position in list(by_label.values())[:2])
                a[name], b[name] = b[name], a[name]
                return None
    return False


@forges("labels")
@forges("labels-unlinked")
def raw_label(evidence, trial):
    release = trial.shown[0]
    columns = [i for i in range(len(trial.case.quasi)) if release.allowed(i, TOP) is not None]
    if not columns:
        return False
    release.published[0][trial.case.quasi[columns[0]]] = "not a label"


@forges("values")
def another_value(evidence, trial):
    if not trial.case.sensitive:
        return False
    evidence.first.rows[0][trial.case.sensitive[0]] = "something else"


@forges("values-as-written")
def another_spelling(evidence, trial):
    row = evidence.first.rows[0]
    row[LINK] += ""
    name = next((n for n in trial.case.sensitive if isinstance(row[n], str)), None)
    if name is None:
        return False
    row[name] += " "


@forges("kept-fields")
def shown_badges(evidence, trial):
    for i, row in enumerate(evidence.first.rows):
        row[BADGE] = f"b{i}"


@forges("criteria")
def a_class_of_one(evidence, trial):
    privacy = trial.case.policy["privacy"]
    if trial.k < 2 or not any("k-anonymity" in c or "alpha-k" in c for c in privacy):
        return False
    release = trial.shown[-1]
    labels = release.rows[0].labels
    drop(evidence, trial, release, [i for i, row in enumerate(release.rows) if row.labels == labels][1:])


@forges("criteria")
@forges("people-unlinked")
def one_person(evidence, trial):
    if trial.k < 2 or "subject" not in trial.case.policy:
        return False
    for record in evidence.case.records:
        if isinstance(record, dict):
            record["person"] = "one and the same"


@forges("criteria")
def one_value(evidence, trial):
    privacy = trial.case.policy["privacy"]
    fields = {c[kind]["field"] for c in privacy for kind in ("l-diversity", "p-sensitive") if kind in c}
    if not fields:
        return False
    for row in evidence.first.rows:
        row.update(dict.fromkeys(fields, "the same"))


@forges("figures")
def better_k(evidence, trial):
    trial.shown[0].said["k_achieved"] += 1


@forges("figures")
def better_figure(evidence, trial):
    certain = {figure.name for figure in trial.criteria.figures(trial.shown[0].rows) if not figure.vague}
    said = [c for c in trial.shown[0].said["criteria"] if c["criterion"] in certain]
    if not said:
        return False
    said[0]["achieved"] = said[0]["achieved"] * 2 + 1


@forges("held-join")
def held_alone(evidence, trial):
    start = 0
    for release in trial.shown:
        held = {row.labels for row in release.rows if row.source < start}
        fresh = [i for i, row in enumerate(release.rows) if row.source >= start and row.labels in held]
        if fresh:
            drop(evidence, trial, release, fresh)
            return None
        start = release.read.stop
    return False


@forges("sliding-differences")
def one_leaves(evidence, trial):
    earlier, later = trial.shown[-2:]
    if trial.k < 2 or any(isinstance(level, list) for level in earlier.recoding + later.recoding):
        return False
    before, after = {row.source for row in earlier.rows}, {row.source for row in later.rows}
    if before - after or not before & after:
        return False
    drop(evidence, trial, later, [next(i for i, row in enumerate(later.rows) if row.source in before)])


@forges("sliding-stayers")
def crossed(evidence, trial):
    earlier, later = trial.shown[-2:]
    if trial.k < 2 or len(trial.case.quasi) < 2 or any(isinstance(level, list) for level in earlier.recoding + later.recoding):
        return False
    stay = {row.source for row in earlier.rows} & {row.source for row in later.rows}
    if not stay:
        return False
    for release, levels in ((earlier, (0, 1)), (later, (1, 0))):
        for attribute, level in zip(release.said["recoding"], levels):
            attribute["level"] = level
    row = next(row for i, row in enumerate(later.published) if later.rows[i].source in stay)
    row[trial.case.quasi[0]] = "alone"


@forges("four-counts")
def one_more_suppressed(evidence, trial):
    (evidence.report or (evidence.journal or evidence.manifests)[-1])["records_suppressed"] += 1


@forges("counts")
def one_more_read(evidence, trial):
    trial.releases[-1].said["records_in"] += 1


@forges("journal")
def finished_twice(evidence, trial):
    entries = [entry for entry in evidence.journal if entry["finished"]]
    if not entries:
        return False
    entries[0]["finished"].append(entries[0]["finished"][0])


@forges("counts")
def a_row_is_missing(evidence, trial):
    if not evidence.first.rows:
        return False
    evidence.first.rows.pop()


@forges("summary")
def other_total(evidence, trial):
    stream = "stderr" if trial.case.stdio else "stdout"
    setattr(evidence.first, stream, getattr(evidence.first, stream).replace('"records_in":', '"records_in":1'))


@forges("suppression-limit")
def more_left_out(evidence, trial):
    release = trial.shown[0]
    most = int(trial.limit * release.read.stop) + 1
    if most >= len(release.published):
        return False
    drop(evidence, trial, release, range(most))


@forges("levels")
def too_coarse(evidence, trial):
    recoding = trial.shown[0].said["recoding"]
    if isinstance(recoding, dict):
        recoding[trial.case.quasi[0]] = 99
    else:
        recoding[0] = {"attribute": trial.case.quasi[0], "level": 99}


@forges("cuts")
def absent_label(evidence, trial):
    if trial.case.policy.get("render", "label") != "label":
        return False
    for release in trial.shown:
        for level in release.recoding:
            if isinstance(level, list):
                level.append("a label that nobody has")
                return None


@forges("local-regions")
def told_apart(evidence, trial):
    """Equal records in two ways: one row of a class shows another class's labels."""
    for release in trial.shown:
        seen = {}
        for position, row in enumerate(release.rows):
            if row.source is None or not isinstance(trial.fates[row.source], list):
                continue
            leaves = tuple(trial.fates[row.source])
            others = [other.labels for other in release.rows if other.labels != row.labels]
            if leaves in seen and others:
                release.published[position].update(zip(trial.case.quasi, others[0]))
                return None
            seen[leaves] = position
    return False


@forges("losses")
def better_loss(evidence, trial):
    said = trial.shown[0].said
    if "loss" in said:
        said["loss"]["glm"] += 2
    else:
        said["losses"][0]["value"] += 2


@forges("rounded")
def seventeen_digits(evidence, trial):
    evidence.manifests[0]["losses"] = [{"name": "glm", "value": 1 / 3}]


@forges("manifest-keys")
def another_key(evidence, trial):
    evidence.manifests[0]["spans"] = [1]


@forges("whole-ranges")
def a_gap(evidence, trial):
    evidence.manifests[0]["offsets"] = [{"partition": 0, "spans": [[0, 1], [3, trial.releases[0].read.stop - 1]]}]
    evidence.manifests[0].pop("ranges", None)


@forges("release-ids")
def by_the_seed(evidence, trial):
    evidence.manifests_again = evidence.manifests


@forges("same-seed")
@forges("order")
def reversed_rows(evidence, trial):
    rows = evidence.first.rows[::-1]
    if rows == evidence.first.rows:
        return False
    evidence.first.rows = rows


@forges("verify")
@forges("verify-by-release")
def another_verdict(evidence, trial):
    evidence.verify.exit = 1 - evidence.verify.exit


@forges("search-agrees")
def another_answer(evidence, trial):
    evidence.search.stdout = evidence.search.stdout.replace('"records_published":', '"records_published":1')


@forges("proven")
def a_worse_node(evidence, trial):
    said, loss = json.loads(evidence.optimal.stdout.splitlines()[0]), trial.case.policy["loss"]
    nodes = check_commands.every_node(trial)
    best = min((node.losses[loss] for node in nodes.values() if node.satisfies), default=0)
    worse = [levels for levels, node in nodes.items() if not node.satisfies or node.losses[loss] > best + 1e-9]
    if not worse or not said["satisfies"]:
        return False
    evidence.optimal.stdout = json.dumps(said | {"recoding": dict(zip(trial.case.quasi, worse[0])), "stop": "proven"})


@forges("proven")
def nothing_satisfies(evidence, trial):
    said = json.loads(evidence.optimal.stdout.splitlines()[0])
    if not said["satisfies"]:
        return False
    evidence.optimal.stdout = json.dumps(said | {"satisfies": False, "stop": "proven"})


@forges("unmet")
def an_easy_policy(evidence, trial):
    # With one person per record and k = 1 every node satisfies.
    evidence.case.policy.pop("subject", None)
    evidence.case.policy["privacy"] = [{"k-anonymity": 1}]


@forges("microaggregate-top")
def a_mean_at_the_top(evidence, trial):
    for release, i, level, hierarchy, groups in check_privacy.blocks(trial):
        if groups[hierarchy.top]:
            release.published[release.rows.index(groups[hierarchy.top][0])][trial.case.quasi[i]] = "17"
            return None
    return False


@forges("microaggregate-blocks")
def means_of_classes(evidence, trial):
    for release, i, level, hierarchy, groups in check_privacy.blocks(trial):
        rows = next((rows for rows in groups.values() if len(rows) > 1), None)
        if rows:
            release.published[release.rows.index(rows[0])][trial.case.quasi[i]] = "another mean"
            return None
    return False


@forges("microaggregate-nobody")
def a_median_that_is_a_birthday(evidence, trial):
    for release, i, level, hierarchy, groups in check_privacy.blocks(trial):
        if not 0 < level < hierarchy.height or trial.k < 2:
            continue
        holders = defaultdict(set)
        for row in release.rows:
            if trial.fates[row.source][i] is not TOP:
                holders[hierarchy.label(trial.fates[row.source][i], 0)].add(row.person)
        rare = [leaf for leaf, people in holders.items() if len(people) < trial.k]
        if rare:
            release.published[0][trial.case.quasi[i]] = rare[0]
            return None
    return False


@forges("snapshots-together")
def who_leaves_alone(evidence, trial):
    """One record is missing in the last snapshot, while others of its group stay."""
    if trial.k < 2:
        return False
    earlier, later = trial.shown[-2:]
    before = {row.source: row.labels for row in earlier.rows}
    stay = [i for i, row in enumerate(later.rows) if row.source in before]
    if len({later.rows[i].person for i in stay}) < 2 * trial.k or {row.source for row in earlier.rows} - {row.source for row in later.rows}:
        return False
    drop(evidence, trial, later, stay[:1])


@forges("records-stay")
def who_returns(evidence, trial):
    """A record is missing in between."""
    first, second, third = trial.shown[-3:]
    both = {row.source for row in first.rows} & {row.source for row in third.rows}
    places = [i for i, row in enumerate(second.rows) if row.source in both]
    if not places:
        return False
    drop(evidence, trial, second, places[:1])


@forges("changelog")
def leaves_twice(evidence, trial):
    """A row leaves that is not there any more."""
    leaving = [row for release in trial.shown for row in release.sent if row["change"] == "-"]
    if not leaving:
        return False
    leaving[-1][LINK] = "r999999"


@forges("changelog")
def comes_alone(evidence, trial):
    """All rows but one that come with the same labels are gone."""
    for release in trial.shown:
        if trial.k >= 2 and any(row["change"] == "+" for row in release.sent):
            last = max(i for i, row in enumerate(release.sent) if row["change"] == "+")
            release.sent[last][trial.case.quasi[0]] = "alone"
            return None
    return False


@forges("audiences")
def too_fine(evidence, trial):
    tables = [table for table in evidence.tables if table.rows]
    if not tables:
        return False
    tables[0].rows[0][trial.case.quasi[0]] = "a finer value"


@forges("audiences")
def another_column(evidence, trial):
    tables = [table for table in evidence.tables if table.rows]
    if not tables:
        return False
    tables[-1].rows[-1]["secret"] = "x"


@forges("audiences-together")
@forges("audience-criteria")
def told_apart_in_a_table(evidence, trial):
    tables = [table for table in evidence.tables if table.rows]
    if not tables or trial.k < 2:
        return False
    tables[0].rows[0][trial.case.quasi[0]] = "alone"


@forges("row-levels")
def another_level(evidence, trial):
    evidence.first.rows[0][f"{trial.case.quasi[0]}_level"] = "99"


@forges("messages")
def counts_elements(evidence, trial):
    evidence.manifests[0]["records_published"] += 1


@forges("returning")
def same_candidates(evidence, trial):
    """Everybody of the later releases has one value."""
    field = trial.case.policy["sequential"]["field"]
    last = trial.shown[-1]
    seen = {row.person for release in trial.shown[-trial.case.policy["sequential"]["releases"]:-1] for row in release.rows}
    if not any(row.person in seen for row in last.rows):
        return False
    for row in last.published:
        row[field] = "the same"
