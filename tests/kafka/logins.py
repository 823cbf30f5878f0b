"""Logins against their real counterparts: right, wrong, expired, and changed three times under load with nothing lost or doubled.

    tests/kafka/logins.py BINARY [NAME...]

Kerberos (a KDC of its own) goes by keys in a file, which the service reads by itself whenever it gets a ticket. Passwords, client
certificates and the registry's token are read when the process starts, so they are changed as `deploy/README.md` says: the new one is
accepted beside the old one, then one instance after the other starts again. Tokens (OAUTHBEARER) are in `faults.py`. BINARY must be
built with the `failpoints` feature, and with `kerberos` for the scenarios about it; without that feature they must be refused.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import cluster as c
import cut
import faults

REALM = "VEILSTREAM.TEST"
ROTATIONS = 3
DEBIAN = c.ROOT / "tests" / "infra" / "debian"


@contextlib.contextmanager
def started(name, flags, settings=()):
    """A cluster, and a space on it. What it says is printed as it comes."""
    cluster, space = c.Cluster(f"login-{name}", flags=flags, settings=settings), None
    try:
        space = c.Space(cluster, name)
        yield cluster, space
    finally:
        if space:
            space.close()
        cluster.down()


@contextlib.contextmanager
def load(produce):
    """Some records all the time."""
    over = threading.Event()

    def flow():
        while not over.is_set():
            produce()
            over.wait(0.3)

    thread = threading.Thread(target=flow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def publishes(instances, more=2):
    """Each of them has published since."""
    before = [instance.said().count("release published") for instance in instances]
    for instance, count in zip(instances, before):
        instance.says("release published", times=count + more)


def refused(instance, words, code=3, **env):
    """`validate --connect` says why."""
    told = subprocess.run([faults.BINARY, "validate", "--connect", "-c", instance.config], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **env})
    said = told.stdout + told.stderr
    assert told.returncode == code and words in said, f"{told.returncode}: {said}"
    return said


def rolling(instances, rotate, refuse_old=lambda: None):
    """Three changes of a secret under load: one instance after the other ends as a supervisor ends it, and starts again."""
    for turn in range(ROTATIONS):
        rotate(turn)
        for instance in instances:
            instance.kill(signal.SIGTERM)
            assert instance.process.returncode == 0, f"a drain ended with {instance.process.returncode}"
            instance.start()
            publishes([instance])
        refuse_old()


# --- Kerberos ---------------------------------------------------------------------------------------------------------


class Kdc:
    """A realm of its own on loopback, whose tickets last for some seconds."""

    def __init__(self, directory, seconds):
        c.run(DEBIAN, "kerberos")
        self.dir, port = directory, c.free_port()
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.iterdir():
            old.unlink()
        (directory / "krb5.conf").write_text(f"""[libdefaults]
