"""System calls that fail must end in a message and leave nothing or the whole.

    fault_runs.py OVERTURN WORK_FOLDER [--points 120] [--seconds 600] [--rows 800] [--seed 0]

Each command is first run under `strace` to learn which system calls touch which files of the job. Then single calls
are made to fail (`strace -e inject`), one file and call at a time, in turn over all kinds of calls; and threads are
refused. Two folders are worked on at once.

    score     a table is scored and published
    explain   a table is explained and published, with a fitted generator
    report    the reports of a published run are made anew and replace the old

Checked: the program ends by itself with code 0, 1 or 2, never by a signal, and without a panic; the output is absent
or whole (after `report`: the old one or the new); when the code is 0 the bytes are those of a run without a fault, and
rows read are rows out of scope, results and rejects; started again without a fault, it ends with those bytes.

The last line is a JSON object with what was done. Ends with code 1 if anything was wrong.
"""

import json
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter

from campaign import arguments, clean, differences, fingerprint, is_whole, prepare, together

ERRORS = {
    "openat": ["EACCES", "EMFILE", "EIO", "ENOMEM"], "read": ["EIO", "EINTR"], "pread64": ["EIO", "EINTR"],
    "write": ["ENOSPC", "EIO", "EINTR"], "pwrite64": ["ENOSPC", "EIO"], "writev": ["ENOSPC", "EIO"],
    "fsync": ["EIO", "ENOSPC"], "fdatasync": ["EIO"], "ftruncate": ["EIO"], "fallocate": ["ENOSPC"],
    "rename": ["EIO", "EACCES"], "renameat": ["EIO"], "renameat2": ["EIO", "EACCES", "EINVAL"],
    "mkdir": ["EACCES", "ENOSPC"], "mkdirat": ["EACCES"], "unlink": ["EACCES", "EIO"], "unlinkat": ["EACCES", "EIO"],
    "rmdir": ["EACCES"], "link": ["EIO"], "linkat": ["EIO"], "flock": ["EINTR", "ENOLCK"], "fstat": ["EIO"],
    "newfstatat": ["EIO", "EACCES"], "statx": ["EIO", "EACCES"], "getdents64": ["EIO"], "close": ["EIO"],
    "lseek": ["EIO"], "mmap": ["ENOMEM"], "copy_file_range": ["EIO"], "fcntl": ["EIO"],
}
COMMANDS = ["score", "explain", "report"]
LIMIT = 60


