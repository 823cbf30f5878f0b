#!/usr/bin/env python3
"""The chart and the kustomization on a real Kubernetes node, against a real broker, judged from the topics.

    tests/deploy/kubernetes.py BINARY HELM [chart] [kustomize]

Three pods in a namespace that enforces Pod Security `restricted` work on records that keep coming, through all that an operator does
to them: a new image, a new policy, a killed pod, a drained node under the PodDisruptionBudget, fewer and more pods, a rollback, the
end. The oracle then judges I1 to I4 over everything that was published. Needs root; the first run builds Kubernetes from its Go
module (`tests/infra/kubernetes`). Not part of tests/run.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "kafka"))
import cluster as c  # noqa: E402
import containers  # noqa: E402
import oracle  # noqa: E402
from containers import WORK, run  # noqa: E402

NODE = ROOT / "tests" / "infra" / "kubernetes"
REPOSITORY = "localhost/veilstream"
TAGS = ("test", "next")
# Records at a time, and their pause: less than three pods on two cores can take.
PORTION, PAUSE = 300, 0.5
SET = "statefulset/veil-veilstream"
LEFT = "statefulset,pod,service,configmap,secret,serviceaccount,poddisruptionbudget,networkpolicy,controllerrevision,pvc"
BARE = ("apiVersion: v1\nkind: Pod\nmetadata: { name: bare }\n"
        f"spec: {{ containers: [{{ name: bare, image: '{REPOSITORY}:{TAGS[0]}' }}] }}\n")


class Node:
    """The cluster, and kubectl in one namespace of it."""

    def __init__(self):
        lines = run(NODE, "up", "--dir", c.RUN / "kubernetes", "--owner", os.getpid(), patience=7200).stdout.splitlines()
        self.env = dict(line.split("=", 1) for line in lines)
        self.address, self.namespace = self.env["NODE_ADDRESS"], "default"

    def kubectl(self, *words, **options):
        return run(self.env["KUBECTL"], "--kubeconfig", self.env["KUBECONFIG"], "-n", self.namespace, *words, **options)

    def use(self, namespace):
        """A namespace in which only pods without privileges start, and the proof that it refuses others."""
        self.namespace = namespace
        level = {"pod-security.kubernetes.io/enforce": "restricted"}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": level}}
        self.kubectl("apply", "-f", "-", input=yaml.safe_dump(made))
        refused = self.kubectl("apply", "-f", "-", input=BARE, check=False)
        assert refused.returncode and "restricted" in refused.stderr, f"a pod with privileges: {refused.stderr}"

    def pods(self):
        return json.loads(self.kubectl("get", "pods", "-o", "json").stdout)["items"]

    def ready(self, count):
        """True if exactly these many pods are there, and all of them are ready."""
        def is_ready(pod):
            conditions = pod.get("status", {}).get("conditions", [])
            return any(x["type"] == "Ready" and x["status"] == "True" for x in conditions) and "deletionTimestamp" not in pod["metadata"]
        pods = self.pods()
        return len(pods) == count and all(map(is_ready, pods))

    def said(self):
        """The end of every pod's log."""
        files = sorted(pathlib.Path(self.env["POD_LOGS"]).glob(f"{self.namespace}_*/*/*.log"))
        return "\n".join(f"{file.parts[-3]}: {line}" for file in files for line in file.read_text(errors="replace").splitlines()[-8:])

    def down(self):
        run(NODE, "down", self.env["KUBERNETES_DIR"])


class Records:
    """Keep coming until it is left."""

    def __init__(self, space, binary):
        self.space, self.binary, self.stop, self.sent = space, binary, threading.Event(), 0
        self.thread = threading.Thread(target=self.flow)

    def flow(self):
        while not self.stop.wait(PAUSE):
            self.space.produce(self.binary, PORTION)
            self.sent += PORTION

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def pipeline(space, node_bootstrap, k):
    """As an instance of the fault tests has it, without what belongs to the pod."""
    intervals = {"intervals": {"widths": [5, 10, 20, 40], "min": 0, "max": 120}}
    return {
        "policy": {
            "quasi_identifiers": [{"name": "age", "hierarchy": intervals}, {"name": "sex", "hierarchy": "trivial"},
                                  {"name": "zip", "hierarchy": {"prefix": {"length": 5}}},
                                  {"name": "country", "hierarchy": "trivial"}, {"name": "education", "hierarchy": "trivial"}],
            "sensitive": [{"name": "diagnosis"}], "keep": [{"name": "ts", "reviewed": True}], "subject": "user_id",
            "privacy": [{"k-anonymity": k}, {"l-diversity": {"field": "diagnosis", "l": 2, "variant": "distinct"}}],
            "suppression": {"limit": 0.05, "action": "drop"}},
        "search": {"time_budget": "100ms"},
        "window": {"tumbling": {"max_records": 500, "max_age": "2s"}},
        "source": {"kafka": {"brokers": node_bootstrap, "topics": [space.source], "group": space.group,
                             "properties": {"heartbeat.interval.ms": 500}}},
        "sink": {"kafka": {"topic": space.sink, "transactional_id": f"{space.group}-${{INSTANCE}}", "transaction_timeout": "20s"}},
        "limits": {"memory": "64MiB"},
    }


