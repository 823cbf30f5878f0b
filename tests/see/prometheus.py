"""A real Prometheus scrapes the service: names, rules, and every query of the dashboard.

Usage: prometheus.py BINARY
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from service import CANARIES, Service, free_port, wait_until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RULES = os.path.join(ROOT, "deploy/prometheus/veilstream.rules.yaml")
TESTS = os.path.join(ROOT, "deploy/prometheus/veilstream.rules.test.yaml")
DASHBOARD = os.path.join(ROOT, "deploy/grafana/veilstream.json")


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def dashboard_queries():
    with open(DASHBOARD) as file:
        panels = json.load(file)["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(queries) > 25, queries
    for placeholder, value in [("$job", ".*"), ("$instance", ".*"), ("$__rate_interval", "1m")]:
        queries = [query.replace(placeholder, value) for query in queries]
    return queries


def names_exist(metrics):
    """Every metric that dashboard and rules speak of is one that the service has."""
    known = set(re.findall(r"^# TYPE (\S+) ", metrics, re.M))
    assert len(known) >= 28, sorted(known)
    for path in (DASHBOARD, RULES, TESTS):
        with open(path) as file:
            used = set(re.findall(r"\bveilstream_[a-z_]+", file.read()))
        used = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
        assert used and used <= known, f"{path}: {sorted(used - known)}"
    return known


def main(binary):
    run("promtool", "check", "rules", RULES)
    run("promtool", "test", "rules", os.path.basename(TESTS), cwd=os.path.dirname(TESTS))
    service = Service(binary)
    folder = tempfile.TemporaryDirectory(prefix="veilstream-prometheus-")
    prometheus = None
    try:
        before = service.get("/metrics")[1]
        service.send(CANARIES + service.people(2000))
        service.wait_for_releases(2)
        metrics = service.get("/metrics")[1]
        run("promtool", "check", "metrics", input=metrics)
        known = names_exist(metrics)
        series = lambda text: {line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")}
        assert series(before) == series(metrics), f"series come with the data: {series(metrics) ^ series(before)}"
        assert "canary" not in metrics

        config = os.path.join(folder.name, "prometheus.yml")
        with open(config, "w") as file:
            json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [RULES],
                       "scrape_configs": [{"job_name": "veilstream", "static_configs": [{"targets": [service.address]}]}]}, file)
        run("promtool", "check", "config", config)
        port = free_port()
        log = open(os.path.join(folder.name, "log"), "w")
        prometheus = subprocess.Popen(["prometheus", f"--config.file={config}", f"--web.listen-address=127.0.0.1:{port}",
                                       f"--storage.tsdb.path={folder.name}/data"], stdout=log, stderr=log)

        def query(expression):
            url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
            try:
                with urllib.request.urlopen(url, timeout=20) as answer:
                    return json.load(answer)["data"]["result"]
            except urllib.error.HTTPError as error:
                if error.code == 503:  # it is still starting
                    return None
                raise AssertionError(f"{expression}: {error.read().decode()}") from error
            except OSError:
                assert prometheus.poll() is None, open(log.name).read()
                return None

        wait_until("two scrapes", lambda: any(float(r["value"][1]) >= 2 for r in query("count_over_time(veilstream_ready[1m])") or []))
        service.send(service.people(1000, seed=2))
        service.wait_for_releases(3)
        wait_until("the third release is scraped",
                   lambda: any(float(r["value"][1]) >= 3 for r in query('veilstream_releases_total{outcome="published"}') or []))
        queries = dashboard_queries()
        for expression in queries:
            # A filter may leave nothing; everything else has an answer.
            assert query(expression) or expression.endswith("> 0"), f"no data: {expression}"
        firing = [alert["metric"]["alertname"] for alert in query('ALERTS{alertstate="firing"}')]
        assert not firing, f"on a service that does well: {firing}"
        print(f"ok: {len(known)} metrics, {len(series(metrics))} series, {len(queries)} dashboard queries, rules and their tests")
    finally:
        if prometheus:
            prometheus.terminate()
            prometheus.wait()
        service.end()
        folder.cleanup()


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
