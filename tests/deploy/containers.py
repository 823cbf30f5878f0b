#!/usr/bin/env python3
"""The image, built and run for real: non-root, read-only root, no capability, a memory limit, against a real broker.

    tests/deploy/containers.py BINARY HELM

Builds deploy/Dockerfile with buildah, from BINARY (no base image has to be pulled), runs it with podman and runc, then has
`podman play kube` run the pods of the rendered chart with their ConfigMap and Secret. Ends with 0 and says so if containers
cannot be run here at all.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "kafka"))
import cluster as c  # noqa: E402

WORK = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "deploy"
IMAGE = "localhost/veilstream:test"
BUILDER = "localhost/veilstream-builder"
HARDENED = ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--memory", "256m", "--network", "host"]
PORT = 19870


def engine():
    """Podman's and buildah's settings: everything below target/, and what works without systemd and overlay mounts."""
    home = WORK / "containers"
    home.mkdir(parents=True, exist_ok=True)
    (home / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\nevents_logger = "file"\n'
        f'tmp_dir = "{home}/tmp"\nvolume_path = "{home}/volumes"\n')
    (home / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{home}/storage"\nrunroot = "{home}/run"\n')
    (home / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    os.environ["CONTAINERS_CONF"] = str(home / "containers.conf")
    os.environ["CONTAINERS_STORAGE_CONF"] = str(home / "storage.conf")


def run(*command, check=True, patience=300, **options):
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, timeout=patience, **options)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def busybox():
    found = shutil.which("busybox")
    if not found:
        run(ROOT / "tests" / "infra" / "debian", "busybox")
        found = shutil.which("busybox")
    return found


def libraries(binary):
    listed = run(binary, "--version", env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"}).stdout
    words = [word for line in listed.splitlines() for word in line.split()]
    return [word for word in words if word.startswith("/")]


def builder(binary):
    """A stand-in for the compiler's image: a shell, the binary and its libraries."""
    context = WORK / "builder"
    shutil.rmtree(context, ignore_errors=True)
    for folder in ("bin", "etc/ssl/certs", "tmp"):
        (context / folder).mkdir(parents=True)
    shutil.copy(binary, context / "veilstream")
    run("strip", context / "veilstream")
    for library in libraries(binary):
        target = context / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    shutil.copy(busybox(), context / "bin" / "busybox")
    for applet in ("sh", "mkdir", "cp"):
        (context / "bin" / applet).symlink_to("busybox")
    certificates = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        shutil.copy(certificates, context / "etc/ssl/certs")
    (WORK / "Builder").write_text("FROM scratch\nCOPY . /\n")
    run("buildah", "bud", "-q", "-f", WORK / "Builder", "-t", BUILDER, context)


