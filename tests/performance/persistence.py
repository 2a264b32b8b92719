#!/usr/bin/env python3
"""What persistence costs: Forebay beside redis-server, in one run.

    tests/performance/persistence.py [--forebay PATH] [--redis PATH] [--rounds 5]
                                     [--keys 5000000] [--rate 5000] [--seconds 8]
                                     [--only everysec|always|save]

Each server has one thread on core 0; the load is on core 1; the arms take turns in every round,
and what is compared is compared within a round.

everysec: SETs at pipeline 16 with the log and without: server CPU per operation (all threads,
kernel included) and throughput. Rewrites are off, so that the log itself is measured.
always: 50 unpipelined connections: commands per second beside redis-server's.
save: an open loop of SETs and one of GETs on many keys, idle and during BGSAVE: percentiles from
when each request was due, and memory. Forebay's is the growth of its resident set, redis-server's
what its child made it copy (INFO rdb_last_cow_size).

Exits with 1 when a bound of the project is missed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from table import MILLION, Server, benchmark

SET_16 = ["-t", "set", "-P", "16"]
LOG = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"]


def started(name, command, folder, *options):
    path = os.path.join(folder, name.replace(" ", "-"))
    os.mkdir(path)
    return Server(name, [*command, *options], path)


def everysec(options, arms, folder):
    servers = {}
    for name, command in arms:
        servers[name, "off"] = started(f"{name} off", command, folder)
        servers[name, "on"] = started(
            f"{name} on", command, folder, *LOG, "--appendfsync", "everysec"
        )
    ratios = {(name, what): [] for name, _ in arms for what in ("cpu", "rate")}
    missed = False
    try:
        for server in servers.values():
            benchmark(server, ["-t", "set", "-P", "50"], 2 * MILLION)
        for turn in range(options.rounds):
            for name, _ in arms:
                order = ["off", "on"] if turn % 2 == 0 else ["on", "off"]
                got = {kind: benchmark(servers[name, kind], SET_16, MILLION) for kind in order}
                ratios[name, "cpu"].append((got["off"][0], got["on"][0]))
                ratios[name, "rate"].append((got["off"][1], got["on"][1]))
        for name, _ in arms:
            cpu, rate = ratios[name, "cpu"], ratios[name, "rate"]
            loss = 1 - statistics.median(on / off for off, on in rate)
            more = statistics.median(on / off for off, on in cpu)
            spent = [statistics.median(pair[kind] for pair in cpu) for kind in (0, 1)]
            print(f"everysec, {name}: {spent[0]:.3f} us/op without, {spent[1]:.3f} with "
                  f"({more:.2f} times); loses {loss:.0%} throughput", flush=True)
            missed |= name == "forebay" and loss > 0.15
    finally:
        for server in servers.values():
            server.stop()
    return missed


def always(options, arms, folder):
    servers = [
        started(f"{name} always", command, folder, *LOG, "--appendfsync", "always")
        for name, command in arms
    ]
    ratios = []
    try:
        for turn in range(options.rounds):
            got = {}
            for server in servers if turn % 2 == 0 else servers[::-1]:
                got[server.name] = benchmark(server, ["-t", "set", "-P", "1"], 30_000)[1]
            ratios.append((got["redis always"], got["forebay always"]))
    finally:
        for server in servers:
            server.stop()
    ratio = statistics.median(ours / theirs for theirs, ours in ratios)
    theirs, ours = (statistics.median(pair[arm] for pair in ratios) for arm in (0, 1))
    print(f"always, 50 connections: redis {theirs:,.0f}/s, forebay {ours:,.0f}/s, "
          f"{ratio:.2f} times (at least 2)", flush=True)
    return ratio < 2


def open_loop(options, server, test, keys, out):
    command = ["taskset", "-c", "1", options.forebay, "bench", "kv", "-t", test]
    command += ["--rate", str(options.rate), "-r", str(keys), "-d", "32", "--keep"]
    command += ["--duration", f"{options.seconds}s", "--warmup", "300ms", "--rounds", "1"]
    command += ["--target", f"s=127.0.0.1:{server.port}", "--json", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout)["rows"][0]["values"]


def window(options, server, folder, saves):
    """The percentiles of one stretch of time, and the largest resident set in it."""
    most, ends = [server.info("used_memory_rss")], threading.Event()

    def watch():
        while not ends.is_set():
            with open(f"/proc/{server.process.pid}/statm") as file:
                most.append(int(file.read().split()[1]) * 4096)
            if saves:
                server.call("BGSAVE")  # Refused while one runs: there is always one.
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    got = {}
    loads = [
        threading.Thread(target=lambda test=test, keys=keys: got.update(
            {test: open_loop(options, server, test, keys, os.path.join(folder, test))}))
        for test, keys in (("set", options.keys), ("get", 100_000))
    ]
    for thread in (watcher, *loads):
        thread.start()
    for thread in loads:
        thread.join()
    ends.set()
    watcher.join()
    return got, max(most)


def save(options, arms, folder):
    missed = False
    for name, command in arms:
        server = started(f"{name} save", command, folder)
        try:
            empty = server.info("used_memory")
            fill(options, server, folder)
            size = server.info("used_memory") - empty
            open_loop(options, server, "get", 100_000, os.path.join(folder, "warm"))
            idle, resident = window(options, server, folder, False)
            busy, most = window(options, server, folder, True)
            for test in ("set", "get"):
                rest, then = idle[test], busy[test]
                print(f"save, {name}, {test}: idle p99.9 {rest['p999_us'] / 1000:.2f} ms, slowest "
                      f"{rest['max_us'] / 1000:.2f}; saving p99.9 {then['p999_us'] / 1000:.2f} ms, "
                      f"slowest {then['max_us'] / 1000:.2f}", flush=True)
                if name == "forebay":
                    missed |= then["p999_us"] > 2 * rest["p999_us"] or then["max_us"] > 5000
            more = most - resident
            if name == "redis":
                more = int(persistence_field(server, "rdb_last_cow_size"))
            else:
                missed |= more > size / 10
            told = f"{more / size:.1%} more memory, {size >> 20} MB in keys"
            print(f"save, {name}: {told}", flush=True)
        finally:
            server.stop()
    return missed


def fill(options, server, folder):
    """Random SETs until nearly every key is there."""
    command = ["taskset", "-c", "1", "redis-benchmark", "-p", str(server.port), "-c", "50"]
    command += ["-r", str(options.keys), "-n", str(3 * options.keys), "-P", "50", "-q"]
    command += ["SET", "fbench:k:__rand_int__", "v" * 32]
    subprocess.run(command, capture_output=True, check=True)


def persistence_field(server, field):
    text = server.call("INFO", "persistence").decode()
    return next(line for line in text.splitlines() if line.startswith(field)).split(":")[1]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--forebay", default="target/release/forebay")
    parser.add_argument("--redis", default="redis-server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, default=5 * MILLION)
    parser.add_argument("--rate", type=int, default=5000, help="SETs, and GETs, a second")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--only", choices=["everysec", "always", "save"])
    options = parser.parse_args()
    arms = [("redis", [options.redis]),
            ("forebay", [options.forebay, "serve", "--threads", "1", "--http-port", "0"])]
    missed = False
    for part in (everysec, always, save):
        if options.only in (None, part.__name__):
            with tempfile.TemporaryDirectory() as folder:
                missed |= part(options, arms, folder)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
