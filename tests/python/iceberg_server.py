"""A REST catalogue of Iceberg tables on loopback, over pyiceberg's SqlCatalog.

    iceberg_server.py FOLDER [--warehouse URI] [--lose SHARE] [--fail SHARE] [--token TOKEN] [--seed 0]

Prints its port, and ends with whoever holds its standard input. The catalogue is a SQLite file in FOLDER; tables are
below URI, by default in FOLDER too. Of the commits, SHAREs are made but their answer is lost, or are not made and
answered by an error of the server. With TOKEN every request must carry it.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest

ERRORS = {
    NoSuchNamespaceError: 404, NoSuchTableError: 404, CommitFailedException: 409, TableAlreadyExistsError: 409,
    NamespaceAlreadyExistsError: 409,
}
LOCK = threading.RLock()


def handler(catalog, given, settings):
    chance = random.Random(given.seed)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, body=None):
            content = json.dumps(body or {}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):
                # Whoever asked was killed meanwhile.
                self.wfile.write(content)

        def body(self):
            return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")

        def told(self, table):
            metadata = json.loads(table.metadata.model_dump_json())
            self.answer(200, {"metadata-location": table.metadata_location, "metadata": metadata, "config": settings})

        def do_GET(self):
            self.serve(None)

        def do_POST(self):
            self.serve(self.body())

        def serve(self, body):
            if given.token and self.headers.get("Authorization") != f"Bearer {given.token}":
                return self.answer(401, {"error": {"message": "no key, or another", "code": 401}})
            path = urllib.parse.urlparse(self.path).path
            parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
            try:
                with LOCK:
                    self.route(parts, body)
            except tuple(ERRORS) as error:
                status = ERRORS[type(error)]
                self.answer(status, {"error": {"message": str(error), "type": type(error).__name__, "code": status}})

        def route(self, parts, body):
            if parts == ["v1", "config"]:
                return self.answer(200, {"defaults": {}, "overrides": {"prefix": "main"}})
            assert parts[:2] == ["v1", "main"], parts
            space = tuple(parts[3].split("\x1f")) if len(parts) > 3 else ()
            if parts[2:] == ["namespaces"]:
                catalog.create_namespace(tuple(body["namespace"]))
                return self.answer(200, {"namespace": body["namespace"], "properties": {}})
            if parts[4:] == ["tables"]:
                spec = body.get("partition-spec")
                spec = PartitionSpec.model_validate(spec) if spec else UNPARTITIONED_PARTITION_SPEC
                schema = Schema.model_validate(body["schema"])
                name = (*space, body["name"])
                properties = body.get("properties") or {}
                return self.told(catalog.create_table(name, schema, partition_spec=spec, properties=properties))
            if len(parts) == 6 and parts[4] == "tables":
                table = catalog.load_table((*space, parts[5]))
                return self.told(table) if body is None else self.commit(table, body)
            self.answer(404, {"error": {"message": self.path, "code": 404}})

        def commit(self, table, body):
            fate = chance.random()
            if fate < given.fail:
                return self.answer(503, {"error": {"message": "not well", "code": 503}})
            name = table.name()
            body["identifier"] = {"namespace": list(name[:-1]), "name": name[-1]}
            request = CommitTableRequest.model_validate(body)
            catalog.commit_table(table, request.requirements, request.updates)
            if fate < given.fail + given.lose:
                self.close_connection = True
                return self.connection.close()
            self.told(catalog.load_table(name))

    return Handler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--warehouse")
    parser.add_argument("--lose", type=float, default=0)
    parser.add_argument("--fail", type=float, default=0)
    parser.add_argument("--token")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.makedirs(given.folder, exist_ok=True)
    settings = {}
    if os.environ.get("AWS_ENDPOINT_URL"):
        settings = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": os.environ["AWS_REGION"],
                    "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
                    "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"]}
    folder = os.path.abspath(given.folder)
    catalog = SqlCatalog("main", uri=f"sqlite:///{folder}/catalogue.db",
                         warehouse=given.warehouse or f"file://{folder}", **settings)
    catalog.create_namespace_if_not_exists("lake")
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(catalog, given, settings))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
