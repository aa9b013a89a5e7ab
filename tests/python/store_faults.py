"""Runs that read from and write to an S3 server through a proxy that makes faults. A run ends with the rows of a local
run, or with a clear error, shows nothing, and ends with them when it is resumed.

    store_faults.py PROGRAM [--rows 20000] [--rounds 3] [--seed 1]
"""

import argparse
import http.client
import http.server
import pathlib
import random
import re
import socket
import tempfile
import threading
import time

from stores import BUCKET, KEY, SECRET, Bench, same, server, tables

FORBIDDEN = f"<Error><Code>AccessDenied</Code><Message>no {KEY} {SECRET}</Message></Error>".encode()
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
FAULTS = ["errors", "drops", "cuts", "stalls", "forbidden", "expired"]


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests on, but for some."""

    protocol_version = "HTTP/1.1"
    target, fault, chance, allowed, seen, made, read = 0, "", random.Random(), 0, 0, 0, 0

    def log_message(self, *_):
        pass

    def reply(self, status, headers, body, cut=False):
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "date", "server", "content-length"):
                self.send_header(name, value)
        length = dict((name.lower(), value) for name, value in headers).get("content-length")
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.wfile.flush()
            self.drop()

    def drop(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def handle_any(self):
        cls = type(self)
        cls.seen += 1
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hit = cls.chance.random() < 0.05
        if cls.fault in ("forbidden", "expired") and cls.seen > cls.allowed:
            cls.made += 1
            return self.reply(403, [("Content-Type", "application/xml")],
                              FORBIDDEN if cls.fault == "forbidden" else EXPIRED)
        if hit and cls.fault == "errors":
            cls.made += 1
            return self.reply(500, [], b"<Error><Code>InternalError</Code></Error>")
        if hit and cls.fault == "stalls" and cls.made < 3:
            cls.made += 1
            time.sleep(10)
        # Half of the drops come after the server has done what was asked.
        if hit and cls.fault == "drops" and cls.chance.random() < 0.5:
            cls.made += 1
            return self.drop()
        upstream = http.client.HTTPConnection("127.0.0.1", cls.target, timeout=60)
        upstream.request(self.command, self.path, body, dict(self.headers))
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        if hit and cls.fault == "drops":
            cls.made += 1
            return self.drop()
        cut = hit and cls.fault == "cuts" and self.command == "GET" and len(content) > 1
        cls.made += cut
        cls.read += len(content)
        return self.reply(answer.status, answer.getheaders(), content, cut)

    def guarded(self):
        try:
            self.handle_any()
        except OSError:
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = guarded


def visible(bench, prefix):
    return [name for name in bench.names(prefix + "/") if not name.startswith("_overturn/")]


def round_of(bench, port, fault, number, expected):
    prefix = f"out/{fault}-{number}"
    url = f"s3://{BUCKET}/{prefix}"
    Proxy.fault, Proxy.seen, Proxy.made = fault, 0, 0
    # Later and later: while tables are read, splits are written, results are published.
    Proxy.allowed = 20 + 60 * number
    began = time.monotonic()
    code, stdout, stderr = bench.run(url, port=port)
    seconds, made = time.monotonic() - began, Proxy.made
    Proxy.fault = ""
    said = ""
    if code != 0:
        said = re.search(r'"message":"([^"\\]*)', stderr.splitlines()[-1]).group(1)
        assert bench.whole(prefix) is None, "published by a run that failed"
        if "commit.json" not in "".join(bench.names(prefix + "/")):
            assert not visible(bench, prefix), f"visible before the decision: {visible(bench, prefix)}"
        again, _, stderr = bench.run(url, "--resume", cache="another")
        assert again == 0, stderr
    assert same(tables(bench.fetch(prefix, bench.folder / "found")), expected), "other rows"
    print(f"{fault} {number}: exit {code}, {made} faults, {seconds:.1f} s {said}", flush=True)
    if fault in ("forbidden", "expired"):
        assert code in (1, 2) or made == 0


def changed(bench, expected):
    """The table is rewritten in mid-run."""
    prefix = "out/changed"
    process = bench.start(f"s3://{BUCKET}/{prefix}", "--threads", "1", cache="cold")
    while not bench.names(f"{prefix}/_overturn/"):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    name = sorted(bench.names("in/credit/"))[-1]
    body = bench.read(f"in/credit/{name}")
    bench.s3.put_object(Bucket=BUCKET, Key=f"in/credit/{name}", Body=body + b"x")
    _, stderr = process.communicate()
    bench.s3.put_object(Bucket=BUCKET, Key=f"in/credit/{name}", Body=body)
    assert process.returncode == 1 and "was changed while the run was using it" in stderr, stderr
    assert not visible(bench, prefix)
    code, _, stderr = bench.run(f"s3://{BUCKET}/{prefix}", "--resume")
    assert code == 0, stderr
    assert same(tables(bench.fetch(prefix, bench.folder / "found")), expected)
    print("changed: refused, nothing visible, equal when it was as before", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    for name, default in [("rows", 20_000), ("rounds", 3), ("seed", 1)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    Proxy.chance = random.Random(arguments.seed)
    with server() as port, tempfile.TemporaryDirectory() as folder:
        Proxy.target = port
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        bench = Bench(arguments.program, folder, port, arguments.rows, unit=2000)
        code, _, stderr = bench.run(str(bench.folder / "local"), local=True)
        assert code == 0, stderr
        expected = tables(bench.folder / "local")
        for fault in FAULTS:
            for number in range(arguments.rounds):
                round_of(bench, proxy.server_address[1], fault, number, expected)
        changed(bench, expected)
        proxy.shutdown()


if __name__ == "__main__":
    main()
