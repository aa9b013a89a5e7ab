"""An Airflow DAG that explains a night's rows in shards, as mapped tasks on any number of workers, and publishes them.

All workers see the same tables, model, generator and `output.dir`; the table's version is taken once. Exit codes are those of `airflow_dag.py`; a shard that
is tried again does only what is missing, and `publish` names every shard that is not whole.
"""

import json
import subprocess

import pendulum
from airflow.decorators import dag, task
from airflow.exceptions import AirflowFailException
from deltalake import DeltaTable

JOB = "/opt/overturn/jobs/warehouse/nightly.toml"
LAKE = "s3://lake"
SHARDS = 8
FINAL = (1, 3)


def overturn(command: str, night: str, version: int, *arguments: str) -> dict:
    """Runs a command to its end and gives its summary."""
    line = ["overturn", command, JOB, "--format", "json", "--log", "json",
            "--set", f"lake={LAKE}", "--set", f"night={night}", *arguments,
            "--override", f"explain.generator={LAKE}/generator",
            "--override", f"input.features.version={version}"]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True)
    if done.returncode in FINAL:
        raise AirflowFailException(f"exit code {done.returncode}: see the log")
    done.check_returncode()
    return json.loads(done.stdout.splitlines()[-1])


@dag(schedule="0 2 * * *", start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), catchup=False, max_active_runs=1)
def recourse_in_shards():
    @task
    def latest() -> int:
        return DeltaTable(f"{LAKE}/applications").version()

    @task(retries=3, retry_delay=pendulum.duration(minutes=10))
    def explain(number: int, night: str, version: int) -> int:
        shard = ("--shard", f"{number}/{SHARDS}")
        return overturn("run", night, version, *shard)["rows_explained"]

    @task(retries=3, retry_delay=pendulum.duration(minutes=10))
    def publish(night: str, version: int) -> str:
        return overturn("publish", night, version)["run_id"]

    version = latest()
    explained = explain.partial(night="{{ ds }}", version=version).expand(number=list(range(1, SHARDS + 1)))
    explained >> publish("{{ ds }}", version)


recourse_in_shards()
