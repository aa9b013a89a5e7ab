"""Kills runs that write to an S3 server at random moments, and resumes them, every second time with another cache, as
another machine would. Results must be those of a local run; whoever looks never sees `_SUCCESS` over part of a set.

    store_kills.py PROGRAM [--kills 50] [--commits 10] [--together 8] [--rows 20000] [--seed 1]
"""

import argparse
import pathlib
import random
import signal
import tempfile
import threading
import time

from stores import BUCKET, Bench, same, server, tables


class Poller(threading.Thread):
    """Looks at results over and over."""

    def __init__(self, bench, prefix):
        super().__init__(daemon=True)
        self.bench, self.prefix, self.over, self.looks, self.partial = bench, prefix, False, 0, 0

    def run(self):
        while not self.over:
            self.partial += self.bench.whole(self.prefix) is False
            self.looks += 1
            time.sleep(0.005)

    def stop(self):
        self.over = True
        self.join()
        assert self.partial == 0, f"{self.prefix}: `_SUCCESS` over part of a set"
        return self.looks


def kill_at_random(bench, url, usual, chance, number):
    process = bench.start(url, "--resume", cache=f"cache-{number % 2}")
    time.sleep(chance.uniform(0.05, 1.0) * usual)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def kill_after_commit(bench, prefix, url, chance):
    """Between the commit object and `_SUCCESS`; gives whether it came in time."""
    process = bench.start(url, cache="cache-0")
    while process.poll() is None and bench.read(f"{prefix}/_overturn/commit.json") is None:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.05))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return bench.read(f"{prefix}/_SUCCESS") is None


def resumed(bench, prefix, url, expected, cache):
    code, stdout, stderr = bench.run(url, "--resume", cache=cache)
    assert code == 0, f"{prefix}: exit code {code}\n{stderr}"
    found = tables(bench.fetch(prefix, bench.folder / "found"))
    assert same(found, expected), f"{prefix}: other rows than a local run"
    left = [name for name in bench.names(f"{prefix}/_overturn/") if name != "commit.json"]
    return stdout, left


def kills(bench, expected, usual, arguments, chance):
    for number in range(arguments.kills):
        prefix = f"out/kill-{number}"
        url = f"s3://{BUCKET}/{prefix}"
        poller = Poller(bench, prefix)
        poller.start()
        for _ in range(chance.randint(1, 2)):
            kill_at_random(bench, url, usual, chance, number)
        resumed(bench, prefix, url, expected, f"cache-{(number + 1) % 2}")
        looks = poller.stop()
        print(f"kill {number}: equal, {looks} looks", flush=True)


def commits(bench, expected, arguments, chance):
    hits, number = 0, 0
    while hits < arguments.commits and number < 5 * arguments.commits:
        prefix = f"out/commit-{number}"
        url = f"s3://{BUCKET}/{prefix}"
        poller = Poller(bench, prefix)
        poller.start()
        hit = kill_after_commit(bench, prefix, url, chance)
        _, left = resumed(bench, prefix, url, expected, "cache-1")
        poller.stop()
        assert not left, f"left in the store: {left}"
        hits += hit
        number += 1
        print(f"commit {number}: {'between' if hit else 'late'}, equal", flush=True)
    print(f"{hits} kills between the commit object and _SUCCESS")


def together(bench, expected, arguments, machines):
    """Runs started at once; with caches of their own they are as far apart as on machines of their own."""
    prefix = f"out/together-{machines}"
    url = f"s3://{BUCKET}/{prefix}"
    poller = Poller(bench, prefix)
    poller.start()
    runs = [bench.start(url, "--threads", "1", cache=f"own-{number}" if machines else "cache-0")
            for number in range(arguments.together)]
    ended = [(run, *run.communicate()) for run in runs]
    poller.stop()
    codes = sorted(run.returncode for run, _, _ in ended)
    published = [out for run, out, _ in ended if run.returncode == 0 and '"already_published":false' in out]
    told = [err for run, _, err in ended if run.returncode != 0 and "another run" in err]
    late = len(ended) - len(published) - len(told)
    print(f"{arguments.together} at once, machines {machines}: {len(published)} published, {len(told)} say that "
          f"another did, {late} came later; exit codes {codes}", flush=True)
    assert len(published) == 1
    assert same(tables(bench.fetch(prefix, bench.folder / "found")), expected)


def overwrites(bench, expected, usual, chance):
    """Kills while results are replaced."""
    prefix = "out/overwritten"
    url = f"s3://{BUCKET}/{prefix}"
    assert bench.run(url)[0] == 0
    poller = Poller(bench, prefix)
    poller.start()
    for number in range(6):
        process = bench.start(url, overwrite=True, cache=f"cache-{number % 2}")
        time.sleep(chance.uniform(0.6, 1.1) * usual)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    code, _, stderr = bench.run(url, overwrite=True)
    assert code == 0, stderr
    poller.stop()
    assert same(tables(bench.fetch(prefix, bench.folder / "found")), expected)
    print("overwritten: equal", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path)
    for name, default in [("kills", 50), ("commits", 10), ("together", 8), ("rows", 20_000), ("seed", 1)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with server() as port, tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.program, folder, port, arguments.rows, unit=2000)
        code, _, stderr = bench.run(str(bench.folder / "local"), local=True)
        assert code == 0, stderr
        expected = tables(bench.folder / "local")
        began = time.monotonic()
        code, _, stderr = bench.run(f"s3://{BUCKET}/out/usual")
        usual = time.monotonic() - began
        assert code == 0, stderr
        assert same(tables(bench.fetch("out/usual", bench.folder / "found")), expected)
        print(f"a run takes {usual:.1f} s", flush=True)
        for machines in (False, True):
            together(bench, expected, arguments, machines)
        overwrites(bench, expected, usual, chance)
        commits(bench, expected, arguments, chance)
        kills(bench, expected, usual, arguments, chance)


if __name__ == "__main__":
    main()
