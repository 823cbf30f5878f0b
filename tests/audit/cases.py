"""Random policies and data. A case is a function of its seed alone."""

import datetime
import random
import unicodedata
from dataclasses import dataclass, field
from decimal import Decimal

import features
from formats import MISSING, Raw
import hierarchies

LINK = "rid"
# A kept field that is unique and that nobody has looked at.
BADGE = "badge"
ALGORITHMS = ["auto", "optimal", "exhaustive", "bottom-up", "subtree-bottom-up", "top-down", "top-down-extended", "granulation",
              "granulation-ga", "tabu-ga", "genetic", "tabu", "pbg-ea"]
LOSSES = ["glm", "glm", "glm", "dm", "precision", "aecs", "cm", "score", "ql", "entropy"]
ILLNESS = ["flu", "cold", "asthma", "cancer", "gout", "café au lait", "strasse", "measles"]
# More nodes than this take too long where every one is counted.
MAX_NODES = 1500


@dataclass
class Case:
    seed: int
    mode: str = "anonymize"
    policy: dict = field(default_factory=dict)
    search: dict = field(default_factory=dict)
    window: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    names: list = field(default_factory=list)
    records: list = field(default_factory=list)
    source: str = "csv"
    sink: str = "csv"
    delimiter: str = ","
    stdio: bool = False
    odd_values: bool = False
    # What a case of a single feature has beside: its name, its records by message, its tables for audiences, how it is written.
    feature: str = ""
    groups: list = field(default_factory=list)
    audiences: list = field(default_factory=list)
    shape: object = field(default_factory=features.Shape)

    def hierarchy(self, i):
        if not hasattr(self, "built"):
            self.built = [hierarchies.build(q["hierarchy"], self.files) for q in self.policy["quasi_identifiers"]]
        return self.built[i]

    def bounds(self, i):
        quasi = self.policy["quasi_identifiers"][i]
        return quasi.get("min_level", 0), quasi.get("max_level", self.hierarchy(i).height)

    @property
    def has_alternatives(self):
        return any("any_of" in q["hierarchy"] for q in self.policy["quasi_identifiers"])

    def refines(self, i, fine, coarse):
        """True if a level of quasi-identifier i nests in another one."""
        hierarchy = self.hierarchy(i)
        if not isinstance(hierarchy, hierarchies.Alternatives):
            return fine <= coarse
        return max(fine, coarse) <= hierarchy.height and hierarchy.refines(fine, coarse)

    @property
    def quasi(self):
        return [q["name"] for q in self.policy["quasi_identifiers"]]

    @property
    def sensitive(self):
        return [s["name"] for s in self.policy.get("sensitive", [])]

    @property
    def private(self):
        return self.policy.get("private", [])

    @property
    def published(self):
        levels = [f"{name}_level" for name in self.quasi] if self.policy.get("row_levels") else []
        change = ["change"] if self.mode == "changes" else []
        return self.quasi + levels + change + self.sensitive + self.policy.get("keep", [])

    @property
    def slides(self):
        return self.mode in ("sliding", "changes")


# Seeds from here on are cases with local recoding; a seed below means what it always meant.
LOCAL = 1_000_000_000
# The same once more with `k-anonymity` over some of the quasi-identifiers.
OVER = 2 * LOCAL
# The same once more with one of `features.FEATURES`, by its number.
FEATURE = 10 * LOCAL


