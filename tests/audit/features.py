"""Cases of single features: a case of its base seed, changed where the feature asks for it, from a random stream of its own.

A `Shape` tells how the flat records of a case are written, and how rows are read back; so that the checks always see flat ones.
"""

import gzip
import json
import random
import re
from decimal import Decimal

import formats
from formats import MISSING, Raw, json_text

LINK = "rid"


class Shape:
    """Flat records, written by `formats`."""

    # What `source.file` needs beside its path, and whether the fields of a row come in the policy's order.
    source, ordered, extension = {}, True, None

    def write(self, case, records):
        return formats.write(case.source, case.names, records, case.delimiter)

    def policy(self, policy):
        return policy

    def flat(self, row):
        return row

    def unnamed(self, text):
        """What the program says of the case's fields, by their short names."""
        return text


def dump(value):
    """JSON of nested dicts and lists whose leaves are values of a record."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json_text(value)


def place(tree, path, value):
    *above, last = path.split(".")
    for name in above:
        tree = tree.setdefault(name, {})
    tree[last] = value


def lines_of(objects):
    return "".join((one if isinstance(one, str) else dump(one)) + "\n" for one in objects).encode()


class Nested(Shape):
    """Fields by path. Beside each of them, and at every depth, there is more than the policy names."""

    ordered = False

    def __init__(self, paths, rng):
        self.paths, self.rng = paths, rng

    def path(self, name):
        return self.paths.get(name, name)

    def object(self, record, number):
        tree = {}
        for name, value in record.items():
            if value is not MISSING:
                place(tree, self.path(name), value)
        self.plant(tree, number)
        return tree

    def plant(self, tree, number):
        for key in [key for key, value in tree.items() if isinstance(value, dict)]:
            self.plant(tree[key], number)
        canary = f"canary-{number}-{len(tree)}"
        for i, what in enumerate([canary, {"deep": {canary: canary}}, [canary, {"name": canary}], [[canary]]]):
            tree[f"x{i}"] = json.loads(json.dumps(what))
        tree[f"canary-{number}-key"] = True

    def write(self, case, records):
        return lines_of(record if isinstance(record, str) else self.object(record, i) for i, record in enumerate(records))

    def policy(self, policy):
        return renamed(policy, self.paths)

    def flat(self, row):
        out, short = {}, {path: name for name, path in self.paths.items()}

        def walk(value, path):
            if isinstance(value, dict):
                for key, inner in value.items():
                    walk(inner, path + [key])
            else:
                out[short.get(".".join(path), ".".join(path))] = value

        walk(row, [])
        return out

    def unnamed(self, text):
        for name, path in sorted(self.paths.items(), key=lambda item: -len(item[1])):
            if name != path:
                text = re.sub(rf"(?<![\w.]){re.escape(path)}\b", name, text)
        return text


def renamed(policy, names):
    """The policy with other names for its fields."""
    named = lambda name: names.get(name, name)
    lists, single = {"over", "fields", "keep", "identifiers", "private"}, {"name", "field", "label", "subject"}

    def walk(value, key):
        if isinstance(value, dict):
            return {k: v if k == "hierarchy" else walk(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [named(v) if key in lists and isinstance(v, str) else walk(v, None) for v in value]
        return named(value) if key in single and isinstance(value, str) else value

    return walk(policy, None)


class Exploded(Nested):
    """Records of one message as the elements of an array."""

    source = {"explode": "items"}

    def __init__(self, inside, groups, rng):
        super().__init__({name: f"items.{name}" for name in inside}, rng)
        self.inside, self.groups = inside, groups

    def write(self, case, records):
        messages = []
        for group in self.groups:
            first = records[group[0]]
            if isinstance(first, str):
                messages.append(first)
                continue
            outer = {name: value for name, value in first.items() if name not in self.inside and value is not MISSING}
            items = []
            for number in group:
                item = {name: v for name, v in records[number].items() if name in self.inside and v is not MISSING}
                self.plant(item, number)
                items.append(item)
            self.plant(outer, group[0])
            messages.append({**outer, "items": items})
        return lines_of(messages)


class Debezium(Shape):
    """Rows as change events. What was before, and where it happened, must not leave."""

    source = {"envelope": "debezium"}

    def __init__(self, rng):
        self.rng = rng

    def write(self, case, records):
        rng = random.Random(case.seed)
        return lines_of(record if isinstance(record, str) else self.event(record, rng) for record in records)

    @staticmethod
    def event(record, rng):
        after = {name: value for name, value in record.items() if value is not MISSING}
        op = rng.choice("ccru")
        before = {name: f"canary-before-{name}" for name in record} if op == "u" else None
        payload = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"db": "canary-db", "row": "canary-row"}}
        return {"schema": {"name": "canary-schema"}, "payload": payload} if rng.random() < 0.3 else payload


class Carried(Shape):
    """The same table in another wrapping: an array, gzip, another encoding."""

    def __init__(self, format, array, packed, encoding):
        self.format = "json" if array else format
        self.array, self.packed, self.encoding = array, packed, encoding
        self.source = {"encoding": encoding} if encoding == "latin-1" else {}

    @property
    def extension(self):
        return "." + self.format + (".gz" if self.packed else "")

    def write(self, case, records):
        data = formats.write(case.source, case.names, records, case.delimiter)
        if self.array:
            lines = [line for line in data.decode().split("\n") if line]
            data = ("[" + ",\n ".join(lines) + "]\n").encode()
        if self.encoding != "utf-8":
            codec = "cp1252" if self.encoding == "latin-1" else self.encoding
            data = (b"" if self.encoding == "latin-1" else "\ufeff".encode(codec)) + data.decode().encode(codec)
        return gzip.compress(data) if self.packed else data


# The features. Each takes the case and a random stream, and says which base case it needs.

def by_parts(case):
    """Criteria that hold for a class made of classes for which they hold, labels as they are, kept fields that were looked at."""
    policy = case.policy
    distinct = [c for c in policy["privacy"] if "p-sensitive" in c or c.get("l-diversity", {}).get("variant", "distinct") == "distinct"
                and "l-diversity" in c]
    policy["privacy"] = [{"k-anonymity": max([c["k-anonymity"] for c in policy["privacy"] if isinstance(c.get("k-anonymity"), int)], default=3)}]
    policy["privacy"] += distinct
    policy.pop("render", None)
    policy["keep"] = [LINK]


def slides(case, rng):
    """Snapshots by any recoding, in small slides."""
    case.stdio = False
    recode(case, rng)
    size = rng.choice([30, 50, 90])
    case.window["sliding"] = {"size": max(size, case.window["sliding"]["size"]), "slide": rng.choice([5, 10, 20])}
    if rng.random() < 0.5:
        case.window["sliding"]["max_hold"] = rng.choice([5, 20, 60])
    keep = case.policy.get("keep", [])
    case.policy["keep"] = keep if LINK in keep else keep + [LINK]


def recode(case, rng):
    case.search = {"seed": case.search["seed"]}
    case.policy["recoding"] = rng.choice(["full-domain", "subtree", "local"])
    if case.policy["loss"] in ("ql", "score", "entropy"):
        case.policy["loss"] = "glm"
    if case.policy["recoding"] == "subtree":
        case.search["algorithm"] = "subtree-bottom-up"


def changes(case, rng):
    slides(case, rng)
    by_parts(case)
    case.mode = "changes"
    case.stdio = False
    case.window["sliding"]["publish"] = "changes"


def audiences(case, rng):
    recode(case, rng)
    case.stdio = False
    case.policy.pop("render", None)
    keep = case.policy.get("keep", [])
    case.policy["keep"] = keep if LINK in keep else keep + [LINK]
    case.audiences = []
    fields = case.sensitive + [name for name in case.policy["keep"] if name != LINK]
    for i in range(rng.choice([1, 2, 3])):
        names = rng.sample(case.quasi, rng.randint(0, len(case.quasi)))
        levels = {name: rng.randint(0, case.hierarchy(case.quasi.index(name)).height) for name in names}
        case.audiences.append({"name": f"a{i}", "min_levels": levels, "drop": rng.sample(fields, rng.randint(0, len(fields)))})


def shapes(case, rng):
    """Named fields at depths of their own, in the output too."""
    roots = ["", "a.", "a.b.", "c.d.e."]
    case.shape = Nested({name: rng.choice(roots) + name for name in case.names}, rng)


def explode(case, rng):
    """Messages of several records. The person stands around the array, or in it."""
    case.stdio = False
    policy = case.policy
    policy["subject"] = "person"
    keep = policy.get("keep", [])
    policy["keep"] = keep if LINK in keep else keep + [LINK]
    case.window = {"tumbling": {"max_records": 100_000}, "levels": "free"}
    fields = [name for name in case.names if name != LINK]
    inside = {LINK, *rng.sample(fields, rng.randint(1, len(fields) - 1))}
    case.groups, at = [], 0
    while at < len(case.records):
        group = [at]
        while len(group) < rng.choice([1, 2, 3, 5]) and at + 1 < len(case.records) and not isinstance(case.records[at], str) \
                and not isinstance(case.records[at + 1], str):
            at += 1
            group.append(at)
        at += 1
        case.groups.append(group)
    for group in case.groups:
        first = case.records[group[0]]
        for number in group[1:]:
            case.records[number] |= {name: value for name, value in first.items() if name not in inside}
    for odd in ['{"items":[]}', '{"items":{}}', "{}", '{"items":[1]}', '{"items":null}'] if rng.random() < 0.5 else []:
        case.groups.append([len(case.records)])
        case.records.append(odd)
    case.shape = Exploded(inside, case.groups, rng)


def debezium(case, rng):
    case.stdio = False
    case.policy["subject"] = "person"
    others = ['{"op":"t","before":null,"after":null}', '{"before":null,"after":null,"op":"m"}',
              '{"op":"d","before":{"person":"subj-1","q0":"canary-deleted"},"after":null,"source":{"db":"canary"}}']
    for _ in range(rng.choice([0, 3, 9])):
        case.records.insert(rng.randint(0, len(case.records)), rng.choice(others))
    for number, record in enumerate(case.records):
        if not isinstance(record, str):
            record[LINK] = f"r{number}"
    case.shape = Debezium(rng)


def arrays(case, rng):
    """Sensitive values that are sets: several values of the same field, in any order, some of them twice."""
    for name in case.sensitive:
        values = [r[name] for r in case.records if not isinstance(r, str) and not isinstance(r[name], Raw) and r[name] is not MISSING]
        always = [rng.choice(values)] if rng.random() < 0.3 else []
        share = rng.choice([0.2, 0.6, 1])
        for record in case.records:
            if not isinstance(record, str) and rng.random() < share:
                own = always + [rng.choice(values) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
                rng.shuffle(own)
                record[name] = own
    criteria = [c for c in case.policy["privacy"] if "t-closeness" not in c]
    case.policy["privacy"] = criteria or [{"k-anonymity": 3}]
    case.policy["loss"] = "glm"
    case.policy.pop("label", None)


def sequential(case, rng):
    """Few people, who return."""
    case.stdio = False
    policy = case.policy
    if not case.sensitive:
        policy["sensitive"] = [{"name": "lab"}]
        if policy.get("label") == "lab":
            del policy["label"]
    policy["subject"] = "person"
    keep = policy.get("keep", [])
    policy["keep"] = keep if LINK in keep else keep + [LINK]
    policy["sequential"] = {"releases": rng.choice([2, 3, 4]), "candidates": 2, "field": case.sensitive[0]}
    most = rng.choice([20, 40, 80])
    for record in case.records:
        if not isinstance(record, str):
            record["person"] = f"subj-{rng.randint(0, most)}"
    policy["suppression"] = {"limit": 0.5} | {k: v for k, v in policy["suppression"].items() if k != "limit"}


def consent(case, rng):
    """What is confidential only for some, by a field that is never published."""
    field = case.sensitive[0] if case.sensitive else "lab"
    if not case.sensitive:
        case.policy["sensitive"] = [{"name": "lab"}]
        case.policy.pop("label", None)
    values = sorted({str(r[field]) for r in case.records if not isinstance(r, str) and r[field] not in (None, MISSING)})
    case.policy["private"] = ["consent"]
    case.names.append("consent")
    for record in case.records:
        if not isinstance(record, str):
            record["consent"] = rng.choice(["no", "No ", "yes", "", "yes"]) if rng.random() < 0.9 or case.source == "csv" else None
    when = rng.choice([{"field": "consent", "equals": "no"}, {"not": {"field": "consent", "equals": "yes"}}])
    says = {"field": field, "in": rng.sample(values, min(len(values), rng.choice([1, 2])))}
    case.policy["privacy"] = [c for c in case.policy["privacy"] if "confidential" not in c and "min-security" not in c]
    case.policy["privacy"].append({"confidential": {"sentences": [{**says, "when": when}]}})
    if rng.random() < 0.3 and case.mode != "sliding":
        case.search["learn_priors"] = True


def carriers(case, rng):
    case.stdio = False
    case.records = [record for record in case.records if not isinstance(record, str)]
    for number, record in enumerate(case.records):
        record[LINK] = f"r{number}"
    encoding = rng.choice(["utf-8", "latin-1", "utf-16-le", "utf-16-be"])
    wrapping = case.source, case.source == "jsonl" and rng.random() < 0.6, rng.random() < 0.5
    case.shape = Carried(*wrapping, encoding)
    try:
        case.shape.write(case, case.records)
    except UnicodeEncodeError:
        case.shape = Carried(*wrapping, "utf-16-le")


def row_levels(case, rng):
    recode(case, rng)
    case.policy["row_levels"] = True
    case.policy.pop("render", None)


def alternatives(case, rng):
    """Hierarchies that do not nest in each other, for numbers and dates."""
    case.search = {"seed": case.search["seed"]}
    if case.policy["loss"] in ("ql", "score", "entropy"):
        case.policy["loss"] = "glm"
    case.policy.pop("render", None)
    case.stdio = False
    keep = case.policy.get("keep", [])
    case.policy["keep"] = keep if LINK in keep else keep + [LINK]
    for quasi in case.policy["quasi_identifiers"]:
        definition = quasi["hierarchy"]
        if "intervals" in definition:
            spec = definition["intervals"]
            other = {"intervals": spec | {"widths": rng.choice([[7], [3, 9], [spec["widths"][0], 14]])}}
            widths = [Decimal(str(width)) for width in other["intervals"]["widths"]]
            if any(b % a or a == b for a, b in zip(widths, widths[1:])):
                continue
        elif "date" in definition:
            spec = definition["date"] if isinstance(definition["date"], dict) else {"units": definition["date"]}
            if spec["units"][0] != "day":
                continue
            other = {"date": spec | {"units": rng.choice([["day", "week"], ["day", "quarter"], ["day", "month", "decade"]])}}
            if other["date"]["units"] == spec["units"]:
                continue
        else:
            continue
        quasi["hierarchy"] = {"any_of": [definition, other]}
        quasi.pop("min_level", None)
        quasi.pop("max_level", None)
    case.__dict__.pop("built", None)


# By number: the feature, the mode of the base case, and its formats (None: whatever comes).
TEXT = ["csv", "jsonl"]
FEATURES = {
    1: (slides, ["sliding"], None, None),
    2: (changes, ["sliding"], None, None),
    3: (audiences, ["tumbling", "hold"], None, TEXT),
    4: (shapes, ["anonymize", "tumbling", "hold", "sliding"], ["jsonl"], TEXT),
    5: (explode, ["tumbling"], ["jsonl"], TEXT),
    6: (debezium, ["tumbling", "hold", "sliding"], ["jsonl"], TEXT),
    7: (arrays, ["anonymize", "tumbling", "hold", "sliding"], ["jsonl"], ["jsonl"]),
    8: (sequential, ["tumbling", "hold"], None, None),
    9: (consent, ["anonymize", "tumbling", "hold", "sliding"], None, None),
    10: (carriers, ["anonymize", "tumbling"], TEXT, None),
    11: (row_levels, ["anonymize", "tumbling"], None, TEXT),
    12: (alternatives, ["anonymize", "tumbling", "hold"], None, None),
}


def make(number, base, build):
    """The case of a feature; `build(seed, mode, source, sink)` makes the case that it starts from."""
    feature, modes, sources, sinks = FEATURES[number]
    rng = random.Random(f"{number}/{base}")
    pick = lambda names: rng.choice(names) if names else None
    case = build(base, pick(modes), pick(sources), pick(sinks))
    feature(case, rng)
    case.feature = feature.__name__
    return case