class World:
    def __init__(self, given, name, shared):
        self.given, self.name, self.shared = given, name, shared
        self.folder, self.out = given.work / name, given.work / name / "out"
        self.expected, self.failures, self.codes = {}, [], Counter()
        self.points, self.kinds = [], Counter()
        prepare(given.overturn, self.folder, given.rows)

    def line(self, command, *more):
        line = [str(self.given.overturn), command, str(self.folder / "job.toml"), "--format", "json", *more]
        if command in ("explain", "report"):
            line += ["--override", f"explain.generator={self.folder}/generator"]
        if command == "report":
            line += ["--override", 'report.by=["purpose"]']
        return line

    def run(self, line):
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        try:
            said, talk = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "hang", "", ""
        return process.returncode, said, talk

    def prepared(self, command):
        clean(self.folder)
        if command == "report":
            shutil.copytree(self.folder / "published", self.out)

    def rehearse(self):
        """What every command gives without a fault, and what it touches."""
        code, _, talk = self.run(self.line("train"))
        if code != 0:
            return self.failures.append(f"train without a fault: {code} {talk[-300:]}")
        shutil.copytree(self.out / "generator", self.folder / "generator")
        for command in COMMANDS:
            self.prepared(command)
            trace = self.folder / "trace"
            calls = ",".join(f"?{call}" for call in ERRORS)
            strace = ["strace", "-f", "-y", "-qq", "-s", "4096", "-o", str(trace), "-e", f"trace={calls}"]
            code, _, talk = self.run(strace + self.line(command))
            if code != 0:
                return self.failures.append(f"{command} without a fault: {code} {talk[-300:]}")
            self.expected[command] = fingerprint(self.out)
            if command == "explain":
                shutil.copytree(self.out, self.folder / "published")
            self.points += [(command, *touched) for touched in self.touched(trace)]
        trace.unlink()

    def touched(self, trace):
        """Calls on files of the job, with how often each happens."""
        found, folders, folder = Counter(), set(), str(self.folder)
        for line in trace.read_text(errors="replace").splitlines():
            call = re.match(r"\d+ +(\w+)\(", line)
            paths = re.findall(rf'[<"]({re.escape(folder)}/[^>"]*)[>"]', line)
            if call and paths and call[1] in ERRORS:
                found[call[1], paths[0]] += 1
                if call[1] == "getdents64":
                    folders.add(paths[0])
        # Rust's own library panics when a folder cannot be closed, which no file system does.
        return [(call, path, count) for (call, path), count in sorted(found.items())
                if call != "close" or path not in folders]

    def inject(self, point):
        """One fault, and what comes of it."""
        command, call, path, error, when = point
        self.prepared(command)
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
        strace += ["-P", path] if path else []
        strace += ["-e", f"inject={call}:error={error}:when={when}"]
        where = f"{command}: {call} of {path.replace(str(self.folder), '')} fails with {error}, time {when}"
        code, said, talk = self.run(strace + self.line(command))
        self.codes[str(code)] += 1
        self.kinds[call] += 1
        if code not in (0, 1, 2):
            self.failures.append(f"{where}: ended with {code}: {talk[-300:]}")
        if "panicked" in talk:
            said_so = talk[talk.index("panicked"):]
            self.failures.append(f"{where}: {said_so[:300]}")
        self.look(where, command, code)
        if code == 0:
            self.account(where, said)
        self.recover(where, command)

    def look(self, where, command, code):
        whole = is_whole(self.out)
        if whole is False:
            return self.failures.append(f"{where}: part of a result is published")
        if whole is None:
            if code == 0 or command == "report":
                self.failures.append(f"{where}: code {code}, but nothing is published")
            return
        allowed = [self.expected[command]] + ([self.expected["explain"]] if command == "report" and code != 0 else [])
        found = fingerprint(self.out)
        if all(differences(expected, found) for expected in allowed):
            self.failures.append(f"{where}: code {code}, other files: {differences(allowed[0], found)[:5]}")

    def account(self, where, said):
        try:
            summary = json.loads(said.splitlines()[-1])
            rows, rejected = summary["rows_read"], summary.get("rows_rejected", summary.get("rejected"))
        except (IndexError, ValueError, KeyError):
            return self.failures.append(f"{where}: code 0 without a summary: {said[-200:]}")
        if rows != self.given.rows:
            self.failures.append(f"{where}: {rows} rows read, {rejected} rejected, expected {self.given.rows}")

    def recover(self, where, command):
        """The same without a fault."""
        if command == "score":
            clean(self.folder)
        code, _, talk = self.run(self.line(command, *(["--resume"] if command == "explain" else [])))
        if code != 0:
            return self.failures.append(f"{where}: without the fault, code {code}: {talk[-300:]}")
        different = differences(self.expected[command], fingerprint(self.out))
        if different:
            self.failures.append(f"{where}: without the fault, other files: {different[:5]}")

    def work(self):
        for index, point in enumerate(self.plan()):
            if not self.shared.take():
                return
            self.inject(point)
            if index % 10 == 9:
                print(f"{self.name}: {index + 1} points, {len(self.failures)} failures", flush=True)

    def plan(self):
        """Points without end, in turn over all kinds of calls; threads are refused now and then."""
        chance = random.Random(f"{self.given.seed} {self.name}")
        by_call = {}
        for command, call, path, count in self.points:
            by_call.setdefault(call, []).append((command, path, count))
        while by_call:
            for call in sorted(by_call):
                command, path, count = chance.choice(by_call[call])
                yield command, call, path, chance.choice(ERRORS[call]), chance.randint(1, min(count, 4))
            yield chance.choice(COMMANDS), "clone3", "", chance.choice(["EAGAIN", "ENOMEM"]), chance.randint(1, 6)


class Shared:
    """How many points are left, for all folders."""

    def __init__(self, points, seconds):
        self.left, self.until, self.lock = points, time.monotonic() + seconds, threading.Lock()

    def take(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0 and time.monotonic() < self.until


def main():
    given, began = arguments(__doc__, points=120, seconds=600.0, rows=800, seed=0), time.monotonic()
    shared = Shared(given.points, given.seconds)
    worlds = [World(given, name, shared) for name in ("a", "b")]
    together(world.rehearse for world in worlds)
    if any(world.failures for world in worlds):
        sys.exit(f"FAIL {worlds[0].failures + worlds[1].failures}")
    print(f"{len(worlds[0].points)} pairs of call and file", flush=True)
    together(world.work for world in worlds)
    failures = [failure for world in worlds for failure in world.failures]
    for failure in failures[:30]:
        print(f"FAIL {failure}")
    codes, kinds = sum((world.codes for world in worlds), Counter()), sum((world.kinds for world in worlds), Counter())
    print(json.dumps({"campaign": "faults", "points": sum(kinds.values()), "calls": dict(kinds), "codes": dict(codes),
                      "failures": len(failures), "seconds": round(time.monotonic() - began)}))
    sys.exit(1 if failures or sum(kinds.values()) < given.points else 0)


if __name__ == "__main__":
    main()
