"""A hundred runs in a row must leave nothing behind and give the same bytes.

    soak_runs.py OVERTURN WORK_FOLDER [--runs 100] [--rows 800] [--seconds 600]

Each run replaces the one before (`output.overwrite = true`), in turn with an ONNX model and with a scorer. While it
runs, its open files, threads and memory are watched; after it, processes, files in the folder for temporary files and
files beside the output are counted. Checked: the same bytes every time; nothing left; no growth from the first tenth
of the runs to the last.

The last line is a JSON object with what was seen. Ends with code 1 if anything was wrong.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from campaign import UNFINISHED, arguments, differences, fingerprint, prepare, processes


def watch(process, peak):
    """Follows a process to its end."""
    folder = Path(f"/proc/{process.pid}")
    while process.poll() is None:
        try:
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            peak["threads"] = max(peak["threads"], int(status["Threads"]))
            peak["memory_mib"] = max(peak["memory_mib"], int(status["VmHWM"].split()[0]) // 1024)
            peak["files"] = max(peak["files"], len(os.listdir(folder / "fd")))
        except (OSError, KeyError, ValueError):
            pass
        time.sleep(0.01)


def one(given, job, temporary):
    command = [given.overturn, "run", given.work / job, "--override", "output.overwrite=true",
               "--override", f"output.dir={job.removesuffix('.toml')}-out"]
    peak = {"threads": 0, "memory_mib": 0, "files": 0}
    environment = os.environ | {"TMPDIR": str(temporary)}
    with open(given.work / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        watch(process, peak)
    return process.returncode, peak


def beside(given, job, before):
    """What lies beside the output and was not there after the first runs: earlier runs may be kept."""
    hidden = f".{job.removesuffix('.toml')}-out."
    names = sorted(path.name for path in given.work.iterdir() if path.name.startswith(hidden))
    unfinished = [name for name in names if any(name.endswith(ending[4:]) for ending in UNFINISHED)]
    grown = len(names) > before.setdefault(job, len(names)) + 1
    return unfinished + (names if grown else [])


def main():
    given, began = arguments(__doc__, runs=100, rows=800, seconds=600.0), time.monotonic()
    mark = f"overturn-soak-{os.getpid()}"
    prepare(given.overturn, given.work, given.rows, mark)
    temporary = given.work / "temporary"
    temporary.mkdir()
    expected, peaks, before, failures, runs = {}, {}, {}, [], 0
    left = {"processes": 0, "temporary": 0, "beside": 0}
    while runs < given.runs and time.monotonic() - began < given.seconds:
        job = ("job.toml", "job.toml", "job.toml", "program.toml")[runs % 4]
        code, peak = one(given, job, temporary)
        runs += 1
        if code != 0:
            failures.append(f"run {runs} ended with {code}: {(given.work / 'log').read_text()[-400:]}")
            continue
        peaks.setdefault(job, []).append(peak)
        found = fingerprint(given.work / f"{job.removesuffix('.toml')}-out")
        different = differences(expected.setdefault(job, found), found)
        if different:
            failures.append(f"run {runs}: other files than the first: {different[:5]}")
        remains = {"processes": processes(mark), "temporary": os.listdir(temporary), "beside": beside(given, job, before)}
        for what, found in remains.items():
            left[what] += len(found)
            if found:
                failures.append(f"run {runs} left {what}: {found[:5]}")
    for job, seen in peaks.items():
        tenth = max(len(seen) // 10, 1)
        for what in ("memory_mib", "files", "threads"):
            first = statistics.median(peak[what] for peak in seen[:tenth])
            last = statistics.median(peak[what] for peak in seen[-tenth:])
            if last > first * 1.2 + 8:
                failures.append(f"{job}: {what} grew from {first} to {last}")
    for failure in failures[:20]:
        print(f"FAIL {failure}")
    most = {what: max((peak[what] for seen in peaks.values() for peak in seen), default=0)
            for what in ("memory_mib", "files", "threads")}
    least = min((peak["memory_mib"] for seen in peaks.values() for peak in seen), default=0)
    print(json.dumps({"campaign": "soak", "runs": runs, "left": left, "most": most, "least_memory_mib": least,
                      "failures": len(failures), "seconds": round(time.monotonic() - began)}))
    sys.exit(1 if failures or runs < given.runs else 0)


if __name__ == "__main__":
    main()
