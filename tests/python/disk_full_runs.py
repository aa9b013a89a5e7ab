"""A disk that is full at any moment must leave nothing or the whole, and a resumption must give the same bytes.

    disk_full_runs.py OVERTURN WORK_FOLDER [--sizes 30] [--seconds 600] [--rows 800]

WORK_FOLDER/disk is a small file system in memory (mounted by tests/disk_full.sh) that holds the output, staging,
journal and checkpoints; table and job lie beside it. For each of three stages, 30 free sizes are tried that were
measured to be used up in that stage:

    training     `run`, while checkpoints (which may fail: the training goes on, and says so) or the generator are written
    explaining   `explain`, while counterfactuals and the journal are written
    publishing   `report`, while reports, manifest and marker are written and replace the old ones; and `explain`, in
                 its last pages

Checked: the run ends with code 2 and a message that names a path on the disk (or with code 0 where the space
sufficed); the output is absent or whole; after space is made, `--resume` ends with code 0 and the same bytes as a run
on an empty disk.

The last line is a JSON object with what was done. Ends with code 1 if anything was wrong.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time

from campaign import UNFINISHED, arguments, clean, differences, fingerprint, is_whole, prepare

STAGES = ["training", "explaining", "publishing"]
# The page of the file system: nothing smaller matters.
PAGE = 4096


class Disk:
    def __init__(self, folder):
        self.folder, self.ballast = folder, folder / "ballast"

    def free(self):
        state = os.statvfs(self.folder)
        return state.f_bavail * state.f_frsize

    def used(self):
        state = os.statvfs(self.folder)
        return (state.f_blocks - state.f_bfree) * state.f_frsize

    def leave(self, size):
        """Fills the disk up to a number of bytes."""
        self.ballast.unlink(missing_ok=True)
        with open(self.ballast, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(self.free() - size, PAGE))

    def clear(self):
        self.ballast.unlink(missing_ok=True)


class Campaign:
    def __init__(self, given):
        self.given, self.disk, self.out = given, Disk(given.work / "disk"), given.work / "disk/out"
        self.expected = {}
        self.failures, self.tried, self.full = [], dict.fromkeys(STAGES, 0), dict.fromkeys(STAGES, 0)

    def start(self, command, *arguments):
        home = self.given.work / "home"
        if command == "report":
            arguments = ["--override", 'report.by=["purpose"]']
        if command in ("explain", "report"):
            arguments = ["--override", f"explain.generator={home}/generator", *arguments]
        command = [self.given.overturn, command, home / "job.toml", "--override", f"output.dir={self.out}", *arguments]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish(self, command, *arguments):
        process = self.start(command, *arguments)
        try:
            _, talk = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None, "did not end in 120 s"
        return process.returncode, talk

    def measure(self, command):
        """Runs once with room, and finds how much is used at most in each stage."""
        process, peaks, base = self.start(command), dict.fromkeys(STAGES, PAGE), self.disk.used()
        talk = threading.Thread(target=process.stderr.read, daemon=True)
        talk.start()
        while process.poll() is None:
            peaks[self.stage()] = max(peaks[self.stage()], self.disk.used() - base)
            time.sleep(0.0005)
        if process.returncode != 0:
            sys.exit(f"FAIL with room: code {process.returncode}")
        self.expected[command] = fingerprint(self.out)
        peaks["publishing"] = max(peaks["publishing"], self.disk.used() - base)
        if command == "explain":
            shutil.copytree(self.out, self.given.work / "home/published")
        if command == "run":
            shutil.copytree(self.out / "generator", self.given.work / "home/generator")
        clean(self.given.work / "disk")
        return peaks

    def stage(self):
        """What a run does, by what lies on the disk."""
        staging = self.given.work / "disk/.out.staging"
        if (staging / "reports/coverage.parquet").exists() or self.out.exists():
            return "publishing"
        if (staging / "counterfactuals").exists():
            return "explaining"
        return "training"

    def publish_old(self):
        shutil.copytree(self.given.work / "home/published", self.out)

    def attempt(self, stage, command, size):
        clean(self.given.work / "disk")
        if command == "report":
            self.publish_old()
        self.disk.leave(size)
        code, talk = self.finish(command)
        self.tried[stage] += 1
        where = f"{stage} by `{command}`, {size} bytes free"
        old = command != "report" or code == 0 or not differences(self.expected["explain"], fingerprint(self.out))
        if is_whole(self.out) is False or not old:
            self.failures.append(f"{where}: part of a run is published")
        if code == 2 or (stage == "training" and "No space left" in talk):
            self.full[stage] += 1
            if str(self.given.work / "disk") not in talk:
                self.failures.append(f"{where}: the message names no path: {talk[-300:]}")
        elif code != 0:
            self.failures.append(f"{where}: code {code}: {talk[-300:]}")
        if "panicked" in talk:
            self.failures.append(f"{where}: panicked: {talk[-300:]}")
        self.disk.clear()
        code, talk = self.finish(command, *([] if command == "report" else ["--resume"]))
        if code != 0:
            self.failures.append(f"{where}: resumed, code {code}: {talk[-300:]}")
            return
        different = differences(self.expected[command], fingerprint(self.out))
        if different:
            self.failures.append(f"{where}: resumed, other files: {different[:5]}")
        left = [name for name in UNFINISHED if (self.given.work / "disk" / name).exists()]
        if left:
            self.failures.append(f"{where}: resumed, left {left}")


def sizes(below, above, count):
    """Sizes spread over what a stage uses, the last page included. Stages that use few pages are tried repeatedly."""
    return [max(above - PAGE - (above - below) * step // count // PAGE * PAGE, 0) for step in range(count)]


def main():
    given, began = arguments(__doc__, sizes=30, seconds=600.0, rows=800), time.monotonic()
    prepare(given.overturn, given.work / "home", given.rows)
    campaign = Campaign(given)
    trained, explained = campaign.measure("run"), campaign.measure("explain")
    campaign.publish_old()
    reported = max(campaign.measure("report").values())
    most = max(explained.values())
    print(f"bytes in use at most: training {trained['training']}, explaining {most}, reporting {reported}", flush=True)
    half, generator = given.sizes // 2, explained["training"]
    more = given.sizes - half
    plan = [("training", "run", sizes(0, generator, half)), ("training", "run", sizes(most, trained["training"], more)),
            ("explaining", "explain", sizes(generator, most, given.sizes)),
            ("publishing", "report", sizes(0, reported, half)),
            ("publishing", "explain", [most - PAGE * step for step in range(1, more + 1)])]
    for stage, command, tried in plan:
        for size in tried:
            if time.monotonic() - began < given.seconds:
                campaign.attempt(stage, command, max(size, PAGE))
        print(f"{stage} by {command}: {campaign.tried[stage]} sizes, {campaign.full[stage]} full, "
              f"{len(campaign.failures)} failures", flush=True)
    for failure in campaign.failures[:20]:
        print(f"FAIL {failure}")
    print(json.dumps({"campaign": "disk_full", "sizes": campaign.tried, "full": campaign.full,
                      "failures": len(campaign.failures), "seconds": round(time.monotonic() - began)}))
    enough = all(tried >= given.sizes for tried in campaign.tried.values())
    sys.exit(0 if enough and not campaign.failures else 1)


if __name__ == "__main__":
    main()
