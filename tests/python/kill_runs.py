"""Whatever is killed must end, started again, with the files of one that was not killed.

    kill_runs.py OVERTURN WORK_FOLDER [--kills 500] [--seconds 900] [--rows 800] [--seed 0]

Two folders are worked on at once. Each round takes one of the cases below, kills it with SIGKILL after a random
share of the time that it takes, kills half of the resumptions as well, and lets the last one end. Meanwhile a reader
looks at the output folder all the time.

    run         `run`, resumed                    the folder is absent or whole
    train       `train`, resumed                  the folder is absent or whole
    score       `score`, started again            the folder is absent or whole
    program     `score` by a scorer that never    as before, and no process of the scorer is left
                ends by itself, started again
    report      `report` on a published run       the folder is whole, with the old reports or the new
    overwrite   `run` over a published run        the folder is whole, the old run or the new

Checked: all files are the same, byte for byte, as without a kill (of the training curve, whose seconds differ, all
but those); nothing unfinished is left beside them.

The last line is a JSON object with what was done. Ends with code 1 if anything was wrong, and by itself after so
many kills or seconds.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

from campaign import UNFINISHED, Reader, arguments, clean, differences, fingerprint, prepare, processes, together

CASES = ["run", "overwrite", "train", "report", "score", "program"]
# Settings of the run that replaces, and of the reports that replace.
OTHER_SEED = ["--override", "runtime.seed=1"]
OVERWRITE = ["--override", "output.overwrite=true"]
OTHER_REPORT = ["--override", 'report.by=["purpose"]']
# A killed program's scorers may take this long to be gone.
PATIENCE = 2.0


class World:
    """A folder in which things are killed."""

    def __init__(self, given, name, plan):
        self.given, self.name, self.plan = given, name, plan
        self.folder, self.mark = given.work / name, f"overturn-kill-{os.getpid()}-{name}"
        self.out = self.folder / "out"
        self.chance = random.Random(given.seed * 1000 + len(name) * 7 + ord(name[-1]))
        self.kills, self.late, self.rounds, self.left, self.failures = dict.fromkeys(CASES, 0), 0, 0, 0, []
        self.expected, self.usual = {}, {}
        prepare(given.overturn, self.folder, given.rows, self.mark)
        self.reader = Reader(self.out)

    def rehearse(self):
        """Every case once without a kill. Files name their run, and runs of other folders have other names."""
        cases = [("train", "train", [], "job.toml"), ("score", "score", [], "job.toml"),
                 ("program", "score", [], "program.toml"), ("run", "run", [], "job.toml"),
                 ("report", "report", OTHER_REPORT, "job.toml"),
                 ("overwrite", "run", [*OVERWRITE, *OTHER_SEED], "job.toml")]
        for case, command, arguments, job in cases:
            if case not in ("report", "overwrite"):
                self.clear()
            began = time.monotonic()
            if not self.finish(command, *arguments, job=job):
                return
            self.usual[case] = time.monotonic() - began
            self.expected[case] = fingerprint(self.out)
        self.clear()

    def fail(self, text):
        """Tells at once what is wrong, and counts it."""
        self.failures.append(text)
        print(f"FAIL {self.name}: {text}", flush=True)

    def start(self, command, *arguments, job="job.toml"):
        line = [self.given.overturn, command, self.folder / job, "--format", "json", *arguments]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish(self, *arguments, **options):
        process = self.start(*arguments, **options)
        try:
            _, talk = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail(f"{arguments}: did not end in 120 s")
            return False
        if process.returncode != 0:
            self.fail(f"{arguments}: code {process.returncode}: {talk[-400:]}")
        return process.returncode == 0

    def killed(self, case, share, *arguments, **options):
        """Starts something and kills it, if it has not ended before."""
        process = self.start(*arguments, **options)
        try:
            process.wait(timeout=share * self.usual[case])
            self.late += 1
        except subprocess.TimeoutExpired:
            process.kill()
            self.kills[case] += 1
        process.communicate()

    def clear(self):
        with self.reader.pause:
            clean(self.folder)

    def check(self, case, expected):
        found = fingerprint(self.out) if self.out.is_dir() else {}
        different = differences(expected, found)
        if different:
            self.fail(f"{case}: other files than without a kill: {different[:5]}")
            self.plan.add_bytes(self.out, different)
        left = [name for name in UNFINISHED if (self.folder / name).exists()]
        if left:
            self.fail(f"{case}: left {left}")
        self.rounds += 1

    def fresh(self, case, command, resume):
        """A case that starts from nothing."""
        job = "program.toml" if case == "program" else "job.toml"
        self.clear()
        self.killed(case, self.chance.uniform(0.0, 1.05), command, job=job)
        self.check_processes(case)
        while self.chance.random() < 0.5 and not self.plan.over():
            self.killed(case, self.chance.uniform(0.0, 0.9), command, *resume, job=job)
            self.check_processes(case)
        # One that was killed just after publishing is refused, not repeated, where it cannot be resumed.
        if resume or not self.out.exists():
            self.finish(command, *resume, job=job)
        self.check_processes(case)
        self.check(case, self.expected[case])

    def replaced(self, case, command, arguments, old, new):
        """A case that replaces what is published: `old` is there, `new` is made."""
        self.reader.must_exist = True
        self.killed(case, self.chance.uniform(0.0, 1.05), command, *arguments)
        found = fingerprint(self.out) if self.out.is_dir() else {}
        if differences(old, found) and differences(new, found):
            self.fail(f"{case}: neither the old nor the new: {differences(new, found)[:5]}")
            self.plan.add_bytes(self.out, differences(new, found))
        resume = ["--resume"] if command == "run" else []
        while self.chance.random() < 0.5 and not self.plan.over():
            self.killed(case, self.chance.uniform(0.0, 0.9), command, *arguments, *resume)
        self.finish(command, *arguments, *resume)
        self.check(case, new)
        self.reader.must_exist = False

    def overwrite(self, old, new, arguments):
        self.replaced("overwrite", "run", [*OVERWRITE, *arguments], old, new)

    def check_processes(self, case):
        if case != "program":
            return
        limit = time.monotonic() + PATIENCE
        while (left := processes(self.mark)) and time.monotonic() < limit:
            time.sleep(0.05)
        if left:
            self.left += len(left)
            self.fail(f"{case}: {len(left)} processes of the scorer are left")
        for process in left:
            os.kill(process, signal.SIGKILL)

    def round(self, case):
        expected = self.expected
        if case in ("run", "train"):
            self.fresh(case, case, ["--resume"])
        elif case in ("score", "program"):
            self.fresh(case, "score", [])
        else:
            self.clear()
            if not self.finish("run"):
                return
            if case == "report":
                for _ in range(3):
                    self.replaced(case, "report", OTHER_REPORT, expected["run"], expected["report"])
                    self.replaced(case, "report", [], expected["report"], expected["run"])
            else:
                for _ in range(2):
                    self.overwrite(expected["run"], expected["overwrite"], OTHER_SEED)
                    self.overwrite(expected["overwrite"], expected["run"], [])

    def work(self):
        self.reader.start()
        order = CASES + ["run", "run", "train", "score", "score"]
        while not self.plan.over():
            self.chance.shuffle(order)
            for case in order:
                if not self.plan.over():
                    self.round(case)
                    print(f"{self.name}: {case}, {sum(self.kills.values())} kills, "
                          f"{len(self.failures)} failures", flush=True)
        self.reader.over = True
        self.reader.join()


class Plan:
    """When it is enough."""

    def __init__(self, given):
        self.given, self.worlds, self.bytes = given, [], 0
        self.until = time.monotonic() + given.seconds
        self.lock = threading.Lock()

    def over(self):
        kills = sum(sum(world.kills.values()) for world in self.worlds)
        return kills >= self.given.kills or time.monotonic() > self.until

    def add_bytes(self, out, names):
        with self.lock:
            self.bytes += sum((out / name).stat().st_size if (out / name).exists() else 1 for name in names)


def main():
    given, began = arguments(__doc__, kills=500, seconds=900.0, rows=800, seed=0), time.monotonic()
    plan = Plan(given)
    worlds = [World(given, name, plan) for name in ("a", "b")]
    together(world.rehearse for world in worlds)
    if any(len(world.expected) < len(CASES) for world in worlds):
        sys.exit(f"FAIL without any kill: {worlds[0].failures + worlds[1].failures}")
    usual = {case: round(seconds, 2) for case, seconds in worlds[0].usual.items()}
    print(f"seconds without a kill: {json.dumps(usual)}", flush=True)
    plan.worlds = worlds
    together(world.work for world in worlds)
    failures = [failure for world in worlds for failure in world.failures]
    readers = [world.reader for world in worlds]
    kills = {case: sum(world.kills[case] for world in worlds) for case in CASES}
    told = {"campaign": "kills", "kills": sum(kills.values()), "by_case": kills,
            "rounds": sum(world.rounds for world in worlds), "ended_before_the_kill": sum(world.late for world in worlds),
            "differing_bytes": plan.bytes, "looks": sum(reader.looks for reader in readers),
            "looks_at_a_run": sum(reader.seen for reader in readers),
            "partial_looks": sum(reader.partial for reader in readers),
            "absent_looks": sum(reader.absent for reader in readers),
            "processes_left": sum(world.left for world in worlds), "failures": len(failures),
            "seconds": round(time.monotonic() - began)}
    print(json.dumps(told))
    wrong = failures or told["partial_looks"] or told["absent_looks"] or told["kills"] < given.kills
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