RESOURCES = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


class Stage:
    """What is done to the pods while records flow; each ends with all pods ready and a fresh release."""

    def __init__(self, node, space, flow):
        self.node, self.space, self.flow, self.figures = node, space, flow, []

    def releases(self):
        return len(oracle.read(self.space.bootstrap, f"{self.space.sink}-manifests"))

    def act(self, name, change, pods=3):
        before, began = self.releases(), time.monotonic()
        try:
            change()
            c.wait_for(lambda: self.node.ready(pods), 240, f"{pods} ready pods ({name})")
            took, ready = time.monotonic() - began, self.releases()
            c.wait_for(lambda: self.releases() > ready, 60, f"a fresh release ({name})")
        except (AssertionError, subprocess.SubprocessError) as error:
            raise AssertionError(f"{name}: {error}\n{self.node.kubectl('get', 'pods,events', check=False).stdout}\n{self.node.said()}") from error
        self.figures.append((name, took, ready - before))
        print(f"   {name}: {took:.0f} s, {ready - before} releases meanwhile", flush=True)

    def drain(self):
        """One pod at a time: the budget refuses the next eviction until the first pod is back, for which the node must take it."""
        command = [self.node.env["KUBECTL"], "--kubeconfig", self.node.env["KUBECONFIG"], "drain", "node", "--delete-emptydir-data",
                   "--timeout=200s"]
        drain = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        refused = 0
        for line in drain.stdout:
            if "disruption budget" in line:
                refused += 1
                self.node.kubectl("uncordon", "node")
        assert drain.wait() == 0, "the drain did not end"
        assert refused, "no eviction was refused: the budget was not asked"

    def kill(self):
        pod = self.node.pods()[0]["metadata"]["name"]
        self.node.kubectl("delete", "pod", pod, "--grace-period=0", "--force")


def settled(node):
    """True once the controllers have nothing more to do."""
    status = json.loads(node.kubectl("get", "statefulset", "-o", "json").stdout)["items"][0]["status"]
    return status.get("currentRevision") == status.get("updateRevision") and status.get("updatedReplicas") == status.get("replicas")


def verdict(space, flow):
    space.settle()
    found = oracle.judge(space.bootstrap, space.source, space.sink, c.QUASI, "diagnosis", 5, 2)
    print(found.text())
    assert found.ok and not found.missing, "a statement is violated"
    assert found.figures["published"] > 0.5 * found.figures["records"], "too little was published to be a pass"


def chart(node, helm, cluster, binary):
    """helm install, upgrade, rollback, uninstall."""
    node.use("privacy")
    space = c.Space(cluster, "helm", partitions=6)
    bootstrap = cluster.env["NEARBY_BOOTSTRAP"]
    charted = [helm, "--kubeconfig", node.env["KUBECONFIG"], "-n", node.namespace]

    def values(k=5, tag=TAGS[0], replicas=3):
        file = WORK / f"values-{k}-{tag}-{replicas}.yaml"
        file.write_text(yaml.safe_dump({
            "replicas": replicas, "image": {"repository": REPOSITORY, "tag": tag, "pullPolicy": "Never"}, "minReadySeconds": 2,
            "sessionTimeout": "10s", "resources": RESOURCES, "pipeline": pipeline(space, bootstrap, k)}))
        return file

    def upgrade(**changed):
        run(*charted, "upgrade", "veil", ROOT / "deploy/helm/veilstream", "-f", values(**changed))
        c.wait_for(lambda: settled(node), 240, "the roll-out")

    with Records(space, binary) as flow:
        stage = Stage(node, space, flow)
        stage.act("helm install", lambda: run(*charted, "install", "veil", ROOT / "deploy/helm/veilstream", "-f", values()))
        stage.act("a new image", lambda: upgrade(tag=TAGS[1]))
        stage.act("a new policy", lambda: upgrade(tag=TAGS[1], k=8))
        stage.act("a killed pod", stage.kill)
        stage.act("a drained node", stage.drain)
        stage.act("two pods", lambda: upgrade(tag=TAGS[1], k=8, replicas=2), pods=2)
        stage.act("four pods", lambda: upgrade(tag=TAGS[1], k=8, replicas=4), pods=4)

        def rollback():
            run(*charted, "rollback", "veil", "1")
            c.wait_for(lambda: settled(node), 240, "the rollback")
        stage.act("a rollback to the first revision", rollback)
    space.drained(180)
    run(*charted, "uninstall", "veil", "--wait", "--timeout", "150s")
    c.wait_for(lambda: not node.pods(), 150, "the pods to end")
    left = node.kubectl("get", LEFT, "-l", "app.kubernetes.io/instance=veil", "-o", "name").stdout.split()
    assert not left, f"left behind: {left}"
    print(f"   uninstalled, nothing is left; {flow.sent} records", flush=True)
    verdict(space, flow)
    space.close()


