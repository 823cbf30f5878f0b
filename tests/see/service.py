"""A running `veilstream run` on a pipe, for the tests of what can be seen of it."""

import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

PATIENCE = 60  # seconds; only a defect, or a machine under great load, gets there

POLICY = """policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [5, 10, 20], min: 0, max: 120 } } }
    - { name: sex, hierarchy: trivial }
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
    - { name: born, hierarchy: { date: [day, month, year, decade] } }
  sensitive: [{ name: occupation }]
  keep: [score]
  subject: user_id
  privacy:
    - { k-anonymity: 5 }
    - { l-diversity: { field: occupation, l: 2, variant: distinct } }
  suppression: { limit: 10% }
window:
  tumbling: { max_records: 1000, max_age: 1h }
"""

# In every field in turn: rejected records, and good ones with fields that nobody named.
CANARIES = [
    '{"user_id":"canary1","age":"canary2","sex":"canary3","zip":"canary4","born":"canary5","occupation":"canary6"}',
    '{"user_id":"canary7"',
    '{"canary8":{"canary9":"canary10"}}',
    "canary11",
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, condition):
    end = time.monotonic() + PATIENCE
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < end, f"waited too long: {what}"
        time.sleep(0.1)


class Service:
    def __init__(self, binary, http="http: { listen: 127.0.0.1:0 }\n"):
        self.binary = binary
        self.folder = tempfile.TemporaryDirectory(prefix="veilstream-see-")
        config = os.path.join(self.folder.name, "pipeline.yaml")
        sink = "sink: { file: { path: out.jsonl, manifest: manifests.jsonl } }\n"
        with open(config, "w") as file:
            file.write(POLICY + sink + http)
        self.process = subprocess.Popen([binary, "--log", "info", "run", "-c", config], cwd=self.folder.name,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.logs = []
        threading.Thread(target=lambda: self.logs.extend(self.process.stderr), daemon=True).start()
        self.address = wait_until("the service listens", self._address)

    def _address(self):
        for line in list(self.logs):
            found = re.search(r"serving.*address=(\S+)", line)
            if found:
                return found.group(1)
        assert self.process.poll() is None, "".join(self.logs)
        return None

    def people(self, records, seed=1):
        made = subprocess.run([self.binary, "generate", "--records", str(records), "--seed", str(seed), "--format", "jsonl"],
                              capture_output=True, text=True, check=True)
        return [json.dumps(json.loads(line) | {"unnamed": "canary0"}) for line in made.stdout.splitlines()]

    def send(self, lines):
        self.process.stdin.write("".join(line + "\n" for line in lines))
        self.process.stdin.flush()

    def get(self, path, headers=None):
        request = urllib.request.Request(f"http://{self.address}{path}", headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.headers

    def status(self):
        return json.loads(self.get("/status.json")[1])

    def wait_for_releases(self, count):
        wait_until(f"{count} releases", lambda: self.status()["releases"] >= count)
        return self.status()["last_releases"][0]["release_id"]

    def end(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()