default_realm = {REALM}
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
clockskew = 2
udp_preference_limit = 1
[realms]
{REALM} = {{ kdc = 127.0.0.1:{port} }}
[domain_realm]
localhost = {REALM}
""".replace("{ kdc", "{\n kdc").replace(f"{port} }}", f"{port}\n}}"))
        (directory / "kdc.conf").write_text(f"""[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{REALM} = {{
 database_name = {directory}/principals
 key_stash_file = {directory}/stash
 max_life = {seconds}s
 supported_enctypes = aes256-cts-hmac-sha1-96:normal
}}
[logging]
kdc = FILE:{directory}/kdc.log
""")
        # What the service's own calls of `kinit` see, too: a ticket of somebody else on this machine would do otherwise.
        self.env = {"KRB5_CONFIG": str(directory / "krb5.conf"), "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
                    "KRB5CCNAME": f"FILE:{directory}/tickets"}
        self.tool("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self.process = subprocess.Popen(["/usr/sbin/krb5kdc", "-n", "-r", REALM], env={**os.environ, **self.env})
        for principal in ("kafka/localhost", "veil/client", "veil/other"):
            self.tool("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self.keys("kafka/localhost", "broker.keytab")

    def tool(self, name, *args):
        return c.run(f"/usr/sbin/{name}", *args, env={**os.environ, **self.env})

    def keys(self, principal, name):
        """New keys; those from before are good for nothing from now on. They take the place of the old ones in one step."""
        fresh = self.dir / f"{name}.new"
        self.tool("kadmin.local", "-q", f"ktadd -k {fresh} {principal}")
        fresh.rename(self.dir / name)
        return self.dir / name

    def close(self):
        self.process.kill()
        self.process.wait()


def kerberos():
    """Tickets: right, wrong principal, wrong keys, expired, three changes of the keys under load, and a KDC that is away for longer
    than a ticket lasts."""
    kdc = Kdc(c.RUN / "kdc", 12)
    try:
        settings = ["listener.name.kerberos.gssapi.connections.max.reauth.ms=6000"]
        with started("kerberos", ["--kerberos", kdc.dir], settings) as (cluster, space):
            address = cluster.env["KERBEROS_BOOTSTRAP"].strip("'\"")
            ours, others = kdc.keys("veil/client", "client.keytab"), kdc.keys("veil/other", "other.keytab")

            def instance(number, principal="veil/client", keytab=ours, renew=2000):
                login = f"kerberos: {{ principal: {principal}@{REALM}, keytab: {keytab}, service: kafka }}"
                return c.Instance(space, faults.BINARY, number, bootstrap=address, more=login,
                                  extra=f', sasl.kerberos.min.time.before.relogin: "{renew}"')

            refused(instance(7, "veil/nobody"), "under `kerberos`", **kdc.env)
            refused(instance(7, keytab=others), "under `kerberos`", **kdc.env)
            refused(instance(7), "is fine", code=0, **kdc.env)
            a = instance(0).start(**kdc.env)
            with load(lambda: space.produce(faults.BINARY, 200)):
                publishes([a])
                for _ in range(ROTATIONS):
                    kdc.keys("veil/client", "client.keytab")
                    time.sleep(14)  # every ticket from before is over, and every connection has had to show a new one
                    publishes([a])
                os.kill(kdc.process.pid, signal.SIGSTOP)
                before = a.said().count("turns us away")
                c.wait_for(lambda: a.said().count("turns us away") > before, 60, "the brokers to turn an expired ticket away")
                os.kill(kdc.process.pid, signal.SIGCONT)
                publishes([a])
            faults.accept(space)
            assert a.process.returncode == 0, f"ended with {a.process.returncode}"
    finally:
        kdc.close()


# --- secrets that a process reads when it starts ------------------------------------------------------------------------


def password():
    """SCRAM by a secret file: the password is changed three times under load."""
    with started("password", ["--sasl"]) as (cluster, space):
        secret = space.dir / "password"
        secret.write_text(cluster.env["SASL_PASSWORD"])
        address = cluster.env["SASL_BOOTSTRAP"].strip("'\"")
        login = f"sasl: {{ mechanism: scram-sha-512, username: {cluster.env['SASL_USER']}, password: '${{file:{secret}}}' }}"
        instances = [c.Instance(space, faults.BINARY, n, bootstrap=address, more=login).start() for n in (0, 1)]

        def rotate(turn):
            cluster.tool("configs", "--alter", "--entity-type", "users", "--entity-name", cluster.env["SASL_USER"],
                         "--add-config", f"SCRAM-SHA-512=[password=secret-{turn}]")
            # Who still has the old one goes on by the connections that it has.
            secret.write_text(f"secret-{turn}")

        with load(lambda: space.produce(faults.BINARY, 200)):
            publishes(instances)
            rolling(instances, rotate)
            # The old one, on new connections: told in one sentence, and nothing is lost until the new one is there.
            secret.write_text("wrong")
            a = instances[0]
            a.kill(signal.SIGTERM)
            a.start()
            faults.died(a, 3)
            assert "under `sasl`" in a.said(), "nobody is told what to check"
            secret.write_text(f"secret-{ROTATIONS - 1}")
            a.start()
            publishes([a])
        faults.accept(space)
        said = "".join(instance.said() for instance in instances)
        assert "secret-" not in said and cluster.env["SASL_PASSWORD"] not in said, "a password is in a log"


def certificate():
    """Client certificates: changed three times under load; one that has expired is told on the next connection."""
    with started("certificate", ["--tls"]) as (cluster, space):
        ours, tls = cluster.dir / "ours", pathlib.Path(cluster.env["CA"]).parent
        ours.mkdir(exist_ok=True)

        def sign(name, seconds):
            """A key and a certificate for a while. They take the place of the old ones in one step each."""
            openssl = lambda *args: c.run("openssl", *args)
            key, request, signed = (ours / f"{name}.{end}" for end in ("key", "csr", "pem"))
            end = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + seconds))
            openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
            openssl("ca", "-batch", "-notext", "-config", tls / "ca.conf", "-cert", tls / "ca.pem", "-keyfile", tls / "ca.key",
                    "-in", request, "-out", signed, "-enddate", end)
            key.rename(ours / "client.key")
            signed.rename(ours / "client.pem")

        sign("first", 3600)
        login = f"tls: {{ ca: {cluster.env['CA']}, certificate: {ours}/client.pem, key: {ours}/client.key }}"
        address = cluster.env["MTLS_BOOTSTRAP"].strip("'\"")
        instances = [c.Instance(space, faults.BINARY, n, bootstrap=address, more=login).start() for n in (0, 1)]
        with load(lambda: space.produce(faults.BINARY, 200)):
            publishes(instances)
            # The last one is short-lived.
            rolling(instances, lambda turn: sign(f"turn-{turn}", 3600 if turn < ROTATIONS - 1 else 90))
            until = time.monotonic() + 90
            c.wait_for(lambda: time.monotonic() > until, 120, "the certificate to expire")
            publishes(instances)  # connections that are there already go on
            for instance in instances:
                cut.connections(instance.process.pid)
            instances[0].says("that no certificate has expired")
            sign("last", 3600)
            for instance in instances:
                instance.kill()
                instance.start()
            publishes(instances)
        faults.accept(space)


def registry_token():
    """The registry's bearer token: changed three times under load, while messages of new schemas come."""
    with started("token", ["--tls"]) as (cluster, space):
        where, script = c.RUN / "login-registry", c.ROOT / "tests" / "infra" / "registry"
        env = c.patiently(script, "up", "--dir", where)
        url = next(line.split("=", 1)[1] for line in env.splitlines() if line.startswith("REGISTRY=")).strip("'\"")
        accepted, secret, tls = space.dir / "accepted", space.dir / "token", pathlib.Path(cluster.env["CA"]).parent
        accepted.write_text("bearer-first")
        secret.write_text("bearer-first")
        gate = subprocess.Popen([sys.executable, c.ROOT / "tests" / "infra" / "gate.py", url.split("/apis")[0], tls / "broker.pem",
                                 tls / "broker.key", tls / "ca.pem", f"@{accepted}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True)
        try:
            address = f"https://localhost:{gate.stdout.readline().strip()}/apis{url.split('/apis')[1]}"
            mutual = f"{{ ca: {tls}/ca.pem, certificate: {tls}/client.pem, key: {tls}/client.key }}"
            registry = f"format: confluent-avro\n    registry: {{ url: '{address}', token: '${{file:{secret}}}', tls: {mutual} }}"
            seeds = iter(range(1, 100))

            def produce(records):
                subprocess.run([faults.BINARY, "generate", "--records", str(records), "--subjects", "500", "--seed", str(next(seeds)),
                                "--format", "avro", "--registry", url, "--brokers", space.bootstrap, "--topic", space.source],
                               check=True, timeout=120)

            produce(2000)
            instances = [c.Instance(space, faults.BINARY, n, more=registry, sink_more=", format: json").start() for n in (0, 1)]
            publishes(instances, 1)

            def rotate(turn):
                # Both are accepted until every instance has the new one.
                old = secret.read_text()
                accepted.write_text(f"{old}\nbearer-{turn}")
                secret.write_text(f"bearer-{turn}")

            with load(lambda: produce(400)):
                rolling(instances, rotate, lambda: accepted.write_text(secret.read_text()))
            space.drained()
            secret.write_text("bearer-wrong")
            refused(instances[0], "token")
            for instance in instances:
                instance.kill(signal.SIGTERM)
            # The generator's people come with every seed anew, so records are not told apart here.
            verdict = faults.judge(space, opaque=True)
            print(verdict.text())
            assert not verdict.problems.get("I1") and not verdict.missing, f"{verdict.problems} {verdict.missing}"
            assert not any("bearer-" in instance.said() for instance in instances), "a token is in a log"
        finally:
            gate.kill()
            gate.wait()
            c.run(script, "down", where)


# --- rights -------------------------------------------------------------------------------------------------------------


def may_not_create():
    """`create_topics` by a user who may not make topics: told in one sentence, by `run` and for progress topics too."""
    settings = ["authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS"]
    with started("rights", ["--sasl"], settings) as (cluster, space):
        user, secret = cluster.env["SASL_USER"], cluster.env["SASL_PASSWORD"]
        for what, operations in (("--topic", ["Describe", "Read", "Write"]), ("--group", ["All"]), ("--transactional-id", ["All"])):
            wanted = [flag for operation in operations for flag in ("--operation", operation)]
            cluster.tool("acls", "--add", "--allow-principal", f"User:{user}", *wanted, what, "*")
        login = f"sasl: {{ mechanism: scram-sha-512, username: {user}, password: '{secret}' }}"
        address = cluster.env["SASL_BOOTSTRAP"].strip("'\"")
        space.produce(faults.BINARY, 500)
        missing = c.Instance(space, faults.BINARY, 0, bootstrap=address, more=login, sink="elsewhere", sink_more=", create_topics: true")
        missing.start()
        faults.died(missing, 3)
        assert "this user may not create" in missing.said(), missing.said()[-500:]
        apart = c.Instance(space, faults.BINARY, 1, origin=space.bootstrap, more="", bootstrap=address,
                           elsewhere=f", brokers: '{address}', progress: nowhere, {login.strip()}", sink_more=", create_topics: true")
        apart.start()
        faults.died(apart, 3)
        assert "this user may not create" in apart.said(), apart.said()[-500:]


SCENARIOS = [kerberos, password, certificate, registry_token, may_not_create]


def main():
    names = {scenario.__name__: scenario for scenario in SCENARIOS}
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(names):
        print(f"{__doc__}\nScenarios: {', '.join(names)}")
        return 2
    faults.BINARY = str(pathlib.Path(sys.argv[1]).resolve())
    faults.OUTPUT.text = sys.stdout
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left running
    failed = []
    for name in sys.argv[2:] or names:
        began = time.monotonic()
        print(f"== {name}: {names[name].__doc__}", flush=True)
        try:
            names[name]()
            print(f"   ok ({time.monotonic() - began:.0f} s)", flush=True)
        except Exception as error:  # a check that breaks is a check that failed
            failed.append(name)
            print(f"   FAILED: {type(error).__name__}: {error} {getattr(error, 'stderr', '')}", flush=True)
    print(f"{len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