def kustomize(node, _, cluster, binary):
    """kubectl kustomize | kubectl apply."""
    node.use("veil")
    space = c.Space(cluster, "kustomize", partitions=6)
    overlay = WORK / "overlay"
    overlay.mkdir(parents=True, exist_ok=True)

    def apply(k=5, tag=TAGS[0], replicas=3):
        config = pipeline(space, cluster.env["NEARBY_BOOTSTRAP"], k)
        config["source"]["kafka"]["properties"] |= {"group.instance.id": "${INSTANCE}", "session.timeout.ms": 10000}
        config["http"] = {"listen": "0.0.0.0:9464", "token": "${file:/run/secrets/veilstream/token}"}
        (overlay / "pipeline.yaml").write_text(yaml.safe_dump(config))
        container = {"name": "veilstream", "resources": RESOURCES}
        (overlay / "pods.yaml").write_text(yaml.safe_dump({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "veilstream"},
            "spec": {"replicas": replicas, "minReadySeconds": 2, "template": {"spec": {"containers": [container]}}}}))
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": node.namespace,
            "resources": [os.path.relpath(ROOT / "deploy/kustomize/base", overlay)],
            "images": [{"name": "veilstream", "newName": REPOSITORY, "newTag": tag}],
            "configMapGenerator": [{"name": "veilstream", "behavior": "replace", "files": ["pipeline.yaml"]}],
            "patches": [{"path": "pods.yaml"}]}))
        made = node.kubectl("kustomize", overlay).stdout
        node.kubectl("apply", "-f", "-", input=made)
        c.wait_for(lambda: settled(node), 240, "the roll-out")
        return made

    node.kubectl("create", "secret", "generic", "veilstream-http", "--from-literal=token=only-for-this-test")
    with Records(space, binary) as flow:
        stage = Stage(node, space, flow)
        stage.act("kubectl kustomize | apply", apply)
        stage.act("a new image and a new policy", lambda: apply(tag=TAGS[1], k=8))
        stage.act("a killed pod", stage.kill)
        stage.act("two pods", lambda: apply(tag=TAGS[1], k=8, replicas=2), pods=2)
        stage.act("the first state again", apply)
    space.drained(180)
    node.kubectl("delete", "-f", "-", "--wait=true", input=apply())
    c.wait_for(lambda: not node.pods(), 150, "the pods to end")
    left = node.kubectl("get", LEFT, "-l", "app.kubernetes.io/name=veilstream", "-o", "name").stdout.split()
    # The generator names a ConfigMap after its content, and leaves those of earlier contents to the operator.
    left = [name for name in left if not name.startswith("configmap/")]
    assert not left, f"left behind: {left}"
    print(f"   deleted; {flow.sent} records", flush=True)
    verdict(space, flow)
    space.close()


def images(binary):
    """The image under two tags, as archives that the node imports."""
    run(ROOT / "tests" / "infra" / "debian", "podman", "kcat", "busybox")
    containers.engine()
    containers.builder(binary)
    containers.build()
    archives = []
    for tag in TAGS:
        archives.append(WORK / f"image-{tag}.tar")
        archives[-1].unlink(missing_ok=True)
        run("buildah", "push", "-q", containers.IMAGE, f"docker-archive:{archives[-1]}:{REPOSITORY}:{tag}")
    return archives


def main():
    binary, helm, *wanted = sys.argv[1:]
    WORK.mkdir(parents=True, exist_ok=True)
    archives = images(binary)
    began = time.monotonic()
    node, cluster = Node(), None
    try:
        run(NODE, "load", node.env["KUBERNETES_DIR"], *archives)
        print(f"   the node is ready after {time.monotonic() - began:.0f} s", flush=True)
        cluster = c.Cluster("kubernetes-kafka", flags=["--at", node.address])
        for part in (chart, kustomize):
            if not wanted or part.__name__ in wanted:
                print(f"== {part.__name__}: {part.__doc__}", flush=True)
                part(node, helm, cluster, binary)
        print(f"   all in {time.monotonic() - began:.0f} s")
    finally:
        if cluster:
            cluster.down()
        node.down()


if __name__ == "__main__":
    main()
