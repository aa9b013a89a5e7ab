"""A run from and to Azure Blob Storage, as azurite has it, against the same run on local files: equal rows; killed and
resumed; two at once.

    store_azure.py PROGRAM AZURITE [--rows 20000]

AZURITE is the program `azurite-blob` of the npm package `azurite`; it listens on loopback and keeps nothing.
"""

import argparse
import base64
import datetime
import hashlib
import hmac
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

from stores import Bench, free_port, same, tables

ACCOUNT = "devstoreaccount1"
# The emulator's own key, the same everywhere.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Azure(Bench):
    """A bench whose store is a container of the emulator."""

    def __init__(self, program, folder, port, rows):
        self.program, self.folder, self.port, self.unit = str(program), pathlib.Path(folder), port, 2000
        self.request("PUT", "lake", query={"restype": "container"})
        self.prepare(rows, 4)

    def upload(self, path, key):
        self.request("PUT", f"lake/{key}", path.read_bytes(), {"x-ms-blob-type": "BlockBlob"})

    def request(self, method, path, body=b"", headers=None, query=None):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": now, "x-ms-version": "2021-08-06"} | (headers or {})
        query = query or {}
        told = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        path = urllib.parse.quote(path)
        resource = f"/{ACCOUNT}/{ACCOUNT}/{path}" + "".join(f"\n{name}:{query[name]}" for name in sorted(query))
        length = str(len(body)) if body else ""
        kind = "application/octet-stream" if method == "PUT" else ""
        text = f"{method}\n\n\n{length}\n\n{kind}\n\n\n\n\n\n\n{told}{resource}"
        digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        if kind:
            headers["Content-Type"] = kind
        url = f"http://127.0.0.1:{self.port}/{ACCOUNT}/{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, body if method == "PUT" else None, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def names(self, prefix):
        found, marker = {}, ""
        while True:
            query = {"restype": "container", "comp": "list", "prefix": prefix} | ({"marker": marker} if marker else {})
            text = self.request("GET", "lake", query=query).decode()
            for blob in re.findall(r"<Blob>(.*?)</Blob>", text, re.S):
                name = re.search(r"<Name>(.*?)</Name>", blob).group(1)
                found[name[len(prefix):]] = int(re.search(r"<Content-Length>(\d+)<", blob).group(1))
            marker = (re.findall(r"<NextMarker>(.+?)</NextMarker>", text) or [""])[0]
            if not marker:
                return found

    def read(self, key):
        try:
            return self.request("GET", f"lake/{key}")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def environment(self, port, cache):
        keep = {name: value for name, value in os.environ.items() if not name.startswith("AZURE_")}
        return keep | {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY, "AZURE_ALLOW_HTTP": "true",
            "AZURE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}", "XDG_CACHE_HOME": str(cache),
        }

    bucket = "az://lake"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("azurite")
    parser.add_argument("--rows", type=int, default=20_000)
    arguments = parser.parse_args()
    port = free_port()
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--silent",
               "--skipApiVersionCheck", "--disableTelemetry"]
    emulator = subprocess.Popen([arguments.azurite, *options], stdout=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as found:
                if found.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        with tempfile.TemporaryDirectory() as folder:
            check(Azure(arguments.program, folder, port, arguments.rows))
    finally:
        emulator.kill()


def check(bench):
    code, _, stderr = bench.run(str(bench.folder / "local"), local=True)
    assert code == 0, stderr
    expected = tables(bench.folder / "local")
    began = time.monotonic()
    code, _, stderr = bench.run("az://lake/out/whole")
    usual = time.monotonic() - began
    assert code == 0, stderr
    assert same(tables(bench.fetch("out/whole", bench.folder / "found")), expected)
    print("az://: equal rows")
    process = bench.start("az://lake/out/killed")
    time.sleep(0.6 * usual)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    code, _, stderr = bench.run("az://lake/out/killed", "--resume", cache="another")
    assert code == 0, stderr
    assert same(tables(bench.fetch("out/killed", bench.folder / "found")), expected)
    print("killed and resumed with another cache: equal rows")
    runs = [bench.start("az://lake/out/twice", cache=f"own-{number}") for number in range(2)]
    codes = sorted((run.communicate(), run.returncode)[1] for run in runs)
    assert codes == [0, 2], codes
    print("two at once: one published")


if __name__ == "__main__":
    main()
