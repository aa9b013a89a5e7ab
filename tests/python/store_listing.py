"""A table below a prefix with very many objects: the list comes page by page, and what is no file of the table costs no
memory. The server, on loopback, is made up: it has as many objects as it is told.

    store_listing.py PROGRAM [--objects 100000] [--files 200]

Of the objects FILES are files of the table, the others leftovers of a writer below `_temporary/`. Prints seconds, pages
and peak memory, beside those of a list of the files alone.
"""

import argparse
import http.server
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse

from stores import PROJECT, environment

PAGE = 1000


def server(body, objects, files):
    pages = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, status, content, kind="application/xml", headers=()):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query))
            if "list-type" in query:
                return self.page(int(query.get("continuation-token", 0)))
            if not url.path.endswith(".parquet"):
                return self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
            first, last = 0, len(body) - 1
            if found := re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
                first, last = int(found[1]), min(int(found[2]), last)
            headers = [("ETag", '"one"'), ("Last-Modified", "Thu, 19 Nov 2026 00:00:00 GMT"),
                       ("Content-Range", f"bytes {first}-{last}/{len(body)}")]
            self.reply(206, body[first:last + 1], "binary/octet-stream", headers)

        def page(self, number):
            pages.append(number)
            names = range(number * PAGE, min(objects, (number + 1) * PAGE))
            name = lambda at: f"table/part-{at:06}.parquet" if at < files else f"table/_temporary/{at:09}.parquet"
            items = "".join(
                f"<Contents><Key>{name(at)}</Key><LastModified>2026-11-19T00:00:00.000Z</LastModified>"
                f"<ETag>&quot;one&quot;</ETag><Size>{len(body)}</Size></Contents>" for at in names)
            more = (number + 1) * PAGE < objects
            token = f"<NextContinuationToken>{number + 1}</NextContinuationToken>" if more else ""
            text = (f'<?xml version="1.0"?><ListBucketResult><Name>lake</Name><IsTruncated>{str(more).lower()}'
                    f"</IsTruncated>{token}{items}</ListBucketResult>")
            self.reply(200, text.encode())

    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.daemon_threads = True
    threading.Thread(target=found.serve_forever, daemon=True).start()
    return found, pages


# A process of its own for each run: the peak of all children is kept together.
MEASURED = """
import json, resource, subprocess, sys, time
began = time.monotonic()
run = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(json.dumps({"code": run.returncode, "seconds": round(time.monotonic() - began, 2), "said": run.stderr[-900:],
                  "peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10}))
"""


def measured(program, folder, body, objects, files):
    found, pages = server(body, objects, files)
    job = folder / "job.toml"
    job.write_text(f"""
[input]
features = "s3://lake/table"
schema = "{PROJECT}/schemas/credit.toml"
key = "application_id"
[predictor]
kind = "onnx"
model = "{PROJECT}/jobs/demo/logistic.onnx"
[target]
class = "approved"
[output]
dir = "{folder}/out"
""")
    # Every file is the same, so that keys are there twice: that is said after the list was read and the footers were.
    line = [sys.executable, "-c", MEASURED, program, "run", job]
    told = subprocess.run(line, capture_output=True, text=True, check=True, timeout=600,
                          env=environment(found.server_address[1], folder / "cache"))
    result = json.loads(told.stdout)
    said = result.pop("said")
    assert result.pop("code") == 1 and "application_id" in said, said
    assert f"files={files}" in said or f"in {files} files" in said or files == 0, said
    found.shutdown()
    return result | {"objects": objects, "pages": len(pages)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([given.program, "synth", folder / "one", "--rows", "50", "--files", "1", "-q"], check=True,
                       stdout=subprocess.DEVNULL)
        body = next((folder / "one").iterdir()).read_bytes()
        few = measured(given.program, folder, body, given.files, given.files)
        many = measured(given.program, folder, body, given.objects, given.files)
        print(json.dumps({"few": few, "many": many}))
        assert many["pages"] == -(-given.objects // PAGE), many
        assert many["peak_mib"] < 1.2 * few["peak_mib"] + 16, (few, many)


if __name__ == "__main__":
    main()
