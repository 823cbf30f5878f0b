"""What is said about the rows: counts, losses, manifests, the journal."""

import json
from collections import Counter

import recount
from hierarchies import TOP
from trial import check, close, needs

# What readers of a manifest may see: totals, whole ranges, and figures of the published rows.
MANIFEST_KEYS = {
    "release_id", "window_id", "close_reason", "offsets", "ranges", "recoding", "losses", "records_in", "records_published",
    "records_suppressed", "records_held", "records_rejected", "algorithm", "nodes_checked", "nodes_total", "nodes_predicted",
    "stop", "search_ms", "policy_fingerprint", "closed_at", "criteria", "k_achieved", "classes", "rows", "unmet_bounds", "schedule", "snapshot",
}


@check
def counts(trial):
    """The counts of a release are those of its rows, and of the records that were read for it."""
    needs(not trial.case.groups)
    needs(trial.releases)
    for number, release in enumerate(trial.releases):
        said = release.said
        if said["records_in"] != len(release.read):
            yield f"release {number}: {said['records_in']} records said, {len(release.read)} read"
        if said.get("rows", len(release.sent)) != len(release.sent):
            yield f"release {number}: {len(release.sent)} rows, {said['rows']} said"
        if not trial.case.slides and said["records_published"] != len(release.published):
            yield f"release {number}: {len(release.published)} rows, {said['records_published']} published"
        rejected = sum(trial.fates[source] == "reject" for source in release.read)
        if said["records_rejected"] != rejected:
            yield f"release {number}: {said['records_rejected']} rejected, {rejected} expected"
    rows = sum(len(release.sent) for release in trial.releases)
    if rows != len(trial.evidence.first.rows):
        yield f"{len(trial.evidence.first.rows)} rows in the file, {rows} in its releases"


@check
def four_counts(trial):
    """Published, suppressed, held and rejected add up, window by window and in all."""
    needs(not trial.case.groups)
    if trial.case.mode == "anonymize":
        accounts = [trial.evidence.report] if trial.evidence.report else []
    else:
        accounts = trial.evidence.journal or trial.evidence.manifests
    needs(accounts)
    finished = held = last = 0
    for account in accounts:
        parts = [account["records_published"], account["records_suppressed"], account["records_rejected"]]
        number = account.get("window_id", 0)
        read = sum(len(trial.window(n)) for n in range(last, number + 1)) if "window_id" in account else account["records_in"]
        before, held = held, account.get("records_held", 0)
        if sum(parts) + held - before != read:
            yield f"window {number}: {parts} and {held - before} more held are not {read}"
        finished, last = finished + sum(parts), number + 1
    if finished + held != len(trial.case.records):
        yield f"{finished} finished and {held} held of {len(trial.case.records)} records"


@check
def journal(trial):
    """The operators' journal finishes every record once, but those that wait."""
    needs(not trial.case.groups)
    needs(trial.evidence.journal)
    seen = Counter(offset for entry in trial.evidence.journal for part in entry["finished"]
                   for first, last in part["spans"] for offset in range(first, last + 1))
    twice = [offset for offset, times in seen.items() if times > 1]
    if twice:
        yield f"{len(twice)} records are finished twice"
    waiting = trial.evidence.journal[-1]["records_held"]
    if len(seen) + waiting != len(trial.case.records):
        yield f"{len(seen)} records finished and {waiting} waiting of {len(trial.case.records)}"
    if not trial.case.slides and trial.linked:
        shown = {row.source for release in trial.shown for row in release.rows}
        if not shown <= set(seen):
            yield f"{len(shown - set(seen))} published records are not in it"


@check
def summary(trial):
    """What a run says at its end is what its manifests and its rows say."""
    needs(not trial.case.groups)
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
    if not trial.case.slides and said["records_published"] != len(first.rows):
        yield f"{said['records_published']} published, {len(first.rows)} rows"
    accounts = trial.evidence.journal or trial.evidence.manifests
    for part in ("published", "suppressed", "rejected") if accounts else ():
        told = sum(account[f"records_{part}"] for account in accounts)
        if said[f"records_{part}"] != told:
            yield f"{said[f'records_{part}']} {part}, {told} window by window"


def own_losses(trial, release):
    """What the losses can be by the published rows: for each, by how many records in all."""
    case, quasi = trial.case, trial.case.policy["quasi_identifiers"]
    weights = [q.get("weight", 1) for q in quasi]
    glm = precision = ragged = tops = 0.0
    for row in release.rows:
        for i, leaf in enumerate(trial.fates[row.source]):
            level, hierarchy = release.level(i, leaf, row.labels[i]), case.hierarchy(i)
            needs(level is not None)
            glm += weights[i] * hierarchy.loss(leaf, level)
            precision += weights[i] * level / hierarchy.height
            ragged += weights[i] * (release.coarsest_level(i, leaf, row.labels[i]) - level) / hierarchy.height
            tops += weights[i] * (1 - level / hierarchy.height) * (leaf is TOP)
    sizes = [len(rows) for rows in recount.classes(release.rows).values()]
    shown, width = len(release.rows), sum(weights)
    of = lambda cells: lambda n: [(c + (n - shown) * width) / (n * width) for c in cells]
    # A cell that is published as the top for want of a place is at its column's level, or at the top.
    return {"glm": of([glm]), "precision": of([precision, precision + tops, precision + tops + ragged]), "aecs": lambda n: [n / (len(sizes) * trial.k)],
            "dm": lambda n: [(sum(f * f for f in sizes) + (n - shown) * n) / (n * n)]}


@check
def losses(trial):
    """The losses that are reported follow from the published rows and the totals."""
    needs(trial.linked and trial.shown and trial.case.policy.get("render") != "microaggregate")
    # Those of changes are about the rows that are sent; of messages about all records of them.
    needs(trial.case.mode != "changes" and not trial.case.groups and not trial.case.has_alternatives)
    for number, release in enumerate(trial.shown):
        needs(all(row.source is not None and isinstance(trial.fates[row.source], list) for row in release.rows))
        said = release.said.get("loss", {}) or {n["name"]: n["value"] for n in release.said.get("losses", [])}
        totals = release.said
        candidates = {len(release.rows), totals["records_in"], totals["records_in"] - totals["records_rejected"],
                      len(release.rows) + totals["records_suppressed"],
                      len(release.rows) + totals["records_suppressed"] + totals.get("records_held", 0)}
        for name, loss in own_losses(trial, release).items():
            able = [loss(n) for n in candidates if n >= len(release.rows)]
            fits = lambda figures: min(figures) <= said[name] <= max(figures) or any(close(said[name], f) for f in figures)
            if name in said and not any(map(fits, able)):
                yield f"release {number}: {name} {said[name]}, by the rows {sorted({f for figures in able for f in figures})}"


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
        read = range(len(trial.case.groups)) if trial.case.groups else release.read
        for part in release.said.get("offsets", release.said.get("ranges", [])):
            spans = part.get("spans") or [[part.get("first"), part.get("last")]]
            if spans != [[read.start, read.stop - 1]]:
                yield f"release {number}: {spans[:3]}, read was {read}"


@check
def release_ids(trial):
    """Names of releases are no function of the seed."""
    needs(trial.evidence.manifests and trial.evidence.manifests_again)
    names = lambda manifests: {manifest["release_id"].split("-")[-1] for manifest in manifests}
    ids, again = names(trial.evidence.manifests), names(trial.evidence.manifests_again)
    if ids & again:
        yield f"{len(ids & again)} of {len(ids)} names are the same in two runs with one seed"
    if len(ids) < len(trial.evidence.manifests):
        yield "two releases have one name"
