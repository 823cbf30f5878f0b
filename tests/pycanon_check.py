#!/usr/bin/env python3
"""An independent count of a released CSV file: pycanon (PyPI) must find what the policy asks for.

    pycanon_check.py OUT.csv --quasi age zip --k 5
                     [--l FIELD:3 ...] [--entropy-l FIELD:3 ...] [--t FIELD:0.2 ...] [--alpha-k FIELD:0.6 ...]
                     [--expect-k 7] [--expect-l FIELD:4 ...] [--expect-t FIELD:0.17 ...]

Every bound that is given must hold. An `--expect` figure, as our manifest reports it, must be what pycanon finds: whole
figures exactly, shares to six digits. pycanon takes the ordered distance for t where a column is numeric, and the equal
distance where it is not; `--as-text FIELD` makes it read a numeric column as text. Prints one JSON object; exit 0 if all
agrees, 1 if something does not, 2 on bad usage.
"""

import argparse
import json
import sys


def pairs(items):
    for item in items:
        field, _, figure = item.rpartition(":")
        if not field:
            sys.exit(f"expected FIELD:FIGURE, found {item!r}")
        yield field, float(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("--quasi", nargs="+", required=True)
    parser.add_argument("--delimiter", default=",")
    parser.add_argument("--as-text", nargs="*", default=[])
    parser.add_argument("--k", type=int)
    parser.add_argument("--expect-k", type=int)
    for name in ["l", "entropy-l", "t", "alpha-k", "expect-l", "expect-t"]:
        parser.add_argument(f"--{name}", nargs="*", default=[], metavar="FIELD:FIGURE")
    given = parser.parse_args()

    import pandas
    from pycanon import anonymity

    text = {name: str for name in given.quasi + given.as_text}
    data = pandas.read_csv(given.csv, sep=given.delimiter, dtype=text, keep_default_na=False)
    missing = [name for name in given.quasi if name not in data.columns]
    if missing:
        sys.exit(f"no such column: {', '.join(missing)}")

    found, wrong = {}, []

    def check(name, figure, holds):
        found[name] = figure
        if not holds(figure):
            wrong.append(name)

    k = int(anonymity.k_anonymity(data, given.quasi))
    check("k", k, lambda k: (given.k is None or k >= given.k) and (given.expect_k is None or k == given.expect_k))
    for field, least in pairs(given.l):
        check(f"l {field}", int(anonymity.l_diversity(data, given.quasi, [field])), lambda l: l >= least)
    for field, least in pairs(given.entropy_l):
        # pycanon rounds the entropy variant down to a whole number.
        check(f"entropy l {field}", int(anonymity.entropy_l_diversity(data, given.quasi, [field])),
              lambda l: l >= int(least))
    for field, most in pairs(given.t):
        check(f"t {field}", float(anonymity.t_closeness(data, given.quasi, [field])), lambda t: t <= most + 1e-9)
    for field, most in pairs(given.alpha_k):
        alpha, k = anonymity.alpha_k_anonymity(data, given.quasi, [field])
        check(f"alpha {field}", float(alpha), lambda a: a <= most + 1e-9)
    for field, expected in pairs(given.expect_l):
        check(f"expected l {field}", int(anonymity.l_diversity(data, given.quasi, [field])),
              lambda l: l == int(expected))
    for field, expected in pairs(given.expect_t):
        check(f"expected t {field}", float(anonymity.t_closeness(data, given.quasi, [field])),
              lambda t: abs(t - expected) < 1e-6)
    print(json.dumps({"agrees": not wrong, "found": found, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
