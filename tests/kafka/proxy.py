"""A TCP proxy that can be told to misbehave: between the service and a broker that advertises the proxy's address."""

import select
import socket
import threading
import time


class Proxy:
    """Forwards connections to `target`. `mode` may be changed at any time:

    pass       forwards
    cut        breaks every connection, and takes no new one
    half-open  keeps connections open and forwards nothing; what was sent is lost when the mode ends, as in a network that
               was down: both ends only notice by their own timeouts, or because the connection is then broken
    delay      forwards everything `delay` seconds late

    Beside the mode, `hold` keeps one request back, and `deliver` brings it late.
    """

    def __init__(self, target, port):
        self.target, self.port, self.mode, self.delay = target, port, "pass", 0.0
        self.wanted = self.request = self.silent = None
        self.pairs, self.lock, self.over = set(), threading.Lock(), False
        self.listener = socket.create_server(("127.0.0.1", port), backlog=128)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.over:
            try:
                ours, _ = self.listener.accept()
            except OSError:
                return
            if self.mode == "cut":
                ours.close()
                continue
            try:
                theirs = socket.create_connection(self.target, timeout=10)
            except OSError:
                ours.close()
                continue
            pair = (ours, theirs)
            with self.lock:
                self.pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self.forward, args=(source, sink, pair), daemon=True).start()

    def hold(self, api):
        """The next request with this key is kept back. Its connection stands still from there on; others are not touched."""
        self.wanted, self.request, self.silent = api, None, None

    def deliver(self):
        """Brings the broker what was held, as a network does that was asleep; gives the answer that nobody waits for any more."""
        _, theirs = self.silent
        with theirs:
            theirs.settimeout(30)
            theirs.sendall(self.request)
            answer = b""
            while not whole(answer):
                data = theirs.recv(65536)
                assert data, "the broker has closed the connection of the request that was held"
                answer += data
        return answer

    def forward(self, source, sink, pair):
        begun = b""
        try:
            while not self.over:
                if not select.select([source], [], [], 0.2)[0]:
                    continue
                if self.silent is pair:
                    return
                data = source.recv(65536)
                if not data:
                    break
                if self.mode == "half-open":
                    while self.mode == "half-open" and not self.over:
                        time.sleep(0.05)
                    break
                if self.mode == "delay":
                    time.sleep(self.delay)
                if source is pair[1]:
                    sink.sendall(data)
                    continue
                begun += data
                while request := whole(begun):
                    begun = begun[len(request):]
                    if self.keeps(request, pair):
                        return
                    sink.sendall(request)
        except (OSError, ValueError):
            pass
        self.drop(pair)

    def keeps(self, request, pair):
        with self.lock:
            if int.from_bytes(request[4:6], "big") != self.wanted:
                return False
            self.pairs.discard(pair)
            self.wanted, self.request, self.silent = None, request, pair
            return True

    def drop(self, pair):
        with self.lock:
            self.pairs.discard(pair)
        for end in pair:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def set(self, mode, delay=0.0):
        self.mode, self.delay = mode, delay
        if mode == "cut":
            with self.lock:
                pairs = list(self.pairs)
            for pair in pairs:
                self.drop(pair)

    def close(self):
        self.over = True
        self.set("cut")
        self.listener.close()


def whole(data):
    """The first request or answer in it, or nothing if that has not come as a whole."""
    size = 4 + int.from_bytes(data[:4], "big")
    return data[:size] if 4 < size <= len(data) else b""
