"""A real browser opens both pages of the console, on a desk, on a phone and in the dark.

Usage: browser.py BINARY [--screenshots FOLDER]
"""

import os
import subprocess
import sys
import tempfile

from chromium import ELEMENT, Browser, Driver, axe, fits, is_accessible, is_readable_by_all
from service import CANARIES, POLICY, Service, wait_until


def shows_the_release(browser, service):
    """What was just published is on the page, and the page follows without being asked."""
    newest = service.wait_for_releases(3)
    # A page is good for a second, whoever asks: the one before the first release may still be served.
    wait_until("the page shows the release", lambda: browser.open(f"http://{service.address}/") or newest in browser.body())
    wait_until("the page compares recodings", lambda: browser.open(f"http://{service.address}/") or " records of the window of " in browser.body())
    service.send(service.people(1000, seed=7))
    service.wait_for_releases(4)
    following = service.status()["last_releases"][0]["release_id"]
    assert following != newest
    wait_until("the page follows", lambda: following in browser.body())
    assert not browser.complaints(), browser.complaints()


def says_the_verdict(browser, colour):
    """The first line says whether the releases are safe, in words and in a colour that other text does not have."""
    verdict = browser.find("#verdict")[0]
    said = browser.text(verdict)
    assert said.startswith("Safe: all ") and " met the policy. " in said and " % left out. " in said and " Age " in said, said
    assert browser.run("return getComputedStyle(arguments[0]).color", {ELEMENT: verdict}) == colour, said
    first = browser.run("return document.querySelector('h1').getBoundingClientRect().top < arguments[0].getBoundingClientRect().top"
                        " && arguments[0].getBoundingClientRect().bottom < document.querySelector('main').getBoundingClientRect().top",
                        {ELEMENT: verdict})
    assert first, "the verdict stands above everything else"
    heads = browser.run("return [...document.querySelectorAll('main > h2')].map((h) => h.textContent)")
    assert heads == ["What is lost", "Who is at risk", "What to change", "Releases"], heads


def speaks_in_words(browser):
    """The person who answers for the releases reads of detail, not of metrics; what another recoding would cost stands beside it."""
    said = browser.body()
    assert " of the detail is given up (" in said and " and one in twenty " in said, said
    assert "\nfull-domain (as published)" in said or "full-domain (as published)" in said, said
    for figure in ["glm", "dm", "loss metric"]:
        assert f" {figure} " not in f" {said} ".replace("\n", " "), figure


def unmoved(act):
    """The page replaces itself every few seconds, also between two looks at it: then look again."""
    for _ in range(5):
        try:
            return act()
        except AssertionError as error:
            if "stale element" not in str(error):
                raise
    return act()


def clicked(browser):
    points = browser.find('svg a[href^="#point-"]')
    assert len(points) >= 2, "a front of some points"
    # The last one drawn is the picked one, which is shown anyway: take another.
    browser.click(points[0])
    shown = browser.visible(".point")
    assert len(shown) == 1, "one point at a time"
    return browser.text(browser.visible(".point pre.copy")[0])