def make(seed):
    if seed >= FEATURE:
        case = features.make(seed // FEATURE, seed % FEATURE, lambda *of: Maker(*of).case)
        case.seed = seed
        return case
    case = Maker(seed).case
    if seed % OVER >= LOCAL:
        recode_locally(case)
    if seed >= OVER and len(case.quasi) > 1:
        rng = random.Random(seed)
        over = rng.sample(case.quasi, rng.randint(1, len(case.quasi) - 1))
        case.policy["privacy"].append({"k-anonymity": {"k": rng.randint(2, 12), "over": over}})
    return case


def recode_locally(case):
    """The same case with local recoding, without what makes no sense beside it."""
    case.policy["recoding"] = "local"
    if case.policy["loss"] in ("ql", "score", "entropy"):
        case.policy["loss"] = "glm"
    case.search = {"seed": case.search["seed"]}


class Maker:
    def __init__(self, seed, mode=None, source=None, sink=None):
        self.rng = rng = random.Random(seed)
        self.case = case = Case(seed)
        drawn = rng.choices(["anonymize", "tumbling", "hold", "sliding"], [60, 16, 14, 10])[0]
        case.mode = mode or drawn
        drawn = rng.choice(["csv", "csv", "jsonl", "jsonl", "avro"]), rng.choice(["csv", "csv", "jsonl", "jsonl", "avro"])
        case.source, case.sink = source or drawn[0], sink or drawn[1]
        case.stdio = case.mode != "anonymize" and rng.random() < 0.25 and "avro" not in (case.source, case.sink)
        case.delimiter = rng.choice(",;\t") if case.source == "csv" else ","
        case.odd_values = rng.random() < 0.3
        self.draws = {}
        self.quasi()
        self.sensitive()
        self.others()
        self.criteria()
        self.rest()
        self.searching()
        self.windows()
        self.population()

    # Quasi-identifiers.

    def quasi(self):
        case, rng = self.case, self.rng
        kinds = [self.intervals, self.prefix, self.dates, self.listed, self.tree, self.trivial]
        case.policy["quasi_identifiers"] = []
        for i in range(rng.choice([1, 2, 2, 3, 3, 4, 5])):
            name = f"q{i}"
            definition, draw = rng.choice(kinds)(name)
            quasi = {"name": name, "hierarchy": definition}
            height = hierarchies.build(definition, case.files).height
            if rng.random() < 0.3:
                quasi["weight"] = rng.choice([0.5, 2, 3])
            if rng.random() < 0.2:
                quasi["min_level"] = rng.randint(0, height - 1)
            if rng.random() < 0.15:
                quasi["max_level"] = rng.randint(quasi.get("min_level", 0), height)
            if rng.random() < 0.2:
                quasi["priority"] = rng.randint(1, 9)
            case.policy["quasi_identifiers"].append(quasi)
            self.draws[name] = draw
            if self.nodes() > MAX_NODES:
                case.policy["quasi_identifiers"].pop()
                del self.draws[name], case.built
                break

    def nodes(self):
        self.case.__dict__.pop("built", None)
        nodes = 1
        for i in range(len(self.case.policy["quasi_identifiers"])):
            low, high = self.case.bounds(i)
            nodes *= high - low + 1
        return nodes

    def intervals(self, name):
        rng = self.rng
        if rng.random() < 0.25:
            spec = {"widths": ["0.5", "2.5", "5"][: rng.randint(1, 3)], "min": 0, "max": 20}
            number = lambda: Decimal(rng.randint(0, 200)) / 10
        else:
            low, width = rng.choice([0, 18, -20]), rng.choice([2, 5])
            widths = [width * f for f in (1, 2, 4, 12)][: rng.randint(1, 4)]
            spec = {"widths": widths, "min": low, "max": low + rng.choice([25, 60])}
            number = lambda: Decimal(rng.randint(spec["min"], spec["max"]))
        if rng.random() < 0.3:
            spec["origin"] = rng.choice([1, -3, 10])
        if rng.random() < 0.4:
            spec["open"] = rng.choice(["low", "high", "both"])
        odd = [spec["max"] + 7, "about 30", spec["min"] - 3, "", "1.5e1", "NaN"]

        def draw(unknown):
            if unknown:
                value = rng.choice(odd)
                return Decimal(value) if isinstance(value, int) else value
            value, roll = number(), rng.random()
            whole = value >= 0 and "." not in str(value)
            return f"00{value}" if roll < 0.1 and whole else f"{value}.0" if roll < 0.15 and whole else (
                str(value) if roll < 0.25 else value)

        return {"intervals": spec}, draw

    def prefix(self, name):
        rng, length = self.rng, self.rng.choice([2, 3, 4, 5])
        letters = rng.choice(["0123", "01", "ABCÄ"])
        spec = {"length": length}
        if rng.random() < 0.3:
            spec["alphabet"] = 36
        if rng.random() < 0.2:
            spec["mask"] = "#"
        draw = lambda unknown: rng.choice(["", "1" * (length + 1), spec.get("mask", "*") * length]) if unknown else (
            "".join(rng.choice(letters[: 1 + i + 1]) for i in range(length)))
        return {"prefix": spec}, draw

    def dates(self, name):
        rng = self.rng
        units = ["day", "week"] if rng.random() < 0.2 else sorted(
            rng.sample(range(6), rng.randint(1, 4)))
        names = ["day", "month", "quarter", "year", "decade", "century"]
        units = units if isinstance(units[0], str) else [names[u] for u in units]
        spec, first, days = {"units": units}, datetime.date(1960, 1, 1), rng.choice([60, 3000, 15000])
        if rng.random() < 0.4:
            spec["min"], spec["max"] = "1959-06-15", "2001-02-20"
        if rng.random() < 0.3:
            spec["format"] = "%d/%m/%Y"
        day = lambda: first + datetime.timedelta(days=rng.randint(0, days))

        def draw(unknown):
            if unknown:
                return rng.choice(["", "1985-02-30", "yesterday", "31/31/1999", "2150-01-01" if "max" in spec else "x"])
            if "format" in spec:
                return day().strftime(spec["format"])
            if units[0] in ("month", "year") and rng.random() < 0.3:
                return day().isoformat()[: 7 if units[0] == "month" else 4]
            return day().isoformat() + rng.choice(["", "", "", "T12:30:00Z", "T00:00:00"])

        return {"date": spec if len(spec) > 1 or rng.random() < 0.5 else units}, draw

    def listed(self, name):
        rng, height = self.rng, self.rng.randint(1, 3)
        numeric = rng.random() < 0.4
        leaves = [str(i) + (".0" if rng.random() < 0.2 else "") for i in range(rng.randint(2, 12))] if numeric else (
            [f"{name}é{i}" if rng.random() < 0.2 else f"{name}v{i}" for i in range(rng.randint(2, 12))])
        lines = []
        for i, leaf in enumerate(leaves):
            lines.append(";".join([leaf] + [f"{name}g{level}.{i // (2 ** level)}" for level in range(1, height)] + ["*"]))
        self.case.files[f"{name}.csv"] = "".join(line + "\n" for line in lines)
        return {"csv": f"{name}.csv"}, self.listed_draw(leaves, numeric)

    def listed_draw(self, leaves, numeric):
        rng = self.rng

        def draw(unknown):
            if unknown:
                return rng.choice(["", "elsewhere", "999"])
            leaf = leaves[min(int(rng.expovariate(3 / len(leaves))), len(leaves) - 1)]
            if numeric and rng.random() < 0.5:
                return Decimal(leaf)
            if rng.random() < 0.15:
                return unicodedata.normalize("NFD", leaf)
            return "\u200b" + leaf if rng.random() < 0.05 else leaf

        return draw

    def tree(self, name):
        rng, leaves = self.rng, []

        def node(depth):
            label = f"{name}n{len(leaves)}d{depth}"
            if depth == 0 or rng.random() < 0.2:
                leaves.append(label + "leaf")
                return {"label": label + "leaf"}
            return {"label": label, "children": [node(depth - 1) for _ in range(rng.randint(1, 3))]}

        if rng.random() < 0.5:
            root = {"label": "any", "children": [node(rng.randint(0, 2)) for _ in range(rng.randint(2, 4))]}
        else:
            root = [node(rng.randint(0, 2)) for _ in range(rng.randint(2, 4))]
        return {"tree": root}, self.listed_draw(leaves, False)

    def trivial(self, name):
        rng, values = self.rng, ["m", "f", "M", "ｆ", "x y", "true", "1"][: self.rng.randint(2, 7)]
        odd = ["*", Decimal(1), True]
        return "trivial", lambda unknown: rng.choice(odd) if unknown and rng.random() < 0.5 else rng.choice(values)

    # Everything else that the policy names.

    def sensitive(self):
        case, rng = self.case, self.rng
        fields = []
        for i in range(rng.choice([0, 1, 1, 1, 2])):
            name, size = f"s{i}", rng.randint(2, 7)
            numeric = rng.random() < 0.4
            values = [Decimal(n) for n in range(size)] if numeric else ILLNESS[:size]
            entry = {"name": name}
            if not numeric and rng.random() < 0.5:
                half = (size + 1) // 2
                groups = [{"label": f"group {g}", "children": [{"label": v} for v in part]}
                          for g, part in enumerate([values[:half], values[half:]]) if part]
                entry["hierarchy"] = {"tree": {"label": "all", "children": groups}} if len(groups) > 1 else {"tree": groups}
            fields.append(entry)
            self.draws[name] = self.sensitive_draw(values, numeric)
        if fields:
            case.policy["sensitive"] = fields

    def sensitive_draw(self, values, numeric):
        rng, weights = self.rng, [1 / (1 + i * self.rng.choice([0, 0.5])) for i in range(len(values))]

        def draw(odd):
            value = rng.choices(values, weights)[0]
            return self.spelled(value) if odd else value

        return draw

    def spelled(self, value):
        """Another spelling of the same value, or none at all."""
        rng = self.rng
        if rng.random() < 0.15:
            return rng.choice([None, "", "  "])
        if isinstance(value, Decimal):
            return rng.choice([str(value), f"{value}.0", Decimal(f"{value}.0"), f" {value}", f"{value}\u00ad",
                               Decimal("-0.0") if value == 0 else value, chr(0xFF10 + int(value))])
        wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in value)
        return rng.choice([value.upper(), value.title(), f" {value}", f"{value}\t", wide, value[:2] + "\u00ad" + value[2:],
                           value[:1] + "\u200d" + value[1:], unicodedata.normalize("NFD", value), value + "\ufe0f",
                           value + "\u2061", value.replace("ss", "ß")])

    def others(self):
        case, rng = self.case, self.rng
        keep = [LINK] if rng.random() < 0.8 else []
        self.draws["town"] = lambda odd: rng.choice(["north", "south", None if case.source == "jsonl" else "west"])
        keep += ["town"] if rng.random() < 0.3 else []
        keep += [BADGE] if rng.random() < 0.1 else []
        if keep:
            case.policy["keep"] = keep
        if rng.random() < 0.5:
            case.policy["subject"] = "person"
        if rng.random() < 0.3:
            case.policy["identifiers"] = ["email"]
        if rng.random() < 0.3:
            case.policy["label"] = rng.choice(["lab"] + [s["name"] for s in case.policy.get("sensitive", [])])

    def criteria(self):
        case, rng = self.case, self.rng
        names = case.sensitive
        k = rng.choice([2, 2, 3, 3, 4, 5, 7])
        privacy = [{"k-anonymity": k}] if rng.random() < 0.85 or not names else []
        kinds = ["l-diversity", "l-diversity", "t-closeness", "t-closeness", "p-sensitive", "alpha-k", "lkc", "confidential"]
        kinds = kinds if names else ["lkc"]
        for kind in rng.sample(kinds, rng.choice([0, 1, 1, 2]) if privacy and names else rng.choice([0, 1]) if privacy else 1):
            privacy.append(self.criterion(kind, rng.choice(names) if names else None, k))
        if any("confidential" in c for c in privacy) and rng.random() < 0.4:
            privacy.append({"min-security": rng.choice([0.5, 0.8, 0.9])})
        case.policy["privacy"] = privacy

    def criterion(self, kind, name, k):
        rng = self.rng
        entry = next((s for s in self.case.policy.get("sensitive", []) if s["name"] == name), {})
        if kind == "l-diversity":
            variant = rng.choice(["distinct", "entropy", "recursive"])
            spec = {"field": name, "l": rng.choice([1.5, 2, 2.5]) if variant == "entropy" else rng.choice([2, 2, 3])}
            if variant != "distinct" or rng.random() < 0.5:
                spec["variant"] = variant
            return {kind: {**spec, "c": rng.choice([1, 2.5, 4])} if variant == "recursive" else spec}
        if kind == "t-closeness":
            spec = {"field": name, "t": rng.choice([0.2, 0.35, 0.5])}
            spec["distance"] = rng.choice(["equal", "ordered", "hierarchical"])
            values = [self.draws[name](False) for _ in range(200)]
            texts = sorted({v for v in values if isinstance(v, str)})
            if spec["distance"] == "ordered" and texts:
                rng.shuffle(texts)
                spec["order"] = texts
            if spec["distance"] == "hierarchical" and "hierarchy" not in entry:
                spec["distance"] = "equal"
            return {kind: spec}
        if kind == "p-sensitive":
            return {kind: {"field": name, "p": rng.choice([2, 2, 3])}}
        if kind == "alpha-k":
            return {kind: {"field": name, "alpha": rng.choice([0.5, 0.7, 0.9]), "k": k}}
        if kind == "lkc":
            most = len(self.case.quasi)
            return {kind: {"l": rng.randint(1, most), "k": k, "c": rng.choice([0.7, 0.9, 1]) if name else 1}}
        return {kind: {"sentences": [self.sentence(name) for _ in range(rng.randint(1, 3))]}}

    def sentence(self, name):
        rng = self.rng
        plain = lambda v: int(v) if isinstance(v, Decimal) else v
        one = lambda: {"field": name, "equals": plain(self.draws[name](False))}
        some = {"field": name, "in": sorted({plain(self.draws[name](False)) for _ in range(2)}, key=str)}
        sentence = rng.choice([one(), one(), some, {"not": one()}, {"any": [one(), one()]}, {"all": [some, {"not": one()}]}])
        if rng.random() < 0.25:
            keep = [k for k in self.case.policy.get("keep", []) if k == "town"]
            sentence["when"] = {"field": "town", "equals": "north"} if keep and rng.random() < 0.5 else one()
        if rng.random() < 0.3:
            sentence["damage"] = rng.choice([2, 0.5])
        return sentence

    def rest(self):
        case, rng = self.case, self.rng
        case.policy["loss"] = rng.choice([l for l in LOSSES if l != "cm" or "label" in case.policy])
        limit = rng.choice([0, 0.05, 0.1, "20%", 0.5])
        case.policy["suppression"] = {"limit": limit} if limit else {}
        if case.mode == "hold":
            case.policy["suppression"] = {"limit": limit or 0.1, "action": "hold", "max_hold": "1h"}
        for key in ("unknown_value", "missing_value", "null_value"):
            if rng.random() < 0.6:
                case.policy[key] = rng.choice(["reject", "suppress", "top"])
        # A rendering that could change nothing is refused, and statistics without a k.
        inner = [i for i in range(len(case.quasi)) if case.bounds(i)[0] == 0 < case.bounds(i)[1] and case.hierarchy(i).height > 1]
        measures = {case.hierarchy(i).measure for i in inner}
        renders = ["interval"] * bool(measures & {"number", "date"}) + ["microaggregate"] * bool(measures - {"category"})
        if case.mode == "sliding" or not any("k-anonymity" in c for c in case.policy["privacy"]):
            renders = [render for render in renders if render != "microaggregate"]
        if renders and rng.random() < 0.3:
            case.policy["render"] = rng.choice(renders)

    def searching(self):
        case, rng = self.case, self.rng
        confidential = any("confidential" in c for c in case.policy["privacy"])
        algorithms = [a for a in ALGORITHMS if confidential or not a.startswith("granulation")]
        case.search = {"algorithm": rng.choice(algorithms + ["subtree-bottom-up"] * 2), "seed": rng.randint(0, 1 << 32)}
        if rng.random() < 0.2:
            case.search["max_checks"] = rng.choice([3, 20, 100])
        if case.search["algorithm"] in ("tabu-ga", "genetic", "tabu", "pbg-ea"):
            case.search |= {"population": 8, "iterations": rng.choice([3, 10])}
        if case.search["algorithm"] == "pbg-ea" and rng.random() < 0.5:
            case.search["objectives"] = rng.choice([["k", "glm"], ["s_k", "dm"], ["k", "precision", "ql"]])

    def windows(self):
        case, rng = self.case, self.rng
        self.size = rng.choice([30, 60, 100, 150, 250])
        if case.mode == "anonymize":
            return
        case.window = {"levels": rng.choice(["free", "sticky", "sticky", "monotone", "fixed"])}
        k = max([c.get("k-anonymity", 0) for c in case.policy["privacy"]]
                + [c[n]["k"] for c in case.policy["privacy"] for n in ("alpha-k", "lkc") if n in c] + [1])
        self.size = rng.choice([80, 150, 250])
        records = rng.choice([30, 50, 90])
        if case.mode == "sliding":
            case.window["sliding"] = {"size": max(records, k), "slide": rng.choice([10, 20, 30])}
        else:
            case.window["tumbling"] = {"max_records": max(records, k)}

    # The data.

    def population(self):
        case, rng = self.case, self.rng
        case.names = [LINK, BADGE, "person", "email", "town", "lab"] + case.quasi + case.sensitive + ["secret"]
        rng.shuffle(case.names)
        several = "subject" in case.policy and rng.random() < 0.8
        dirt = rng.choice([0, 0, 0.02, 0.1])
        previous = None
        for i in range(self.size):
            if case.source != "avro" and rng.random() < dirt / 3:
                broken = ["a"] if case.source == "csv" else ['{"q0": ', f'{{"{LINK}":"a","{LINK}":"b"}}', "[1]"]
                case.records.append(rng.choice(broken))
                continue
            record = {n: self.draws[n](case.odd_values and rng.random() < 0.4) for n in case.sensitive}
            for name in case.quasi:
                record[name] = self.quasi_value(name, dirt)
            person = previous if several and previous and rng.random() < 0.4 else f"subj-{rng.randint(0, self.size * 2)}"
            previous = person
            record["person"] = self.person(person, dirt)
            record |= {LINK: f"r{i}", BADGE: f"b{i}", "email": f"canary-{i}@example.org", "secret": f"canary-{i}-{rng.random()}",
                       "lab": rng.choice(["yes", "no"]), "town": self.draws["town"](False)}
            record = {name: record[name] for name in case.names}
            case.records.append({n: as_written(v, case.source) for n, v in record.items()})

    def quasi_value(self, name, dirt):
        case, rng = self.case, self.rng
        roll = rng.random()
        if roll < dirt:
            return self.draws[name](True)
        if roll < dirt * 1.3 and case.source != "csv":
            return rng.choice([None, MISSING, Raw('{"a":[1,2]}')]) if case.source == "jsonl" else None
        return self.draws[name](False)

    def person(self, person, dirt):
        rng = self.rng
        if rng.random() < dirt / 4:
            return rng.choice(["", None, " \u00ad" if self.case.odd_values else ""])
        if self.case.odd_values and rng.random() < 0.3:
            return rng.choice([person.upper(), f" {person}", person + "\u00ad", person + "\u200b"])
        return person


def as_written(value, format):
    """The value as a format can hold it."""
    if format != "csv":
        return None if format == "avro" and value is MISSING else value
    if value is None or value is MISSING:
        return ""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
