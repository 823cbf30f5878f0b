#!/usr/bin/env python3
"""A gate before a server of the tests: TLS with a client certificate, and a bearer token, as companies put before theirs.

    tests/infra/gate.py TARGET CERTIFICATE KEY CA TOKEN

Listens on a free port of 127.0.0.1 and prints it; forwards what has a certificate of CA and the token to TARGET (http://...).
TOKEN may be @FILE, which has a token a line and is read again for each request.
Ends when its standard input does.
"""

import http.server
import pathlib
import ssl
import sys
import threading
import urllib.error
import urllib.request

target, certificate, key, ca, token = sys.argv[1:]


def accepted():
    return pathlib.Path(token[1:]).read_text().split() if token.startswith("@") else [token]


class Gate(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
        if self.headers.get("Authorization") not in [f"Bearer {known}" for known in accepted()]:
            return self.answer(401, b"{}")
        kept = {name: value for name, value in self.headers.items() if name in ("Accept", "Content-Type")}
        try:
            with urllib.request.urlopen(urllib.request.Request(target + self.path, body, kept), timeout=30) as answer:
                self.answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            self.answer(error.code, error.read())

    do_GET = do_POST = forward

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # a handshake that failed, which is what is tested


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
context.load_verify_locations(ca)
context.verify_mode = ssl.CERT_REQUIRED
server = Server(("127.0.0.1", 0), Gate)
# The handshake is made by the thread of the connection.
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
