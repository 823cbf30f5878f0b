"""Headless Chromium, driven over WebDriver, and what every page must satisfy in it."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request

from service import free_port, wait_until

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Pinned: a new release of the checker must not turn the tests red by itself.
AXE = "axe-core@4.14.0"


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


def is_readable_by_all(browser, pictures):
    """A name and a description for every picture, a table behind it, no name twice, and no label over another."""
    wrong = browser.run("""
        const wrong = [];
        for (const svg of document.querySelectorAll('figure svg')) {
            const names = (svg.getAttribute('aria-labelledby') || '').split(' ');
            if (names.length !== 2 || !names.every((id) => document.getElementById(id)?.textContent)) wrong.push('unnamed picture');
            const card = svg.closest('section');
            if (!card.querySelector('table') && !card.querySelector('pre')) wrong.push('no table behind ' + names[0]);
            const boxes = [...svg.querySelectorAll('text')].map((text) => [text.textContent.trim(), text.getBoundingClientRect()]);
            const frame = svg.getBoundingClientRect();
            for (const [i, [a, one]] of boxes.entries()) {
                if (one.right > frame.right + 2 || one.left < frame.left - 2) wrong.push(names[0] + ': cut off: ' + a);
                for (const [b, other] of boxes.slice(i + 1)) {
                    const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
                    const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
                    // A line of text is higher than its letters.
                    if (wide > 1 && high > 0.35 * Math.min(one.height, other.height)) wrong.push(names[0] + ': ' + a + ' over ' + b);
                }
            }
        }
        const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
        for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push('twice: ' + id);
        if (document.querySelectorAll('h1').length !== 1 || !document.documentElement.lang) wrong.push('h1 or lang');
        for (const e of document.querySelectorAll('[src], link[href]'))
            if (new URL(e.src || e.href, location).origin !== location.origin && !(e.href || '').startsWith('data:')) wrong.push('foreign: ' + e.outerHTML);
        if (document.querySelectorAll('[style], script:not([src])').length) wrong.push('inline style or script');
        return wrong;""")
    assert not wrong, wrong
    drawn = browser.run("return document.querySelectorAll('figure svg').length")
    assert drawn >= pictures, f"{drawn} pictures"


def fits(browser):
    """Nothing has to be scrolled sideways to be read, except inside a table."""
    wide = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1], f"wider than the screen: {wide}"


def axe():
    """The source of the accessibility checker; None where it cannot be had."""
    folder = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "tools", "axe", AXE.split("@")[1])
    script = os.path.join(folder, "package", "axe.min.js")
    if not os.path.exists(script):
        if not shutil.which("npm"):
            return None
        os.makedirs(folder, exist_ok=True)
        packed = subprocess.run(["npm", "pack", "--silent", AXE], cwd=folder, capture_output=True, text=True, timeout=120)
        if packed.returncode:
            return None
        subprocess.run(["tar", "-xzf", packed.stdout.split()[-1]], cwd=folder, check=True)
    with open(script) as file:
        return file.read()


def is_accessible(browser, checker):
    """axe-core finds no violation of WCAG 2.2 A and AA, nor of its best practices."""
    if checker is None:
        return
    found = browser.call("POST", "/execute/async", {"args": [], "script": checker + """;
        const done = arguments[arguments.length - 1];
        axe.run(document, { resultTypes: ['violations'] }).then(
            (result) => done(result.violations.map((v) => v.id + ': ' + v.help + ' ' + v.nodes.slice(0, 3).map((n) => n.target.join(' ') + ' ' + (n.any[0]?.message || '')).join(' | '))),
            (error) => done(['axe failed: ' + error]));"""})
    assert not found, "\n".join(found)
