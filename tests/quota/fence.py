#!/usr/bin/env python3
"""A Forebay is killed while its database still works on its last transaction: the next one must
not load the counters before that has ended.

    tests/quota/fence.py [--sql mariadb|postgres]

Somebody holds the counter's row, so that a record's transaction waits for it; Forebay is killed and
started again; then the row is given back and the transaction goes on without its owner. What must
hold: the counter that Forebay knows = rows in the database.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import invariants  # noqa: E402

HELD_SECONDS = 3
SECONDS_MAX = 60
NAME = "quota_fence"
LOCK = "SELECT used FROM quota_counter FOR UPDATE"


def client(database, text):
    """The command line of the database's own client."""
    if database.name == "mariadb":
        return database.client(NAME, "-e", text)
    return database.client(NAME, text)


def hold(database):
    """Holds the counter's row for a while."""
    nap = "DO SLEEP" if database.name == "mariadb" else "SELECT pg_sleep"
    return subprocess.Popen(client(database, f"BEGIN; {LOCK}; {nap}({HELD_SECONDS}); COMMIT"),
                            stdout=subprocess.DEVNULL, cwd="/")


def is_held(database):
    tried = subprocess.run(client(database, f"{LOCK} NOWAIT"), capture_output=True, cwd="/")
    return tried.returncode != 0


def is_waited_for(database):
    waits = ("information_schema.INNODB_LOCK_WAITS" if database.name == "mariadb"
             else "pg_locks WHERE NOT granted")
    return int(database.sql(f"SELECT COUNT(*) FROM {waits}", NAME)[0][0]) > 0


def until(what, *arguments):
    end = time.monotonic() + SECONDS_MAX
    while not what(*arguments):
        assert time.monotonic() < end, f"{what.__name__} did not come true"
        # InnoDB's tables are made anew only for those who have not asked for 0.1 s.
        time.sleep(0.2)


def send(forebay, key):
    try:
        forebay.call("POST", "/v1/events", {}, key)
    except OSError:
        pass


def run(database, folder):
    forebay = invariants.Forebay(folder, "group", database.make(NAME))
    forebay.start()
    try:
        root, key = invariants.set_up(forebay, 10)
        assert forebay.call("POST", "/v1/events", {}, key)[0] == 200
        holder = hold(database)
        until(is_held, database)
        sender = threading.Thread(target=send, args=(forebay, key))
        sender.start()
        until(is_waited_for, database)
        forebay.kill()
        sender.join()
        was_held = holder.poll() is None
        forebay.start()
        # Loads the counter.
        forebay.call("GET", "/v1/quota", None, key)
        holder.wait()
        until(lambda: not is_held(database))
        used = forebay.call("GET", "/v1/quota", None, key)[1]["usage"]["used"]
        rows = invariants.rows(database, NAME)
        report = forebay.call("GET", "/v1/verify", None, root)[1]
    finally:
        forebay.kill()
    assert used == rows and not report["differences"], (used, rows, report)
    left = "was still at it" if was_held else "had ended (the machine is slow)"
    print(f"{database.name}: the database {left}; {rows} rows = counter", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sql", choices=["mariadb", "postgres"])
    args = parser.parse_args()
    for name in [args.sql] if args.sql else ["mariadb", "postgres"]:
        with invariants.KINDS[name]() as database, \
                tempfile.TemporaryDirectory(prefix="forebay-fence-") as folder:
            run(database, folder)


if __name__ == "__main__":
    main()