def build():
    """What is made of the builder is the Dockerfile's own work."""
    # Only what the Dockerfile copies: the context is the repository without its build folder.
    source = WORK / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    for name in (".cargo", "Cargo.toml", "Cargo.lock", "src", "schemas", "benches", "deploy"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    run("buildah", "bud", "-q", "-f", ROOT / "deploy" / "Dockerfile", "-t", IMAGE, "--isolation", "chroot",
        "--build-arg", f"BUILDER={BUILDER}", "--build-arg", "BINARY=/veilstream", source)
    image = json.loads(run("podman", "image", "inspect", IMAGE).stdout)[0]
    assert image["Config"]["User"] == "65532:65532", image["Config"]["User"]
    megabytes = image["Size"] / 1e6
    assert megabytes < 120, f"the image has {megabytes:.0f} MB"
    print(f"   image: {megabytes:.1f} MB, user {image['Config']['User']}")


def hardened():
    """What the program itself sees, and that there is nothing else to run."""
    said = run("podman", "run", "--rm", *HARDENED, IMAGE, "--version").stdout
    assert said.startswith("veilstream "), said
    shell = run("podman", "run", "--rm", *HARDENED, "--entrypoint", "/bin/sh", IMAGE, "-c", "true", check=False)
    assert shell.returncode == 127, f"there is a shell: {shell.returncode} {shell.stderr}"
    demo = run("podman", "run", "--rm", *HARDENED, IMAGE, "demo", "--records", "20000", "--json").stdout
    outcome = json.loads(demo.splitlines()[-1])
    assert outcome["records_published"] > 10_000, demo
    # A read-only root, seen from inside: the service must say that it cannot write, and not write.
    policy = WORK / "readonly"
    policy.mkdir(exist_ok=True)
    (policy / "p.yaml").write_text(
        "policy: { quasi_identifiers: [{ name: age, hierarchy: { intervals: { widths: [10], min: 0, max: 120 } } }], "
        "privacy: [{ k-anonymity: 5 }] }\nsource: { generator: { records: 100 } }\nsink: { file: { path: /out.jsonl } }\n")
    policy.chmod(0o755)
    refused = run("podman", "run", "--rm", *HARDENED, "-v", f"{policy}:/p:ro", IMAGE, "run", "-c", "/p/p.yaml", check=False)
    assert refused.returncode == 3 and "ead-only" in refused.stderr, f"{refused.returncode} {refused.stderr}"
    print("   non-root, read-only, no shell, no capability, 256 MiB: the demo runs, and a file cannot be written")


def ask(path, token=None):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return None, ""


def pods(documents):
    """`podman play kube` knows no StatefulSet: its pod number 0, as the controller would make it."""
    (workload,) = [d for d in documents if d["kind"] == "StatefulSet"]
    template = workload["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod",
           "metadata": {**template["metadata"], "name": f"{workload['metadata']['name']}-0"}, "spec": template["spec"]}
    pod["spec"].pop("topologySpreadConstraints", None)  # there is one node
    pod["spec"]["hostNetwork"] = True  # the broker listens on this machine's loopback
    for container in pod["spec"]["containers"]:
        del container["ports"]  # podman wants none on the host's network
        # Podman would run curl inside the container; a kubelet asks from outside, as this test does.
        del container["livenessProbe"], container["readinessProbe"]
    for volume in pod["spec"]["volumes"]:
        volume.get("secret", {})["optional"] = False  # the default; Debian 12's podman falls over without it
    needed = [d for d in documents if d["kind"] in ("ConfigMap", "Secret")]
    return pod["metadata"]["name"], needed + [pod]


def play(helm, space):
    """The rendered chart publishes, answers its probes, asks for its token, and drains on SIGTERM."""
    values = {
        "image": {"repository": IMAGE.rsplit(":", 1)[0], "tag": "test", "pullPolicy": "Never"},
        "http": {"port": PORT},
        "hierarchies": {"sex.csv": "female;*\nmale;*\nother;*\n"},
        "pipeline": {
            "policy": {"quasi_identifiers": [
                {"name": "age", "hierarchy": {"intervals": {"widths": [5, 10, 20], "min": 0, "max": 120}}},
                {"name": "sex", "hierarchy": {"csv": "sex.csv"}},
                {"name": "zip", "hierarchy": {"prefix": {"length": 5}}}]},
            "window": {"tumbling": {"max_records": 1000, "max_age": "2s"}},
            "source": {"kafka": {"brokers": "${BROKERS}", "group": "kube"}},
        },
        "env": [{"name": "BROKERS", "value": space.bootstrap}],
    }
    file = WORK / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    rendered = run(helm, "template", "veil", ROOT / "deploy/helm/veilstream", "-n", "privacy", "-f", file).stdout
    documents = [d for d in yaml.safe_load_all(rendered) if d]
    name, wanted = pods(documents)
    manifest = WORK / "play.yaml"
    manifest.write_text(yaml.safe_dump_all(wanted))
    (secret,) = [d for d in documents if d["kind"] == "Secret"]
    # A kubelet decodes what it mounts; Debian 12's podman does not.
    encoded = secret["data"]["token"]
    tokens = [base64.b64decode(encoded).decode(), encoded]
    run("podman", "play", "kube", "--down", manifest, check=False)
    run("podman", "volume", "rm", "--all", "--force")  # an earlier run's ConfigMap and Secret; the storage is ours alone
    run("podman", "play", "kube", manifest)
    container = f"{name}-veilstream"
    try:
        def logs():
            done = run("podman", "logs", container, check=False)
            return done.stdout + done.stderr
        try:
            c.wait_for(lambda: ask("/readyz")[0] == 200, 60, "the pod to be ready")
            token = next((token for token in tokens if ask("/metrics", token)[0] == 200), None)
            assert token, "no token opens the figures"
            space.produce(sys.argv[1], 5000)
            published = 'veilstream_records_total{outcome="published"}'
            def count():
                lines = ask("/metrics", token)[1].splitlines()
                return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(published))
            c.wait_for(lambda: count() >= 4000, 60, "the pod to publish")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{logs()}") from error
        assert ask("/healthz")[0] == 200
        assert ask("/metrics")[0] == 401, "figures without a token"
        inspected = json.loads(run("podman", "inspect", container).stdout)[0]
        assert inspected["HostConfig"]["ReadonlyRootfs"] is True
        assert inspected["HostConfig"]["Memory"] == 1 << 30, inspected["HostConfig"]["Memory"]
        assert not inspected["EffectiveCaps"], inspected["EffectiveCaps"]
        assert token not in logs()
        pid = inspected["State"]["Pid"]
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        assert "Uid:\t65532\t65532" in status and "NoNewPrivs:\t1" in status and "CapEff:\t0000000000000000" in status, status
        run("podman", "stop", "-t", "60", container)
        ended = json.loads(run("podman", "inspect", container).stdout)[0]["State"]["ExitCode"]
        assert ended == 0, f"the drain ended with {ended}\n{logs()}"
        summary = json.loads([line for line in logs().splitlines() if line.startswith('{"records_in"')][-1])
        print(f"   the rendered pod drained: {summary}")
    finally:
        run("podman", "play", "kube", "--down", manifest, check=False)


def main():
    binary, helm = sys.argv[1:3]
    WORK.mkdir(parents=True, exist_ok=True)
    run(ROOT / "tests" / "infra" / "debian", "podman", "kcat")
    engine()
    started = time.monotonic()
    try:
        builder(binary)
        run("podman", "run", "--rm", *HARDENED, BUILDER, "/bin/sh", "-c", "exit 0")
    except AssertionError as error:
        print(f"   containers NOT checked: this machine cannot run them: {error}")
        return
    build()
    hardened()
    cluster = c.Cluster("deploy")
    try:
        space = c.Space(cluster, "", partitions=6)
        play(helm, space)
        space.close()
    finally:
        cluster.down()
    print(f"   containers: {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
