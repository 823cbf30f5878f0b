#!/usr/bin/env python3
"""Every manifest that the chart and the kustomizations make, checked: schema, security, references, pipeline, mistakes.

    tests/deploy/manifests.py BINARY HELM
    tests/deploy/manifests.py --refresh

Core kinds are checked strictly against Kubernetes' own schemas; custom resources against the small schemas below, which hold
what we use of them.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "veilstream"
KUSTOMIZE = ROOT / "deploy" / "kustomize"
RULE = KUSTOMIZE / "components" / "monitoring" / "prometheusrule.yaml"
# The oldest that the chart asks for, and the newest whose schemas are known.
VERSIONS = ["1.27", kubernetes_validate.latest_version()]

LABELS = {"type": "object", "additionalProperties": {"type": "string"}}


def closed(required, **properties):
    """An object with these properties and no others."""
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


TEXT, NUMBER = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
CUSTOM = {
    ("monitoring.coreos.com/v1", "PodMonitor"): closed(
        ["selector", "podMetricsEndpoints"],
        selector=closed(["matchLabels"], matchLabels=LABELS),
        podMetricsEndpoints={"type": "array", "minItems": 1, "items": closed(
            ["port"], port=TEXT, path=TEXT, interval=TEXT,
            authorization=closed(["credentials"], type={"const": "Bearer"}, credentials=closed(["name", "key"], name=TEXT, key=TEXT)))}),
    ("monitoring.coreos.com/v1", "PrometheusRule"): closed(
        ["groups"], groups={"type": "array", "minItems": 1, "items": closed(
            ["name", "rules"], name=TEXT, interval=TEXT, rules={"type": "array", "minItems": 1, "items": closed(
                ["expr"], expr=TEXT, alert=TEXT, record=TEXT, labels=LABELS, annotations=LABELS, keep_firing_for=TEXT,
                **{"for": TEXT})})}),
    ("keda.sh/v1alpha1", "ScaledObject"): closed(
        ["scaleTargetRef", "triggers"],
        scaleTargetRef=closed(["name"], apiVersion=TEXT, kind=TEXT, name=TEXT),
        minReplicaCount=NUMBER, maxReplicaCount=NUMBER, pollingInterval=NUMBER, cooldownPeriod=NUMBER,
        advanced={"type": "object"},
        triggers={"type": "array", "minItems": 1, "items": closed(
            ["type", "metadata"], type={"const": "kafka"}, authenticationRef=closed(["name"], name=TEXT),
            # KEDA takes texts only.
            metadata=closed(["bootstrapServers", "consumerGroup", "topic", "lagThreshold"], bootstrapServers=TEXT,
                            consumerGroup=TEXT, topic=TEXT, lagThreshold={"type": "string", "pattern": "^[0-9]+$"},
                            offsetResetPolicy={"enum": ["earliest", "latest"]}, allowIdleConsumers={"enum": ["true", "false"]}))}),
}

PIPELINE = {
    "policy": {"quasi_identifiers": [{"name": "country", "hierarchy": {"csv": "country.csv"}}], "privacy": [{"k-anonymity": 3}]},
    "source": {"kafka": {"brokers": ["a:9093", "b:9093"], "group": "g", "topics": ["t1", "t2"], "tls": {},
                         "sasl": {"mechanism": "scram-sha-512", "username": "u", "password": "${file:/run/secrets/kafka-login/password}"}}},
    "sink": {"kafka": {"topic": "out"}},
    "window": {"tumbling": {"max_records": 1_000_000}},
}
FULL = {
    "pipeline": PIPELINE,
    "hierarchies": {"country.csv": "DE;Europe;*\nUS;America;*\n"},
    "secrets": ["kafka-login"],
    "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "kafka-login", "key": "password"}}}],
    "envFrom": [{"secretRef": {"name": "kafka-login"}}],
    "http": {"token": {"existingSecret": "own", "key": "bearer"}},
    "image": {"digest": "sha256:" + "0" * 64},
    "autoscaling": {"kind": "keda", "lagThreshold": 3_000_000, "authenticationRef": "kafka"},
    "monitoring": {part: {"enabled": True, "labels": {"team": "privacy"}} for part in ("podMonitor", "rules", "dashboard")},
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}], "egressTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    "nodeSelector": {"disk": "any"}, "tolerations": [{"key": "k", "operator": "Exists"}], "priorityClassName": "high",
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "podLabels": {"a": "b"}, "podAnnotations": {"c": "d"}, "imagePullSecrets": [{"name": "pull"}],
    "serviceAccount": {"annotations": {"e": "f"}},
    "extraVolumes": [{"name": "more", "emptyDir": {}}], "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
}
HPA = {"autoscaling": {"kind": "hpa"}, "membership": "dynamic", "podDisruptionBudget": {"enabled": False},
       "networkPolicy": {"enabled": False}, "serviceAccount": {"create": False}, "topologySpread": []}

NEW_PROTOCOL = {"pipeline": {"source": {"kafka": {"rebalance": "consumer"}}}}

# A mistake, and a word of what is said about it.
MISTAKES = [
    ({"replica": 3}, "replica"),
    ({"replicas": "three"}, "replicas"),
    ({"command": "demo"}, "command"),
    ({"replicas": -1}, "replicas"),
    ({"image": {"digest": "latest"}}, "digest"),
    ({"pipeline": {"polcy": {}}}, "polcy"),
    ({"pipeline": {"http": {"listen": "0.0.0.0:1"}}}, "http"),
    ({"pipeline": {"source": {"file": {"path": "x"}}}}, "file"),
    ({"pipeline": {"source": {"kafka": {"group": ""}}}}, "group"),
    ({"pipeline": {"sink": {"kafka": {"transactional_id": "veil"}}}}, "${INSTANCE}"),
    ({"hierarchies": {"country": "DE;*"}}, "hierarchies"),
    ({"secrets": ["Upper_Case"]}, "secrets"),
    ({"env": [{"name": "INSTANCE", "value": "x"}]}, "env"),
    ({"membership": "sticky"}, "membership"),
    ({"sessionTimeout": 60}, "sessionTimeout"),
    ({"http": {"port": 80}}, "port"),
    ({"resources": {"limits": {"memory": None, "cpu": "1"}}}, "resources"),
    ({"terminationGracePeriodSeconds": 0}, "terminationGracePeriodSeconds"),
    ({"autoscaling": {"kind": "both"}}, "kind"),
    ({"autoscaling": {"minReplicas": 20}}, "minReplicas"),
    ({"autoscaling": {"kind": "keda", "lagThreshold": 1000}}, "two windows"),
    ({"autoscaling": {"kind": "keda"}, "pipeline": {"source": {"kafka": {"brokers": "${BROKERS}"}}}}, "autoscaling.brokers"),
    ({"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
    ({"monitoring": {"podMonitor": {"interval": "often"}}}, "interval"),
    ({"topologySpread": [{"topologyKey": "zone"}]}, "topologySpread"),
]


def call(*command, **options):
    return subprocess.run([str(part) for part in command], text=True, capture_output=True, timeout=120, **options)


def helm(program, values, *more):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        return call(program, *more, "-f", file.name)


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def of(kind, documents):
    return [d for d in documents if d["kind"] == kind]


def valid(documents):
    """Each document against the schema of its kind."""
    assert documents, "nothing was rendered"
    for document in documents:
        kind = (document["apiVersion"], document["kind"])
        if kind in CUSTOM:
            jsonschema.validate(document["spec"], CUSTOM[kind])
            continue
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


def restricted(spec):
    """Pod Security's `restricted`, and what we promise beyond it."""
    pod, (container,) = spec["securityContext"], spec["containers"]
    assert pod["runAsNonRoot"] is True and pod["runAsUser"] > 0 and pod["seccompProfile"]["type"] == "RuntimeDefault"
    own = container["securityContext"]
    assert own["allowPrivilegeEscalation"] is False and own["capabilities"] == {"drop": ["ALL"]}
    assert own["readOnlyRootFilesystem"] is True and "privileged" not in own
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
    assert {"configMap", "secret", "emptyDir"} >= {key for volume in spec["volumes"] for key in volume if key != "name"}
    assert container["resources"]["limits"]["memory"] and "cpu" not in container["resources"]["limits"]


