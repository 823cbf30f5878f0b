"""The criteria, counted by their definitions.

A row is a `Row`: its labels, its sensitive and kept values, and the person it is about. Values are counted by a canonical form:
NFKC, case folded, without characters that nobody sees and without outer blanks, numbers by value whatever their type. No value
(null, or blank) is no value: it adds no diversity and falsifies no sentence. Where that leaves room, the reading counts that
asks least.
"""

import itertools
import math
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from decimal import Decimal

import hierarchies

ROUNDING = 1e-9


def canonical(value):
    """The form by which a value is counted; None for no value. A list is the set of its elements, one of them alone is itself."""
    if isinstance(value, list):
        forms = sorted({canonical(element) for element in value} - {None})
        return tuple(forms) if len(forms) > 1 else forms[0] if forms else None
    if not isinstance(value, str):
        return hierarchies.text_of(value)
    text = value.lower()
    if not value.isascii():
        text = unicodedata.normalize("NFKC", value).translate(hierarchies.INVISIBLE)
        text = unicodedata.normalize("NFKC", text.casefold()).translate(hierarchies.INVISIBLE)
    text = " ".join(text.split())
    number = hierarchies.number(text)
    return (text or None) if number is None else hierarchies.plain(number)


@dataclass
class Row:
    labels: tuple
    values: dict
    person: object
    source: object = None  # The input record, where it is known.
    counted: dict = field(default_factory=dict)

    def form(self, name):
        if name not in self.counted:
            self.counted[name] = canonical(self.values.get(name))
        return self.counted[name]


def people(rows):
    return len({row.person for row in rows})


def histogram(rows, name):
    """How many people have each value; no value is left out."""
    return Counter(form for _, form in {(row.person, row.form(name)) for row in rows} if form is not None)


def elements(form):
    return set(form) if isinstance(form, tuple) else {form}


def has_common_element(histogram):
    """True if whoever has a value has one element of it in common with all others."""
    return bool(histogram) and bool(set.intersection(*map(elements, histogram)))


