"""What a value becomes at each level, by the definitions of the configuration alone.

Every hierarchy has `height`, `leaf(value)` (the value's place, or None outside), `label(leaf, level)`, `interval(leaf, level)`
(the text with `render: interval`) and `loss(leaf, level)` (the share of leaves that the label no longer tells apart). `TOP` is
the place of a value that the policy publishes as the top.
"""

import datetime
import re
import unicodedata
from decimal import Decimal

TOP = object()
NUMBER = re.compile(r"(-|\+)?\d+(\.\d+)?([eE][+-]?\d+)?\Z", re.ASCII)
# Unicode's Default_Ignorable_Code_Point: characters that show nothing.
IGNORABLE = [(0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
             (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
             (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)]
INVISIBLE = {code: None for first, last in IGNORABLE for code in range(first, last + 1)}


def number(text):
    """The number that a text spells, or None."""
    return Decimal(text) if NUMBER.match(text) else None


def plain(number):
    """A number in its one usual spelling."""
    if number == 0:
        return "0"
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def text_of(value):
    """The text under which a scalar is looked up; None for null and for what is no scalar."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Decimal)):
        return plain(Decimal(value))
    if isinstance(value, str):
        return value.strip() if value.isascii() else unicodedata.normalize("NFC", value.translate(INVISIBLE)).strip()
    return None


class Hierarchy:
    """What all kinds share. A kind has `place`, `name` and `share` for what is below its top."""

    top = "*"
    measure = "category"

    def leaf(self, value):
        text = text_of(value)
        return None if text is None else self.place(text)

    def label(self, leaf, level):
        if leaf is TOP or level == self.height:
            return self.top
        return self.name(leaf, level)

    def interval(self, leaf, level):
        if leaf is TOP or not 0 < level < self.height:
            return self.label(leaf, level)
        return self.range(leaf, level)

    def range(self, leaf, level):
        return self.label(leaf, level)

    def loss(self, leaf, level):
        if leaf is TOP or level == self.height:
            return 1.0
        return 0.0 if level == 0 else self.share(leaf, level)


class Intervals(Hierarchy):
    measure = "number"

    def __init__(self, spec):
        self.widths = [Decimal(str(w)) for w in spec["widths"]]
        self.low, self.high = Decimal(str(spec["min"])), Decimal(str(spec["max"]))
        self.origin = Decimal(str(spec.get("origin", 0)))
        self.open = spec.get("open", "none")
        self.height = len(self.widths) + 1
        numbers = self.widths + [self.low, self.high, self.origin]
        self.whole = all(n == n.to_integral_value() for n in numbers)

    def beyond(self):
        below = ["<" + plain(self.low)] if self.open in ("low", "both") else []
        return below + ([">" + plain(self.high)] if self.open in ("high", "both") else [])

    def place(self, text):
        if text in self.beyond():
            return text
        value = number(text)
        if value is None:
            return None
        if value < self.low:
            return "<" + plain(self.low) if self.open in ("low", "both") else None
        if value > self.high:
            return ">" + plain(self.high) if self.open in ("high", "both") else None
        return value

    def ends(self, leaf, level):
        width = self.widths[level - 1]
        steps = ((leaf - self.origin) / width).to_integral_value(rounding="ROUND_FLOOR")
        start = self.origin + steps * width
        return start, start + width

    def name(self, leaf, level):
        if isinstance(leaf, str):
            return leaf
        if level == 0:
            return plain(leaf)
        start, end = self.ends(leaf, level)
        return f"[{plain(start)},{plain(end)})"

    def range(self, leaf, level):
        if isinstance(leaf, str):
            return leaf
        start, end = self.ends(leaf, level)
        start = max(start, self.low)
        return f"[{plain(start)},{plain(self.high)}]" if end > self.high else f"[{plain(start)},{plain(end)})"

    def share(self, leaf, level):
        if isinstance(leaf, str):
            return 0.0
        start, end = self.ends(leaf, level)
        if not self.whole:
            return float((min(end, self.high) - max(start, self.low)) / (self.high - self.low))
        below = min(end - 1, self.high) - max(start, self.low) + 1
        leaves = self.high - self.low + 1 + len(self.beyond())
        return float((below - 1) / (leaves - 1))


class Prefix(Hierarchy):
    measure = "code"

    def __init__(self, spec):
        self.height = spec["length"]
        self.alphabet, self.mask = spec.get("alphabet", 10), spec.get("mask", "*")
        self.top = self.mask * self.height

    def place(self, text):
        return text if len(text) == self.height and self.mask not in text else None

    def name(self, leaf, level):
        return leaf[: self.height - level] + self.mask * level

    def share(self, leaf, level):
        return (self.alphabet**level - 1) / (self.alphabet**self.height - 1)


class Dates(Hierarchy):
    measure = "date"

    def __init__(self, spec):
        spec = {"units": spec} if isinstance(spec, list) else spec
        self.units, self.format = spec["units"], spec.get("format")
        self.height = len(self.units)
        day = lambda key: datetime.date.fromisoformat(spec[key]) if key in spec else None
        self.low, self.high = day("min"), day("max")
        self.counted = (self.low or datetime.date(1900, 1, 1), self.high or datetime.date(2099, 12, 31))

    @staticmethod
    def unit(unit, day):
        year, month = day.year, day.month
        week = day.isocalendar()
        return {
            "day": day.isoformat(),
            "week": f"{week[0]:04}-W{week[1]:02}",
            "month": f"{year:04}-{month:02}",
            "quarter": f"{year:04}-Q{(month + 2) // 3}",
            "year": f"{year:04}",
            "decade": f"{year - year % 10:04}s",
            "century": f"{year - year % 100:04}-{year - year % 100 + 99:04}",
        }[unit]

    @staticmethod
    def span(unit, day):
        """The first and the last day of the unit around a day."""
        one = datetime.timedelta(days=1)
        if unit == "day":
            return day, day
        if unit == "week":
            monday = day - one * day.weekday()
            return monday, monday + 6 * one
        if unit in ("month", "quarter"):
            length = 1 if unit == "month" else 3
            first = day.replace(month=(day.month - 1) // length * length + 1, day=1)
            after = first.month + length
            last = datetime.date(first.year + (after > 12), after - 12 * (after > 12), 1) - one
            return first, last
        length = {"year": 1, "decade": 10, "century": 100}[unit]
        year = day.year - day.year % length
        return datetime.date(year, 1, 1), datetime.date(year + length - 1, 12, 31)

    def read(self, text):
        """The days that a text may mean, first and last; None if it is no date."""
        try:
            if self.format:
                if not re.fullmatch(r"\d\d/\d\d/\d{4}", text):
                    return None
                day = datetime.datetime.strptime(text, self.format).date()
                return day, day
            if re.fullmatch(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ?)?", text):
                day = datetime.date.fromisoformat(text[:10])
                return day, day
            if self.units[0] == "month" and re.fullmatch(r"\d{4}-\d\d", text):
                return self.span("month", datetime.date.fromisoformat(text + "-01"))
            if self.units[0] == "year" and re.fullmatch(r"\d{4}", text):
                return self.span("year", datetime.date(int(text), 1, 1))
        except ValueError:
            pass
        return None

    def place(self, text):
        days = self.read(text)
        if days is None or (self.low and days[1] < self.low) or (self.high and days[0] > self.high):
            return None
        return self.span(self.units[0], days[0])[0]

    def name(self, leaf, level):
        return self.unit(self.units[level], leaf)

    def range(self, leaf, level):
        first, last = self.span(self.units[level], leaf)
        return f"[{max(first, self.low or first).isoformat()},{min(last, self.high or last).isoformat()}]"

    def share(self, leaf, level):
        first, last = self.span(self.units[level], leaf)
        start, end = max(first, self.counted[0]), min(last, self.counted[1])
        days = (end - start).days if start <= end else (last - first).days
        return days / (self.counted[1] - self.counted[0]).days


class Listed(Hierarchy):
    """Values that are written down, each with its labels from itself to the top."""

    def __init__(self, paths):
        self.paths = {path[0]: path for path in paths}
        self.height = len(paths[0]) - 1
        self.top = paths[0][-1]
        numbers = [number(leaf) for leaf in self.paths]
        if all(n is not None and leaf in (plain(n), self.padded(leaf, n)) for n, leaf in zip(numbers, self.paths)):
            self.measure = "number"

    @staticmethod
    def padded(leaf, value):
        """The leaf itself, if it only has zeros behind its fraction."""
        return leaf if "." in leaf and leaf.rstrip("0").rstrip(".") == plain(value) else None

    def place(self, text):
        if text in self.paths:
            return text
        value = number(text)
        if value is None or text not in (plain(value), self.padded(text, value)):
            return None
        if plain(value) in self.paths:
            return plain(value)
        alike = [leaf for leaf in self.paths if number(leaf) == value and self.padded(leaf, value)]
        return alike[0] if len(alike) == 1 else None

    def name(self, leaf, level):
        return self.paths[leaf][level]

    def below(self, leaf, level):
        return [other for other, path in self.paths.items() if path[level] == self.paths[leaf][level]]

    def range(self, leaf, level):
        if self.measure != "number":
            return self.name(leaf, level)
        numbers = [number(other) for other in self.below(leaf, level)]
        return f"[{plain(min(numbers))},{plain(max(numbers))}]"

    def share(self, leaf, level):
        return 0.0 if len(self.paths) == 1 else (len(self.below(leaf, level)) - 1) / (len(self.paths) - 1)


class Trivial(Hierarchy):
    height = 1

    def place(self, text):
        return TOP if text == self.top else text

    def name(self, leaf, level):
        return leaf

    def share(self, leaf, level):
        return 1.0


class Alternatives(Hierarchy):
    """Several hierarchies of the same numbers or days. A level has one number over all of them: finer ones first, then by level,
    then in the order in which they are written; a level that two share has one."""

    def __init__(self, chains):
        self.chains, self.measure = chains, chains[0].measure
        places, self.places = [(c, l) for c, chain in enumerate(chains) for l in range(chain.height + 1)], []
        same = lambda a, b: self.nests(a, b) and self.nests(b, a)
        places = [p for i, p in enumerate(places) if not any(same(p, other) for other in places[:i])]
        while places:
            first = [p for p in places if not any(o != p and self.nests(o, p) for o in places)]
            self.places.append(min(first, key=lambda place: place[::-1]))
            places.remove(self.places[-1])
        self.height = len(self.places) - 1

    def nests(self, fine, coarse):
        """True if values that are alike at one place are alike at the other."""
        (c, l), (d, m) = fine, coarse
        a, b = self.chains[c], self.chains[d]
        if c == d or l == 0 or m == b.height:
            return l <= m if c == d else True
        if m == 0 or l == a.height:
            return False
        if self.measure == "number":
            return b.widths[m - 1] % a.widths[l - 1] == 0
        order = ["day", "month", "quarter", "year", "decade", "century"]
        units = a.units[l], b.units[m]
        return units[0] == units[1] or "week" not in units and order.index(units[0]) <= order.index(units[1])

    def refines(self, fine, coarse):
        return self.nests(self.places[fine], self.places[coarse])

    def place(self, text):
        return self.chains[0].place(text)

    def label(self, leaf, level):
        chain, own = self.places[level]
        return self.chains[chain].label(leaf, own)

    def interval(self, leaf, level):
        chain, own = self.places[level]
        return self.chains[chain].interval(leaf, own)


def tree_paths(roots):
    """One path per leaf, as long as the deepest; a leaf that lies higher is repeated."""
    roots = roots if isinstance(roots, list) else [roots]
    paths = []

    def walk(node, above):
        above = [node["label"]] + above
        if not node.get("children"):
            paths.append(above)
        for child in node.get("children", []):
            walk(child, above)

    single = len(roots) == 1 and roots[0].get("children")
    for root in roots:
        walk(root, [] if single else ["*"])
    depth = max(map(len, paths))
    return [[path[0]] * (depth - len(path)) + path for path in paths]


def build(definition, files):
    """The hierarchy of a definition; `files` holds the text of the files that it names."""
    if definition == "trivial":
        return Trivial()
    (kind, spec), = definition.items()
    if kind == "csv":
        return Listed([line.split(";") for line in files[spec].splitlines()])
    if kind == "tree":
        return Listed(tree_paths(spec))
    if kind == "any_of":
        return Alternatives([build(chain, files) for chain in spec])
    return {"intervals": Intervals, "prefix": Prefix, "date": Dates}[kind](spec)
