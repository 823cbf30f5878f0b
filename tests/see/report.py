"""A real browser opens the report of `anonymize`: of a release and of a failed run, on a desk, on a phone, in the dark and on paper.

Usage: report.py BINARY [--screenshots FOLDER]
"""

import base64
import os
import re
import subprocess
import sys
import tempfile

from browser import FORMS, form
from chromium import Browser, Driver, axe, fits, is_accessible, is_readable_by_all
from service import POLICY

SECTIONS = ["Risk before and after", "What was asked, and what was reached", "The classes at most risk", "What was done to each attribute",
            "Each attribute before and after", "What the release is still good for", "What became of the records",
            "What another policy would do", "Who could find whom", "Classes by size", "The policy", "How the generalization was found",
            "What this report is about"]


def made(binary, folder, policy, name, expected):
    """Runs `anonymize` on a synthetic population with a few planted values that nobody else has."""
    people = os.path.join(folder, "people.csv")
    with open(people, "wb") as file:
        subprocess.run([binary, "generate", "--records", "3000", "--seed", "4", "--format", "csv"], stdout=file, check=True)
    with open(people) as file:
        head, row, *rows = file.read().splitlines()
    cells = dict(zip(head.split(","), row.split(",")))
    cells.update(occupation="canary", user_id="canary-person")
    with open(people, "w") as file:
        file.write("\n".join([head, ",".join(cells[field] for field in head.split(",")), *rows]) + "\n")
    config = os.path.join(folder, f"{name}.yaml")
    with open(config, "w") as file:
        file.write(policy + "http: { listen: 127.0.0.1:0, token: s3cret }\n")
    page, out = os.path.join(folder, f"{name}.html"), os.path.join(folder, f"{name}.csv")
    done = subprocess.run([binary, "anonymize", "-c", config, people, "-o", out, "--report", page], capture_output=True, text=True)
    assert done.returncode == expected, done.stderr
    return config, out, page


def is_whole(page):
    """What the page must say, and what it must not."""
    with open(page) as file:
        text = file.read()
    for wanted in ["people.csv", "Veilstream 0.", "The policy is met: ", "k-anonymity: 5", "min_level: ", "recoding: local"]:
        assert wanted in text, wanted
    for forbidden in ["canary", "s3cret"]:
        assert forbidden not in text, forbidden
    heads = re.findall(r"<h2>(.*?)</h2>", text)
    assert heads == SECTIONS, heads


def is_about_the_file(binary, config, out, page):
    """`verify --report` accepts the file, and neither another file nor another policy."""
    verify = lambda *more: subprocess.run([binary, "verify", "-c", config, out, "--report", page, *more], capture_output=True, text=True)
    assert verify().returncode == 0, verify().stderr
    with open(out, "a") as file:
        file.write("\n")
    assert verify().returncode == 1 and "is about another file" in verify().stderr, verify().stderr


def prints(browser, page, path):
    """On paper: dark on white, and nothing cut off."""
    browser.open(f"file://{page}")
    browser.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print", "features": [
        {"name": "prefers-color-scheme", "value": "dark"}]}})
    colours = browser.run("const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]")
    assert colours == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"], colours
    printed = browser.call("POST", "/goog/cdp/execute", {"cmd": "Page.printToPDF", "params": {"preferCSSPageSize": True}})
    pdf = base64.b64decode(printed["data"])
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    # Two attributes stand side by side.
    assert 3 <= pages <= 12, f"{pages} pages"
    if path:
        with open(path, "wb") as file:
            file.write(pdf)


def main(binary, screenshots):
    shot = (lambda name: os.path.join(screenshots, name)) if screenshots else (lambda name: None)
    checker, driver = axe(), Driver()
    try:
        with tempfile.TemporaryDirectory(prefix="veilstream-report-") as folder:
            config, out, page = made(binary, folder, POLICY, "report", 0)
            is_whole(page)
            is_about_the_file(binary, config, out, page)
            failed = made(binary, folder, POLICY.replace("l: 2", "l: 99"), "failed", 1)[2]
            for name, mobile, dark in FORMS:
                with form(driver, mobile, dark) as browser:
                    for kind, path, pictures in [("report", page, 8), ("failed", failed, 1)]:
                        browser.open(f"file://{path}")
                        fits(browser)
                        cut = browser.run("return [...document.querySelectorAll('.scroll')].filter(s => s.scrollHeight > s.clientHeight + 1).length")
                        assert cut == 0, f"{cut} tables of the report are cut"
                        is_readable_by_all(browser, pictures)
                        is_accessible(browser, checker)
                        browser.screenshot(shot(f"{kind}-{name}.png"))
            with Browser(driver) as browser:
                browser.open(f"file://{failed}")
                assert "Why nothing was published" in browser.body() and "The policy is not met" in browser.body()
                prints(browser, page, shot("report.pdf"))
        checked = "" if checker else "; accessibility NOT checked: axe-core cannot be had here"
        print(f"ok: the report in Chromium, on a desk and a phone, light and dark, and on paper{checked}")
    finally:
        driver.end()


if __name__ == "__main__":
    folder = sys.argv[sys.argv.index("--screenshots") + 1] if "--screenshots" in sys.argv else None
    if folder:
        os.makedirs(folder, exist_ok=True)
    main(os.path.abspath(sys.argv[1]), folder)