def classes(rows, columns=None):
    """The rows that show the same labels, all or those of some columns."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.labels if columns is None else tuple(row.labels[c] for c in columns)].append(row)
    return groups


@dataclass
class Figure:
    """What the weakest class reaches by one part of a criterion."""

    name: str
    reached: float
    required: float
    at_most: bool = False
    vague: bool = False  # The definition leaves room, so that the figure itself is not compared.

    def holds(self):
        if self.at_most:
            return self.reached <= self.required + ROUNDING
        return self.reached >= self.required * (1 - ROUNDING)


class Criteria:
    """The `privacy` list of a policy."""

    def __init__(self, policy, files):
        self.list = policy["privacy"]
        self.sensitive = [s["name"] for s in policy.get("sensitive", [])]
        self.trees = {s["name"]: hierarchies.build(s["hierarchy"], files)
                      for s in policy.get("sensitive", []) if "hierarchy" in s}
        self.quasi = [q["name"] for q in policy["quasi_identifiers"]]
        self.width = len(self.quasi)
        self.sentences = [s for c in self.list for s in c.get("confidential", {}).get("sentences", [])]

    def figures(self, rows, shown=None):
        """Every figure over the classes of `rows`, compared with `shown` where a criterion compares; none without rows."""
        shown = rows if shown is None else shown
        return [figure for criterion in self.list for figure in self.of(criterion, rows, shown)] if rows else []

    def failing(self, rows):
        return [figure for figure in self.figures(rows) if not figure.holds()]

    def is_vague(self, rows, said):
        """Whether `said` is about a figure whose definition leaves room, so that another count can be right too."""
        return any(figure.vague and figure.name in said for figure in self.figures(rows))

    def of(self, criterion, rows, shown):
        (kind, spec), = criterion.items()
        over = spec.get("over") if isinstance(spec, dict) else None
        if over:
            known = [self.quasi.index(name) for name in over]
            figures = self.over(kind, spec, list(classes(rows, known).values()))
            names = ", ".join(self.quasi[at] for at in sorted(known))
            return [replace(figure, name=f"{figure.name} over {names}") for figure in figures]
        groups = list(classes(rows).values())
        if kind in ("k-anonymity", "l-diversity", "p-sensitive", "alpha-k"):
            return self.over(kind, spec, groups)
        if kind == "lkc":
            return self.lkc(spec, rows)
        if kind == "t-closeness":
            return [self.closeness(spec, groups, shown)]
        if kind == "confidential":
            return [Figure(kind, sum(exposed(g, spec["sentences"]) for g in groups), 0, at_most=True)]
        if kind == "min-security":
            return [self.security(spec, groups, shown)]
        raise ValueError(kind)

    def over(self, kind, spec, groups):
        """The criteria that ask of each group by itself."""
        if kind == "k-anonymity":
            return [Figure(kind, min(map(people, groups)), spec["k"] if isinstance(spec, dict) else spec)]
        if kind == "l-diversity":
            return [self.diversity(spec, groups)]
        if kind == "p-sensitive":
            least = min(diverse(len, histogram(g, spec["field"])) for g in groups)
            return [Figure(f"p-sensitive/{spec['field']}", least, spec["p"])]
        most = max(share(g, spec["field"]) for g in groups)
        return [Figure("alpha-k/k", min(map(people, groups)), spec["k"]),
                Figure(f"alpha-k/{spec['field']}/alpha", most, spec["alpha"], at_most=True)]

    @staticmethod
    def diversity(spec, groups):
        variant, l = spec.get("variant", "distinct"), spec["l"]
        measure = {"distinct": len, "entropy": lambda h: math.exp(entropy(h)),
                   "recursive": lambda h: recursive(h, spec.get("c"))}[variant]
        least = min(diverse(measure, histogram(g, spec["field"])) for g in groups)
        return Figure(f"l-diversity/{spec['field']}/{variant}", least, l)

    def lkc(self, spec, rows):
        fields = spec.get("fields", self.sensitive)
        known = [c for n in range(min(spec["l"], self.width) + 1) for c in itertools.combinations(range(self.width), n)]
        groups = [g for columns in known for g in classes(rows, columns).values()]
        figures = [Figure("lkc/k", min(map(people, groups)), spec["k"])]
        for name in fields:
            figures.append(Figure(f"lkc/{name}/c", max(share(g, name) for g in groups), spec["c"], at_most=True))
        return figures

    def closeness(self, spec, groups, shown):
        name, distance = spec["field"], spec.get("distance", "equal")
        # With `equal` no value counts as one more value; elsewhere it has no place, so it is infinitely far from everything.
        counted = with_none if distance == "equal" else histogram
        placed = {canonical(v) for v in spec.get("order", [])} | {
            canonical(leaf) for leaf in (self.trees[name].paths if distance == "hierarchical" else [])}
        everybody = counted(shown, name)
        if distance == "equal":
            ground = equal
        elif distance == "ordered":
            order = [canonical(v) for v in spec["order"]] if "order" in spec else None
            ground = lambda a, b: ordered(a, b, order)
        else:
            ground = lambda a, b: hierarchical(a, b, self.trees[name])
        most = 0.0
        for group in groups:
            own = counted(group, name)
            lost = distance != "equal" and any(row.form(name) is None for row in group) and None not in placed
            most = max(most, math.inf if lost or not own else ground(own, everybody))
        # Where a list or tree names the empty value, the figure is not compared: it is one more rank there.
        return Figure(f"t-closeness/{name}/{distance}", most, spec["t"], at_most=True, vague=None in placed)

    def security(self, least, groups, shown):
        """1 - the mean risk over people; where a person has several records the definition leaves room: records can be weighed, or
        people, each of whom counts once in a class for what their records say."""
        best, vague = 0.0, people(shown) < len(shown)
        for reading in (lambda *of: says(*of) is True, lambda *of: says(*of) is not False, boolean):
            for by_person in (False, True):
                best = max(best, 1 - self.mean_risk(groups, shown, reading, by_person))
        return Figure("min-security", best, least, vague=vague or any(
            row.form(name) is None for row in shown for name in self.sensitive))

    def mean_risk(self, groups, shown, reading, by_person):
        def units(rows):
            """What each record, or each person, says: which sentences are true, and which are confidential."""
            told = []
            for number, row in enumerate(rows):
                true = tuple(reading(s, row) for s in self.sentences)
                own = tuple("when" not in s or reading(s["when"], row) for s in self.sentences)
                told.append((row.person if by_person else number, true, own))
            return set(told)

        def shares(units):
            return [mean(true[i] for _, true, _ in units) for i in range(len(self.sentences))]

        overall, damages = shares(units(shown)), [s.get("damage", 1) for s in self.sentences]
        total, weights = 0.0, 0
        for group in groups:
            here = units(group)
            risk = [risk_of(a, b) for a, b in zip(overall, shares(here))]
            risks = []
            for _, _, own in here:
                damage = sum(d for d, minds in zip(damages, own) if minds)
                of = sum(d * r for d, r, minds in zip(damages, risk, own) if minds)
                risks.append(of / damage if damage else 0.0)
            weight = people(group) if by_person else len(group)
            total, weights = total + weight * mean(risks), weights + weight
        return total / weights if weights else 0.0


def diverse(measure, histogram):
    """Sets that have an element in common give that away, however many there are."""
    several = any(isinstance(form, tuple) for form in histogram)
    return min(measure(histogram), 1) if several and has_common_element(histogram) else measure(histogram)


def share(rows, name):
    """The share of people who have the most frequent value, or element of a set; once for each different set of a person."""
    counts = Counter()
    for form, count in histogram(rows, name).items():
        counts.update(dict.fromkeys(elements(form), count))
    return min(max(counts.values(), default=0), people(rows)) / people(rows)


def entropy(histogram):
    total = sum(histogram.values())
    return -sum(n / total * math.log(n / total) for n in histogram.values())


def recursive(histogram, c):
    """The largest l for which r1 < c (rl + ... + rm)."""
    counts = sorted(histogram.values(), reverse=True)
    fitting = [l for l in range(1, len(counts) + 1) if counts[0] < c * sum(counts[l - 1:])]
    return max(fitting, default=0)


def with_none(rows, name):
    return Counter(form for _, form in {(row.person, row.form(name)) for row in rows})


def shares(histogram):
    total = sum(histogram.values())
    return {value: n / total for value, n in histogram.items()}


def equal(here, everybody):
    here, everybody = shares(here), shares(everybody)
    return sum(abs(here.get(v, 0) - everybody.get(v, 0)) for v in {*here, *everybody}) / 2


def ordered(here, everybody, order):
    """Earth mover's distance by rank, over the values that occur."""
    if order is None:
        numbers = {v: hierarchies.number(v) for v in {*here, *everybody}}
        if any(numbers[v] is None for v in here):
            return math.inf
        ranked = sorted({v for v in numbers if numbers[v] is not None}, key=numbers.get)
    else:
        if any(v not in order for v in here):
            return math.inf
        ranked = [v for v in order if v in here or v in everybody]
    mine, all = shares(here), shares(everybody)
    carried = work = 0.0
    for value in ranked:
        carried += mine.get(value, 0) - all.get(value, 0)
        work += abs(carried)
    return work / max(len(ranked) - 1, 1)


