"""An Airflow DAG that runs `nightly.toml` for each night.

The command's exit code says whether another attempt can help:

    0         done; the last line of standard output is a JSON object (`--format json`)
    1, 3      somebody must act: job, table or model; or a quality gate was missed. Not tried again
    2         training, resources, a conflict with another writer: tried again, with `--resume`
    130, 143  a signal: tried again, with `--resume`

`OPENLINEAGE_URL` and `OPENLINEAGE_PARENT_ID` make the run a child of the task in a lineage catalogue. Sensors of other
DAGs wait for `_SUCCESS` below the job's `output.dir`, which appears after the table has the rows.
"""

import json
import os
import subprocess

import pendulum
from airflow.decorators import dag, task
from airflow.exceptions import AirflowFailException

JOB = "/opt/overturn/jobs/warehouse/nightly.toml"
LAKE = "s3://lake"
FINAL = (1, 3)


@dag(schedule="0 2 * * *", start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), catchup=False, max_active_runs=1)
def recourse():
    @task(retries=3, retry_delay=pendulum.duration(minutes=10), execution_timeout=pendulum.duration(hours=4))
    def explain(night: str, parent: str) -> dict:
        command = ["overturn", "run", JOB, "--resume", "--format", "json", "--log", "json",
                   "--set", f"lake={LAKE}", "--set", f"night={night}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "OPENLINEAGE_PARENT_ID": parent})
        if done.returncode in FINAL:
            raise AirflowFailException(f"exit code {done.returncode}: see the log")
        done.check_returncode()
        summary = json.loads(done.stdout.splitlines()[-1])
        return {"run_id": summary["run_id"], "version": summary["table"]["version"],
                "validity": summary["validity"], "rows": summary["rows_explained"]}

    explain("{{ ds }}", "{{ macros.OpenLineageProviderPlugin.lineage_parent_id(task_instance) }}")


recourse()
