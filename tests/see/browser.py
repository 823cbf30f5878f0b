"""A real browser opens the console: headless Chromium, driven over WebDriver.

Usage: browser.py BINARY [--screenshots FOLDER]
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

from service import CANARIES, POLICY, Service, free_port, wait_until

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Driver:
    """chromedriver, and the sessions in it."""

    def __init__(self):
        self.port = free_port()
        self.process = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        wait_until("chromedriver answers", self._up)

    def _up(self):
        try:
            return self.call("GET", "/status")["ready"]
        except OSError:
            return False

    def call(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()[:500]}") from error

    def end(self):
        self.process.terminate()
        self.process.wait()


class Browser:
    """One session with a profile of its own."""

    def __init__(self, driver, flags=(), mobile=None, scripts=True):
        self.driver = driver
        self.profile = tempfile.TemporaryDirectory(prefix="veilstream-chromium-")
        options = {"args": FLAGS + [f"--user-data-dir={self.profile.name}", "--window-size=1280,1000", *flags]}
        if mobile:
            options["mobileEmulation"] = {"deviceMetrics": {"width": mobile[0], "height": mobile[1], "pixelRatio": 2.0}}
        if not scripts:
            options["prefs"] = {"profile.managed_default_content_settings.javascript": 2}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.id = driver.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.call("DELETE", f"/session/{self.id}")
        self.profile.cleanup()

    def call(self, method, path, body=None):
        return self.driver.call(method, f"/session/{self.id}{path}", body)

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, css):
        return [element[ELEMENT] for element in self.call("POST", "/elements", {"using": "css selector", "value": css})]

    def text(self, element):
        return self.call("GET", f"/element/{element}/text")

    def visible(self, css):
        return [element for element in self.find(css) if self.call("GET", f"/element/{element}/displayed")]

    def click(self, element):
        self.call("POST", f"/element/{element}/click", {})

    def source(self):
        return self.call("GET", "/source")

    def body(self):
        return self.text(self.find("body")[0])

    def complaints(self):
        return [entry for entry in self.call("POST", "/se/log", {"type": "browser"}) if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, path):
        high = self.run("return document.documentElement.scrollHeight") if path else 0
        if path:
            size = self.call("POST", "/goog/cdp/execute", {"cmd": "Page.captureScreenshot", "params": {"captureBeyondViewport": True}})
            with open(path, "wb") as file:
                file.write(base64.b64decode(size["data"]))
            assert high > 0


def shows_the_release(browser, service):
    """What was just published is on the page, and the page follows without being asked."""
    newest = service.wait_for_releases(3)
    # A page is good for a second, whoever asks: the one before the first release may still be served.
    wait_until("the page shows the release", lambda: browser.open(f"http://{service.address}/") or newest in browser.body())
    wait_until("the page shows the search", lambda: browser.open(f"http://{service.address}/") or browser.find('svg a[href^="#point-"]'))
    service.send(service.people(1000, seed=7))
    service.wait_for_releases(4)
    following = service.status()["last_releases"][0]["release_id"]
    assert following != newest
    wait_until("the page follows", lambda: following in browser.body())
    assert not browser.complaints(), browser.complaints()


def is_readable_by_all(browser):
    """A name and a description for every picture, a table behind it, and no name twice."""
    wrong = browser.run("""
        const wrong = [];
        for (const svg of document.querySelectorAll('figure svg')) {
            const names = (svg.getAttribute('aria-labelledby') || '').split(' ');
            if (names.length !== 2 || !names.every((id) => document.getElementById(id)?.textContent)) wrong.push('unnamed picture');
            const card = svg.closest('section');
            if (!card.querySelector('table') && !card.querySelector('pre')) wrong.push('no table behind ' + names[0]);
        }
        const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
        for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push('twice: ' + id);
        if (document.querySelectorAll('h1').length !== 1 || !document.documentElement.lang) wrong.push('h1 or lang');
        for (const e of document.querySelectorAll('[src], link[href]'))
            if (new URL(e.src || e.href, location).origin !== location.origin && !(e.href || '').startsWith('data:')) wrong.push('foreign: ' + e.outerHTML);
        if (document.querySelectorAll('[style], style, script:not([src])').length) wrong.push('inline style or script');
        return wrong;""")
    assert not wrong, wrong
    assert browser.run("return document.querySelectorAll('figure svg').length") >= 7


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


def main(binary, screenshots):
    shot = (lambda name: os.path.join(screenshots, name)) if screenshots else (lambda name: None)
    service, driver = Service(binary), Driver()
    try:
        headers = service.get("/")[2]
        assert "default-src 'none'" in headers["Content-Security-Policy"] and "Access-Control-Allow-Origin" not in headers
        with Browser(driver) as browser:
            browser.open(f"http://{service.address}/")
            assert "Nothing has been published yet" in browser.body()
        service.send(CANARIES + service.people(3000))
        with Browser(driver) as browser:
            shows_the_release(browser, service)
            is_readable_by_all(browser)
            browser.screenshot(shot("desktop.png"))
            copies_a_point(browser, binary)
            is_silent(service, browser)
            browser.screenshot(shot("point.png"))
        with Browser(driver, mobile=(390, 844), flags=["--force-dark-mode"]) as browser:
            browser.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia",
                         "params": {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}})
            browser.open(f"http://{service.address}/")
            wide = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
            assert wide[0] <= wide[1], f"wider than a phone: {wide}"
            dark = browser.run("return getComputedStyle(document.body).backgroundColor")
            assert dark == "rgb(20, 23, 28)", dark
            browser.screenshot(shot("phone-dark.png"))
        with Browser(driver, scripts=False) as browser:
            browser.open(f"http://{service.address}/")
            copies_a_point(browser, binary)
        strangers_are_refused(driver, binary, service)
        print("ok: the page in Chromium, with and without scripts, on a phone, in the dark, and closed to strangers")
    finally:
        driver.end()
        service.end()


if __name__ == "__main__":
    folder = sys.argv[sys.argv.index("--screenshots") + 1] if "--screenshots" in sys.argv else None
    if folder:
        os.makedirs(folder, exist_ok=True)
    main(os.path.abspath(sys.argv[1]), folder)