def copies_a_point(browser, binary):
    """A click on a point of the picture shows a configuration that `validate` accepts."""
    yaml = unmoved(lambda: clicked(browser))
    assert yaml.startswith("window:\n  levels: fixed\n  fixed_levels: { age: "), yaml
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "policy.yaml")
        with open(path, "w") as file:
            file.write(POLICY.replace("window:\n", yaml + "\n"))
        done = subprocess.run([binary, "validate", "-c", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr



def is_silent(service, browser):
    for what, text in [("page", browser.source()), ("status", service.get("/status.json")[1]),
                       ("metrics", service.get("/metrics")[1]), ("errors", service.get("/nowhere")[1]), ("logs", "".join(service.logs))]:
        assert "canary" not in text, what


def strangers_are_refused(driver, binary, service):
    """A foreign name, no token and a wrong token all see nothing."""
    port = service.address.rsplit(":", 1)[1]
    with Browser(driver) as browser:
        browser.open(f"http://evil.example:{port}/")
        assert "ask for localhost" in browser.body() and "loss" not in browser.body(), browser.body()
    locked = Service(binary, "http: { listen: 127.0.0.1:0, token: tr0ub4dor }\n")
    try:
        for path in ("/", "/status.json", "/metrics"):
            assert locked.get(path)[0] == 401, path
        with Browser(driver) as browser:
            browser.open(f"http://anybody:wrong@{locked.address}/")
            assert "Veilstream" not in browser.source(), "with a wrong token"
        with Browser(driver) as browser:
            browser.open(f"http://anybody:tr0ub4dor@{locked.address}/")
            assert "Veilstream" in browser.body(), browser.body()
    finally:
        locked.end()


FORMS = [("desktop", None, False), ("desktop-dark", None, True), ("phone", (390, 844), False), ("phone-dark", (390, 844), True)]


def form(driver, mobile, dark):
    """A browser in one of the forms that people read in."""
    browser = Browser(driver, mobile=mobile, flags=["--force-dark-mode"] if dark else [])
    browser.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {
        "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]}})
    return browser


def every_form(driver, service, checker, shot):
    """Both pages in every form: whole, legible, and without a violation."""
    for name, mobile, dark in FORMS:
        with form(driver, mobile, dark) as browser:
            for page, path, pictures in [("console", "/", 5), ("engine", "/engine", 3)]:
                browser.open(f"http://{service.address}{path}")
                fits(browser)
                colour = browser.run("return getComputedStyle(document.body).backgroundColor")
                assert colour == ("rgb(20, 23, 28)" if dark else "rgb(251, 251, 252)"), colour
                unmoved(lambda: is_readable_by_all(browser, pictures))
                is_accessible(browser, checker)
                browser.screenshot(shot(f"{page}-{name}.png"))
            if dark and mobile:
                browser.open(f"http://{service.address}/")
                unmoved(lambda: says_the_verdict(browser, "rgb(108, 196, 147)"))


def finds_its_way(browser, service):
    """Pages, time ranges and filters are links, and each leads to a page that says where the reader is."""
    browser.open(f"http://{service.address}/")
    here = "return [...document.querySelectorAll('nav [aria-current]')].map((a) => a.textContent)"
    assert browser.run(here) == ["Releases", "all", "all"], browser.run(here)
    rows = "return document.querySelectorAll('[aria-label=Releases] tbody tr').length"
    assert browser.run(rows) >= 4
    browser.open(f"http://{service.address}/?since=15m&releases=unmet")
    assert browser.run(here) == ["Releases", "15 minutes", "nothing published"], browser.run(here)
    assert "There is no such release in this time." in browser.body()
    browser.open(f"http://{service.address}/engine?since=1h")
    assert browser.run(here) == ["Engine room", "1 hour"], browser.run(here)
    heads = browser.run("return [...document.querySelectorAll('main > h2')].map((h) => h.textContent)")
    assert heads == ["Records", "Search", "Manifests"], heads
    assert browser.run("return document.querySelectorAll('svg circle title').length") >= 10, "nodes say what they are"


def main(binary, screenshots):
    shot = (lambda name: os.path.join(screenshots, name)) if screenshots else (lambda name: None)
    checker = axe()
    service, driver = Service(binary), Driver()
    try:
        headers = service.get("/")[2]
        assert "default-src 'none'" in headers["Content-Security-Policy"] and "Access-Control-Allow-Origin" not in headers
        with Browser(driver) as browser:
            browser.open(f"http://{service.address}/")
            assert "Nothing has been published yet: the first window is filling." in browser.body()
            is_accessible(browser, checker)
            browser.screenshot(shot("console-empty.png"))
        service.send(CANARIES + service.people(3000))
        with Browser(driver) as browser:
            shows_the_release(browser, service)
            unmoved(lambda: says_the_verdict(browser, "rgb(26, 107, 60)"))
            speaks_in_words(browser)
            is_silent(service, browser)
            browser.open(f"http://{service.address}/engine")
            copies_a_point(browser, binary)
            is_silent(service, browser)
            finds_its_way(browser, service)
        every_form(driver, service, checker, shot)
        with Browser(driver, scripts=False) as browser:
            browser.open(f"http://{service.address}/engine")
            copies_a_point(browser, binary)
        strangers_are_refused(driver, binary, service)
        checked = "" if checker else "; accessibility NOT checked: axe-core cannot be had here"
        print(f"ok: the console in Chromium, with and without scripts, on a desk and a phone, light and dark, closed to strangers{checked}")
    finally:
        driver.end()
        service.end()


if __name__ == "__main__":
    folder = sys.argv[sys.argv.index("--screenshots") + 1] if "--screenshots" in sys.argv else None
    if folder:
        os.makedirs(folder, exist_ok=True)
    main(os.path.abspath(sys.argv[1]), folder)