def coherent(documents, outside=()):
    """What refers to something refers to something that is there."""
    (workload,) = of("StatefulSet", documents)
    template = workload["spec"]["template"]
    spec, labels = template["spec"], template["metadata"]["labels"]
    (container,) = spec["containers"]
    selects = lambda selector: selector and selector.items() <= labels.items()
    assert selects(workload["spec"]["selector"]["matchLabels"])
    for service in of("Service", documents):
        assert selects(service["spec"]["selector"]) and service["metadata"]["name"] == workload["spec"]["serviceName"]
    for kind, at in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector"), ("PodMonitor", "selector")):
        for document in of(kind, documents):
            assert selects(document["spec"][at]["matchLabels"]), kind
    for constraint in spec.get("topologySpreadConstraints", []):
        assert selects(constraint["labelSelector"]["matchLabels"])
    ports = {port["name"] for port in container["ports"]}
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"]["path"] == path and container[probe]["httpGet"]["port"] in ports
    for monitor in of("PodMonitor", documents):
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            assert endpoint["port"] in ports and endpoint["authorization"]["credentials"]["name"] in secrets(spec)
    for rule in of("PrometheusRule", documents):
        assert rule["spec"]["groups"] == alerts(), "the alerts have changed: run tests/deploy/run --refresh"
    made = {(d["kind"], d["metadata"]["name"]) for d in documents}
    for volume in spec["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in made, volume
        if "secret" in volume:
            assert ("Secret", volume["secret"]["secretName"]) in made or volume["secret"]["secretName"] in outside, volume
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}
    if spec["serviceAccountName"] != "default":
        assert ("ServiceAccount", spec["serviceAccountName"]) in made
    for kind in ("ScaledObject", "HorizontalPodAutoscaler"):
        for scaler in of(kind, documents):
            assert scaler["spec"]["scaleTargetRef"]["name"] == workload["metadata"]["name"]
            assert "replicas" not in workload["spec"], "two would set the number of replicas"
    # Above the longest drain: a search (time_budget), one transaction (20 s a call), leaving the group (10 s).
    assert spec["terminationGracePeriodSeconds"] >= 60