def hierarchical(here, everybody, tree):
    """Earth mover's distance where two values are as far apart as the level of their common ancestor."""
    forms = {canonical(leaf): leaf for leaf in tree.paths}
    if any(v not in forms for v in here):
        return math.inf
    mine, all = shares(here), shares(everybody)
    extra = Counter()
    for value in {*mine, *all}:
        if value in forms:
            extra[forms[value]] += mine.get(value, 0) - all.get(value, 0)
    work = 0.0
    surplus = {tuple(reversed(tree.paths[leaf])): amount for leaf, amount in extra.items()}
    for level in range(1, tree.height + 1):
        give, take, above = Counter(), Counter(), Counter()
        for path, amount in surplus.items():
            (give if amount > 0 else take)[path[:-1]] += abs(amount)
            above[path[:-1]] += amount
        work += sum(min(give[p], take[p]) for p in above) * level / tree.height
        surplus = dict(above)
    return work


def says(formula, row):
    """True, False, or None where a missing value leaves it open."""
    if "field" in formula:
        form = row.form(formula["field"])
        if form is None:
            return None
        wanted = formula["in"] if "in" in formula else [formula["equals"]]
        return not elements(form).isdisjoint(canonical(scalar(v)) for v in wanted)
    if "not" in formula:
        inner = says(formula["not"], row)
        return None if inner is None else not inner
    parts = [says(part, row) for part in formula.get("all", formula.get("any"))]
    decisive = "any" in formula
    if decisive in parts:
        return decisive
    return None if None in parts else not decisive


def boolean(formula, row):
    """The same where no value simply is none of the values."""
    if "field" in formula:
        return says(formula, row) is True
    if "not" in formula:
        return not boolean(formula["not"], row)
    parts = [boolean(part, row) for part in formula.get("all", formula.get("any"))]
    return any(parts) if "any" in formula else all(parts)


def scalar(value):
    return Decimal(str(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def exposed(rows, sentences):
    """People about whom a sentence follows that is confidential for them, or may be: nobody in their class falsifies it."""
    following = [s for s in sentences if not any(says(s, row) is False for row in rows)]
    return len({row.person for row in rows for s in following if "when" not in s or says(s["when"], row) is not False})


def mean(items):
    items = [float(item) for item in items]
    return sum(items) / len(items) if items else 0.0


def risk_of(everywhere, here):
    if not 0 < everywhere < 1 or here <= 0:
        return 0.0
    return max((math.log(everywhere) - math.log(here)) / math.log(everywhere), 0.0)
