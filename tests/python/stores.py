"""An S3 server on loopback, a job that reads from and writes to it, and what its readers see: for campaigns."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import boto3
import botocore.config
import pyarrow.parquet as pq

PROJECT = pathlib.Path(__file__).resolve().parents[2]
KEY, SECRET = "planted-key-id-0001", "planted-secret-0002"
BUCKET = "lake"

# The server ends with whoever holds its standard input.
SERVER = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from moto.server import main
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
"""

JOB = """
[input]
features = "${in}"
schema = "${models}/credit.toml"
key = "application_id"
[predictor]
kind = "onnx"
model = "${models}/forest.onnx"
null_text = ""
[target]
class = "approved"
[explain]
split_rows = 2000
method = "search"
refine = "full"
[output]
dir = "${out}"
overwrite = false
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def server():
    """A moto server; gives its port."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait()


def environment(port, cache):
    keep = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return keep | {
        "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true",
        "XDG_CACHE_HOME": str(cache), "RUST_LOG": "info",
    }


def client(port):
    config = botocore.config.Config(max_pool_connections=32, retries={"max_attempts": 5})
    return boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
        aws_access_key_id=KEY, aws_secret_access_key=SECRET, config=config,
    )


def copied(url, folder):
    """The objects below a URL as a folder of this machine, for readers that know no store."""
    bucket, prefix = url.removeprefix("s3://").split("/", 1)
    store = client(os.environ["AWS_ENDPOINT_URL"].rsplit(":", 1)[1])
    pages = store.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + "/")
    for item in (item for page in pages for item in page.get("Contents", [])):
        path = pathlib.Path(folder) / item["Key"][len(prefix) + 1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        store.download_file(bucket, item["Key"], str(path))
    return str(folder)


class Bench:
    """A folder, a bucket and a program."""

    def __init__(self, program, folder, port, rows, unit, files=4):
        self.program, self.folder, self.port, self.unit = str(program), pathlib.Path(folder), port, unit
        self.folder.mkdir(parents=True, exist_ok=True)
        self.s3 = client(port)
        self.s3.create_bucket(Bucket=BUCKET)
        self.prepare(rows, files)

    def prepare(self, rows, files):
        """Table, models and job, here and in the store."""
        table = self.folder / "table"
        subprocess.run([self.program, "synth", table, "--rows", str(rows), "--files", str(files), "-q"],
                       check=True, stdout=subprocess.DEVNULL)
        models = self.folder / "models"
        models.mkdir()
        for source in ["jobs/demo/forest.onnx", "schemas/credit.toml"]:
            shutil.copy(PROJECT / source, models)
        for root, prefix in [(table, "in/credit"), (models, "models")]:
            for path in sorted(root.iterdir()):
                self.upload(path, f"{prefix}/{path.name}")
        (self.folder / "job.toml").write_text(JOB)

    bucket = f"s3://{BUCKET}"

    def upload(self, path, key):
        self.s3.upload_file(str(path), BUCKET, key)

    def environment(self, port, cache):
        return environment(port, cache)

    def command(self, out, *more, local=False, overwrite=False):
        here = self.folder
        table = here / "table" if local else f"{self.bucket}/in/credit"
        models = here / "models" if local else f"{self.bucket}/models"
        sets = {"in": table, "models": models, "out": out}
        arguments = [self.program, "run", str(here / "job.toml"), "--format", "json", "--log", "json", *more]
        for name, value in sets.items():
            arguments += ["--set", f"{name}={value}"]
        for name, value in [("explain.split_rows", self.unit), ("output.overwrite", str(overwrite).lower())]:
            arguments += ["--override", f"{name}={value}"]
        return arguments

    def start(self, out, *more, cache="cache", port=None, **options):
        return subprocess.Popen(
            self.command(out, *more, **options), env=self.environment(port or self.port, self.folder / cache),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )

    def run(self, out, *more, **options):
        process = self.start(out, *more, **options)
        stdout, stderr = process.communicate(timeout=600)
        for text in (stdout, stderr):
            assert SECRET not in text and KEY not in text, "a secret was told"
        return process.returncode, stdout, stderr

    def names(self, prefix):
        found, token = {}, {}
        while True:
            page = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix, **token)
            found |= {item["Key"][len(prefix):]: item["Size"] for item in page.get("Contents", [])}
            if not page.get("IsTruncated"):
                return found
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def read(self, key):
        try:
            return self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None

    def fetch(self, prefix, folder):
        """The results below a prefix as a folder, without what readers skip."""
        shutil.rmtree(folder, ignore_errors=True)
        for name in self.names(prefix + "/"):
            if not name.startswith(("_overturn/", "_failed/")):
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.read(f"{prefix}/{name}"))
        return pathlib.Path(folder)

    def whole(self, prefix):
        """Whether `_SUCCESS` stands over a complete set; None if there is none."""
        if self.read(f"{prefix}/_SUCCESS") is None:
            return None
        manifest = json.loads(self.read(f"{prefix}/manifest.json") or b"{}")
        sizes = self.names(prefix + "/")
        whole = bool(manifest) and all(sizes.get(file["path"]) == file["bytes"] for file in manifest["tables"])
        # Between the two looks another run may have begun to replace it.
        return whole or None if self.read(f"{prefix}/_SUCCESS") is None else whole


def tables(folder):
    """All rows of both tables and of the reports, by name."""
    found = {}
    for table in ["counterfactuals", "rejects"]:
        parts = sorted((folder / table).glob("*.parquet"))
        found[table] = [pq.read_table(part).to_pydict() for part in parts]
    for report in sorted((folder / "reports").glob("*.parquet")):
        found[report.name] = pq.read_table(report).to_pydict()
    return found


def same(left, right):
    """Whether two results have the same rows. NaN is equal to itself here."""
    return repr(left) == repr(right)