def secrets(spec):
    return {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}


def pipeline(binary, documents, change=lambda text: text):
    """The ConfigMap as the pod sees it, through `veilstream validate`."""
    (workload,) = of("StatefulSet", documents)
    (name,) = [v["configMap"]["name"] for v in workload["spec"]["template"]["spec"]["volumes"] if "configMap" in v]
    (config,) = [d for d in of("ConfigMap", documents) if d["metadata"]["name"] == name]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for file, text in config["data"].items():
            # Files of secrets stand below the folder here; there is no pod.
            text = change(text) if file == "pipeline.yaml" else text
            (folder / file).write_text(text.replace("/run/secrets", str(folder)))
            for path in re.findall(r"/run/secrets/([-./\w]+)", text):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                # A certificate authority must be one.
                authority = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
                (folder / path).write_bytes(authority.read_bytes() if path.endswith(".crt") else b"secret")
        env = {**os.environ, "INSTANCE": "veil-0", "INSTANCE_NAMESPACE": "privacy", "BROKERS": "b:9092"}
        return call(binary, "validate", "-c", folder / "pipeline.yaml", env=env)


def check(name, binary, rendered, outside=()):
    valid(rendered)
    restricted(of("StatefulSet", rendered)[0]["spec"]["template"]["spec"])
    coherent(rendered, outside)
    said = pipeline(binary, rendered)
    assert said.returncode == 0, f"{name}: {said.stdout}{said.stderr}"
    broken = pipeline(binary, rendered, lambda text: text.replace("k-anonymity: ", "k-anonymity: -"))
    assert broken.returncode == 2, f"{name}: a negative k is taken"
    kinds = sorted(d["kind"] for d in rendered)
    print(f"   {name}: {len(kinds)} manifests ({', '.join(kinds)})")


