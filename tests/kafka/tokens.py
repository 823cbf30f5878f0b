"""A token server of the tests' own: client credentials in, signed tokens out, and the keys that brokers verify them with."""

import base64
import http.server
import json
import re
import subprocess
import tempfile
import threading
import time


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Key:
    """An RSA key, by openssl: Python has none of its own."""

    def __init__(self, number):
        self.name = f"key-{number}"
        self.file = tempfile.NamedTemporaryFile(suffix=".pem")
        subprocess.run(["openssl", "genrsa", "-out", self.file.name, "2048"], check=True, capture_output=True)
        modulus = subprocess.run(["openssl", "rsa", "-in", self.file.name, "-noout", "-modulus"], check=True, capture_output=True, text=True)
        self.modulus = bytes.fromhex(re.search("Modulus=([0-9A-F]+)", modulus.stdout)[1])

    def public(self):
        return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.name, "n": b64(self.modulus), "e": "AQAB"}

    def sign(self, claims):
        head = b64(json.dumps({"alg": "RS256", "typ": "JWT", "kid": self.name}).encode())
        text = f"{head}.{b64(json.dumps(claims).encode())}"
        signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.file.name], input=text.encode(), check=True, capture_output=True)
        return f"{text}.{b64(signed.stdout)}"


class Tokens:
    """`lifetime`: seconds that a token is good for. `audience`: whom it is for; brokers want kafka. `skew`: added to all its times."""

    def __init__(self, client="veil", secret="open-sesame-77"):
        self.client, self.secret, self.lifetime, self.audience, self.skew = client, secret, 300, "kafka", 0
        self.keys, self.given, self.denied = [Key(0)], [], 0
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self, status, content):
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer(200, {"keys": [key.public() for key in owner.keys]})

            def do_POST(self):
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                pair = base64.b64encode(f"{owner.client}:{owner.secret}".encode()).decode()
                if self.headers.get("Authorization") != f"Basic {pair}" or "grant_type=client_credentials" not in form:
                    owner.denied += 1
                    self.answer(401, {"error": "invalid_client"})
                    return
                token = owner.token()
                owner.given.append(token)
                self.answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": owner.lifetime})

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def token(self):
        now = int(time.time()) + self.skew
        return self.keys[-1].sign({"iss": "tests", "sub": self.client, "aud": self.audience, "scope": "kafka", "iat": now,
                                   "exp": now + self.lifetime, "jti": str(len(self.given))})

    def rotate(self):
        """New tokens are signed by a new key."""
        self.keys.append(Key(len(self.keys)))

    def close(self):
        self.server.shutdown()
        self.server.server_close()
