"""A run from and to Google Cloud Storage, as far as that can be had here: `object_store` speaks its XML API, which is
close to S3's, to a proxy on loopback that puts generations and their conditions before an S3 server (moto). What this
shows is our use of the API, not Google's servers.

    store_google.py PROGRAM [--rows 20000]
"""

import argparse
import http.client
import http.server
import json
import os
import pathlib
import signal
import tempfile
import threading
import time
import urllib.parse

from stores import BUCKET, Bench, same, server, tables


class Google(http.server.BaseHTTPRequestHandler):
    """An S3 server with Google's names: generations count the writes of an object."""

    protocol_version = "HTTP/1.1"
    target, generations, lock, seen = 0, {}, threading.RLock(), set()

    def log_message(self, *_):
        pass

    def reply(self, status, headers, body):
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "date", "server", "content-length"):
                self.send_header(name, value)
        length = dict((name.lower(), value) for name, value in headers).get("content-length")
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def forward(self, path, headers, body):
        connection = http.client.HTTPConnection("127.0.0.1", type(self).target, timeout=60)
        connection.request(self.command, path, body, headers)
        answer = connection.getresponse()
        found = answer.status, answer.getheaders(), answer.read()
        connection.close()
        return found

    def do_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urllib.parse.urlsplit(self.path)
        name = urllib.parse.unquote(url.path)
        path = urllib.parse.quote(name) + (f"?{url.query}" if url.query else "")
        names = {"x-goog-copy-source": "x-amz-copy-source"}
        headers = {names.get(key.lower(), key): value for key, value in self.headers.items()
                   if key.lower() not in ("host", "connection", "authorization", "x-goog-if-generation-match",
                                          "transfer-encoding")}
        # moto takes any signature, but wants one.
        headers["Authorization"] = ("AWS4-HMAC-SHA256 Credential=a/20261119/us-east-1/s3/aws4_request, "
                                    "SignedHeaders=host, Signature=b")
        writes = self.command in ("PUT", "DELETE") or (self.command == "POST" and "uploadId" in url.query)
        whole = writes and "partNumber" not in url.query
        type(self).seen.add(self.command)
        with type(self).lock:
            wanted = self.headers.get("x-goog-if-generation-match")
            found = str(type(self).generations.get(name, 0))
            if wanted is not None and wanted != found:
                text = b"<Error><Code>PreconditionFailed</Code><Message>At least one of the pre-conditions</Message></Error>"
                return self.reply(412, [("Content-Type", "application/xml")], text)
            status, answered, body = self.forward(path, headers, body)
            if whole and status < 300:
                if self.command == "DELETE":
                    type(self).generations.pop(name, None)
                else:
                    type(self).generations[name] = time.time_ns()
            answered.append(("x-goog-generation", str(type(self).generations.get(name, 0))))
        self.reply(status, answered, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any


class GoogleBench(Bench):
    bucket = f"gs://{BUCKET}"

    def environment(self, port, cache):
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "AWS_"))}
        account = self.folder / "account.json"
        account.write_text(json.dumps({
            "gcs_base_url": f"http://127.0.0.1:{self.proxy}", "disable_oauth": True, "client_email": "", "private_key": "",
            "private_key_id": "",
        }))
        return keep | {"GOOGLE_SERVICE_ACCOUNT": str(account), "GOOGLE_ALLOW_HTTP": "true", "XDG_CACHE_HOME": str(cache)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=20_000)
    arguments = parser.parse_args()
    with server() as port, tempfile.TemporaryDirectory() as folder:
        Google.target = port
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Google)
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        GoogleBench.proxy = proxy.server_address[1]
        check(GoogleBench(arguments.program, folder, port, arguments.rows, unit=2000))
        proxy.shutdown()


def check(bench):
    code, _, stderr = bench.run(str(bench.folder / "local"), local=True)
    assert code == 0, stderr
    expected = tables(bench.folder / "local")
    began = time.monotonic()
    code, _, stderr = bench.run(f"{bench.bucket}/out/whole")
    usual = time.monotonic() - began
    assert code == 0, stderr
    assert same(tables(bench.fetch("out/whole", bench.folder / "found")), expected)
    print("gs://: equal rows")
    process = bench.start(f"{bench.bucket}/out/killed")
    time.sleep(0.6 * usual)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    code, _, stderr = bench.run(f"{bench.bucket}/out/killed", "--resume", cache="another")
    assert code == 0, stderr
    assert same(tables(bench.fetch("out/killed", bench.folder / "found")), expected)
    print("killed and resumed with another cache: equal rows")
    runs = [bench.start(f"{bench.bucket}/out/twice", cache=f"own-{number}") for number in range(2)]
    codes = sorted((run.communicate(), run.returncode)[1] for run in runs)
    assert codes == [0, 2], codes
    print("two at once: one published")


if __name__ == "__main__":
    main()