def charts(binary, program):
    rendered = {}
    for name, values, outside in (("defaults", {}, ()), ("full", FULL, ("own", "kafka-login")), ("hpa", HPA, ()),
                                  ("KIP-848", NEW_PROTOCOL, ())):
        said = helm(program, values, "lint", "--strict", CHART)
        assert said.returncode == 0, f"{name}: {said.stdout}{said.stderr}"
        said = helm(program, values, "template", "veil", CHART, "--namespace", "privacy")
        assert said.returncode == 0, f"{name}: {said.stderr}"
        rendered[name] = documents(said.stdout)
        check(f"helm, {name}", binary, rendered[name], outside)
    full = rendered["full"]
    (config,) = [d for d in of("ConfigMap", full) if "pipeline.yaml" in d["data"]]
    made = yaml.safe_load(config["data"]["pipeline.yaml"])
    assert made["window"]["tumbling"]["max_records"] == 1_000_000, "a large number was changed on its way"
    assert made["sink"]["kafka"]["transactional_id"] == "privacy.${INSTANCE}"
    assert [t["metadata"]["topic"] for t in of("ScaledObject", full)[0]["spec"]["triggers"]] == ["t1", "t2"]
    routed = {**FULL, "pipeline": {**PIPELINE, "route": {"topic": "routed"}}}
    for command, group, topics in (("route", "-route", ["t1", "t2"]), ("run", "", ["routed"])):
        said = helm(program, {**routed, "command": command}, "template", f"veil-{command}", CHART, "--namespace", "privacy")
        made = documents(said.stdout)
        assert command in of("StatefulSet", made)[0]["spec"]["template"]["spec"]["containers"][0]["args"]
        lag = [trigger["metadata"] for trigger in of("ScaledObject", made)[0]["spec"]["triggers"]]
        assert [(of_topic["consumerGroup"], of_topic["topic"]) for of_topic in lag] == [
            (PIPELINE["source"]["kafka"]["group"] + group, topic) for topic in topics]
    checksum = lambda d: of("StatefulSet", d)[0]["spec"]["template"]["metadata"]["annotations"]["checksum/pipeline"]
    other = helm(program, {**FULL, "hierarchies": {"country.csv": "DE;Europe;*\n"}}, "template", "veil", CHART, "--namespace", "privacy")
    assert checksum(documents(other.stdout)) != checksum(full), "a changed hierarchy does not roll the pods"
    return rendered


def mistakes(program):
    for values, word in MISTAKES:
        said = helm(program, values, "template", "veil", CHART)
        assert said.returncode != 0 and word in said.stderr, f"{values}: {said.returncode} {said.stderr}"
    print(f"   {len(MISTAKES)} mistakes in values are refused, each by name")


def kustomizations(binary, defaults):
    """The base is the chart with its defaults; the overlay builds on it."""
    program = [shutil.which("kustomize"), "build"] if shutil.which("kustomize") else [shutil.which("kubectl"), "kustomize"]
    # A kubectl that is too old for these files (Debian 12's, say) does not name its kustomize.
    if not program[0] or "kustomize" not in call(program[0], "version").stdout.lower() + program[0]:
        print("   kustomize NOT checked: neither kustomize nor a kubectl with one of version 4 or later is here")
        return
    built = {}
    for name, path, outside in (("base", "base", ("veilstream-http",)),
                                ("overlay", "overlays/example", ("veilstream-http", "kafka-login", "kafka-ca"))):
        said = call(*program, KUSTOMIZE / path)
        assert said.returncode == 0, f"{path}: {said.stderr}"
        built[name] = documents(said.stdout)
        check(f"kustomize, {name}", binary, built[name], outside)
    theirs, ours = (same(d) for d in (defaults, built["base"]))
    assert theirs == ours, f"chart and kustomization differ:\n{theirs}\n{ours}"


def same(documents):
    """A StatefulSet without what is different by nature: names, labels, annotations, where the namespace comes from."""
    text = yaml.safe_dump(of("StatefulSet", documents)[0]["spec"])
    text = re.sub(r"veilstream-[0-9a-z]{10}\b", "NAME", text).replace("veil-veilstream", "NAME")
    spec = yaml.safe_load(text.replace("name: veilstream-http", "name: NAME-http"))
    template = spec["template"]
    del template["metadata"], spec["selector"], spec["serviceName"], template["spec"]["serviceAccountName"]
    (container,) = template["spec"]["containers"]
    container["image"] = container["image"].split(":")[0]
    container.pop("imagePullPolicy", None)
    container["env"] = [variable for variable in container["env"] if variable["name"] == "INSTANCE"]
    for volume in template["spec"]["volumes"]:
        volume.pop("configMap", None)
        volume.get("secret", {}).pop("secretName", None)
    for constraint in template["spec"]["topologySpreadConstraints"]:
        del constraint["labelSelector"]
    return spec


def alerts():
    """The rules that promtool checks."""
    return yaml.safe_load((ROOT / "deploy/prometheus/veilstream.rules.yaml").read_text())["groups"]


def refresh():
    """kustomize can neither wrap a file nor read one from elsewhere."""
    rule = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "veilstream"},
            "spec": {"groups": alerts()}}
    header = "# Written by `tests/deploy/run --refresh` from deploy/prometheus/veilstream.rules.yaml.\n"
    RULE.write_text(header + yaml.safe_dump(rule, sort_keys=False, width=120))


def main():
    if sys.argv[1:] == ["--refresh"]:
        return refresh()
    binary, program = sys.argv[1:3]
    rendered = charts(binary, program)
    mistakes(program)
    kustomizations(binary, rendered["defaults"])


if __name__ == "__main__":
    main()
