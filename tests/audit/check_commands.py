"""The same again, and what other commands say."""

import itertools
import json
import math

import recount
from recount import Row
from trial import check, close, known, needs

# Every node of a lattice is tried where nodes times records are no more than this; more take seconds.
TRIED = 12_000


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


@check
def verify(trial):
    """`verify` says of the file what a recount of it says, in records."""
    output = trial.evidence.verify
    needs(output and trial.case.mode == "anonymize" and not trial.evidence.first.unreadable)
    failing = trial.criteria.failing(trial.releases[0].by_records)
    if (output.exit == 0) != (not failing):
        needs(not trial.criteria.is_vague(trial.releases[0].by_records, output.stderr))
        names = [f"{f.name} {f.reached:.6g}" for f in failing]
        yield f"exit {output.exit}, a recount fails {names}: {output.stderr.strip()[-200:]}"
        return
    records = json.loads(output.stdout.splitlines()[0]).get("records")
    if not failing and records != len(trial.evidence.first.rows):
        yield f"{records} records, {len(trial.evidence.first.rows)} in the file"


@check
def verify_by_release(trial):
    """`verify --manifest` judges release by release."""
    needs(trial.case.mode not in ("anonymize", "changes") and trial.shown)
    output = trial.evidence.verify
    if output is None:
        yield "`verify` takes no manifest"
        return
    failing = {f.name for release in trial.shown for f in trial.criteria.failing(release.by_records)}
    if (output.exit == 0) != (not failing):
        needs(not any(trial.criteria.is_vague(release.by_records, output.stderr) for release in trial.shown))
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
        if allowed > 0:
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
        cells = [(i, leaf) for leaves in shown for i, leaf in enumerate(leaves)]
        cell = lambda of: (sum(of(i, leaf) * weights[i] for i, leaf in cells) + out * width) / (n * width)
        self.losses = {
            "glm": cell(lambda i, leaf: case.hierarchy(i).loss(leaf, levels[i])),
            "precision": cell(lambda i, leaf: levels[i] / case.hierarchy(i).height),
            "dm": (sum(len(g) ** 2 for l, g in groups.items() if l in good) + out * n) / n**2,
            "aecs": n / (len(good) * trial.k),
        }


def every_node(trial):
    """All nodes of a small lattice; does not apply where the definition of a satisfying node leaves room."""
    case = trial.case
    needs(not case.has_alternatives)
    lattice = list(itertools.product(*(range(low, high + 1) for low, high in (case.bounds(i) for i in range(len(case.quasi))))))
    kinds = {kind for criterion in case.policy["privacy"] for kind in criterion}
    rows = [(leaves, {n: known(v) for n, v in record.items()}, trial.person(i))
            for i, (leaves, record) in enumerate(zip(trial.fates, case.records)) if isinstance(leaves, list)]
    needs(0 < len(lattice) * len(rows) <= TRIED)
    over = any(isinstance(spec, dict) and "over" in spec for criterion in case.policy["privacy"] for spec in criterion.values())
    needs(trial.limit == 0 or not over and not kinds & {"t-closeness", "lkc", "min-security"})
    together = [Row(("*",) * len(case.quasi), values, person) for _, values, person in rows]
    needs(not any(figure.vague for figure in trial.criteria.figures(together)))
    by_value = trial.fates.count("suppress")
    allowed = math.floor(trial.limit * (len(rows) + by_value) + 1e-9) - by_value
    return {levels: Node(trial, rows, levels, allowed) for levels in lattice}


@check
def proven(trial):
    """Where a search says `proven`, no node of the lattice has less loss."""
    loss = trial.case.policy["loss"]
    outputs = [o for o in (trial.evidence.search, trial.evidence.optimal) if o and o.stdout.startswith("{")]
    claims = [said for said in (json.loads(o.stdout.splitlines()[0]) for o in outputs) if said["stop"] == "proven"]
    needs(claims and loss in ("glm", "dm", "precision", "aecs"))
    nodes = every_node(trial)
    best = min((node.losses[loss] for node in nodes.values() if node.satisfies), default=None)
    for said in claims:
        node = nodes.get(tuple(level if isinstance(level, int) else None for level in said["recoding"].values()))
        if not said["satisfies"]:
            if best is not None:
                yield f"{said['algorithm']}: nothing satisfies, it says; a node loses {best}"
        elif best is None or node is not None and not node.satisfies:
            yield f"{said['algorithm']}: its node does not satisfy"
        elif node is not None and node.losses[loss] > best + 1e-9:
            yield f"{said['algorithm']}: its node has a {loss} of {node.losses[loss]}, the best {best}"
        elif node is not None and not close(said["loss"][loss], node.losses[loss]):
            yield f"{said['algorithm']}: {loss} {said['loss'][loss]}, counted {node.losses[loss]}"


@check
def unmet(trial):
    """Where nothing is published although the search came to its end, nothing could be."""
    search = trial.evidence.search
    needs(search and search.stdout.startswith("{") and not trial.evidence.first.data)
    said = json.loads(search.stdout.splitlines()[0])
    thorough = said["algorithm"] in ("exhaustive", "bottom-up", "optimal", "auto")
    needs(said["stop"] == "proven" or thorough and said["stop"] == "exhausted")
    if any(node.satisfies for node in every_node(trial).values()):
        yield f"{said['algorithm']} says that nothing satisfies; a node does"
