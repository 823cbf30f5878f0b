"""Several soaks side by side, one for each kind of release, and a table of what came of them.

    tests/kafka/soaks.py BINARY [--kinds tumbling,hold,local,sequential,sliding] [--seed 1] [MORE...]

Each kind has a broker and a seed of its own: `--seed` and those after it. MORE is for every `tests/soak`: `--minutes 20 --kills 340
--rate 300`, for instance. The verdicts are in files whose names are printed. Ends with 0 if all soaks passed.
"""

import argparse
import pathlib
import re
import signal
import subprocess
import sys

import cluster as c

# The arguments of each kind. Forgeries are of rows of tumbling windows.
KINDS = {
    "tumbling": ["--controls"],
    "hold": ["--action", "hold", "--controls"],
    "local": ["--recoding", "local", "--controls"],
    "sequential": ["--sequential", "--controls"],
    "sliding": ["--window", "sliding"],
}


def row(kind, text, code):
    """A line of the table."""
    figures = dict(re.findall(r"(kill|freeze|records|published) (\d+)", text.partition("figures: ")[2].partition("\n")[0]))
    violated = re.findall(r"^(I\d): \d+ violations", text, re.M)
    restarts = re.search(r"restart to first commit: (.*)", text)
    shown = [kind, "passed" if code == 0 else "FAILED", " ".join(violated) or "none", *(figures.get(name, "-") for name in ("kill", "records")),
             restarts.group(1) if restarts else "-"]
    return f"| {' | '.join(shown)} |"


def main():
    parser = argparse.ArgumentParser(prog="tests/kafka/soaks.py", description=__doc__.split("\n")[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--kinds", default=",".join(KINDS), help="which, by commas (default all)")
    parser.add_argument("--seed", type=int, default=1, help="of the first; the others have those after it (default 1)")
    args, more = parser.parse_known_args()
    kinds = args.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"there is no kind {' '.join(unknown)}")
    soak, runs = pathlib.Path(__file__).with_name("soak.py"), {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for seed, kind in enumerate(kinds, args.seed):
            log = c.RUN / f"soak-{kind}-{seed}.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, soak, "--binary", args.binary, "--seed", str(seed), *KINDS[kind], *more]
            runs[kind] = (subprocess.Popen(command, stdout=open(log, "w"), stderr=subprocess.STDOUT), log)
            print(f"{kind}: seed {seed}, {log}", flush=True)
        codes = {kind: process.wait() for kind, (process, _) in runs.items()}
    finally:
        for process, _ in runs.values():
            process.terminate()
    print("| kind | soak | violations | kills | records | from restart to first commit |\n|---|---|---|---|---|---|")
    for kind, (_, log) in runs.items():
        print(row(kind, log.read_text(), codes[kind]))
    return 1 if any(codes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
