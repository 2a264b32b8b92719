#!/usr/bin/env python3
"""Readers and writers on cached rows over HTTP, with purges, expiries and kill -9: nobody is served
what is older than what was acknowledged before they asked.

    tests/tables/checker.py [--seconds 15] [--kills 2]

Each row has one writer, which raises its rank; a reader notes the last acknowledged rank, asks by
id or by a list, and must see that rank or a later one. Answers marked as old because the database
did not answer (sql-error) are counted apart.

Invariant: exits with 0 only if no answer was too old, and there were hits enough to tell.
"""

import argparse
import http.client
import sys
import threading
import time

import face
from face import where

ROWS = ("r0", "r1", "r2")
READERS = 6


class Run:
    """What all threads share."""

    def __init__(self, forebay, until):
        self.forebay, self.until = forebay, until
        self.acknowledged = dict.fromkeys(ROWS, 0)
        self.hits = self.answers = self.marked = self.writes = 0
        self.wrong = []
        self.lock = threading.Lock()

    def is_on(self):
        return time.monotonic() < self.until and not self.wrong

    def call(self, *words, **headers):
        """An answer, or none where the server is away."""
        try:
            return self.forebay.call(*words, **headers)
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)
            return None

    def write(self, row):
        rank = 0
        while self.is_on():
            rank += 1
            answer = self.call("PATCH", f"/tables/todo/{row}", {"rank": rank})
            if answer is not None and answer.status == 200:
                self.acknowledged[row] = rank
                self.writes += 1
            time.sleep(0.003 * (rank % 5))

    def read(self, number):
        while self.is_on():
            number += 1
            row = ROWS[number % len(ROWS)]
            listed = where("todo", filter=f"id eq '{row}'")
            address = f"/tables/todo/{row}" if number % 2 else listed
            least = self.acknowledged[row]
            answer = self.call("GET", address)
            if answer is None or answer.status != 200:
                continue
            found = answer.json()
            seen = (found[0] if isinstance(found, list) else found)["rank"]
            with self.lock:
                self.answers += 1
                self.hits += answer.headers["x-cache"] == "HIT"
                if "sql-error" in answer.headers["cache-status"]:
                    self.marked += 1
                elif seen < least:
                    self.wrong.append((address, seen, least, answer.headers["cache-status"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--kills", type=int, default=2)
    arguments = parser.parse_args()
    with face.Forebay(appendonly="yes", tables_sample=20) as forebay:
        for row in ROWS:
            forebay.call("POST", "/tables/todo", {"id": row, "rank": 0})
        run = Run(forebay, time.monotonic() + arguments.seconds)
        threads = [threading.Thread(target=run.write, args=(row,)) for row in ROWS]
        threads += [threading.Thread(target=run.read, args=(n,)) for n in range(READERS)]
        for thread in threads:
            thread.start()
        for _ in range(arguments.kills):
            time.sleep(arguments.seconds / (arguments.kills + 1))
            forebay.server.process.kill()
            forebay.server.process.wait()
            forebay.start()
        for thread in threads:
            thread.join()
        mismatches = forebay.stats()["mismatches"]
    print(f"{run.answers} answers, {run.hits} hits, {run.marked} marked as old, "
          f"{run.writes} changes, {len(run.wrong)} too old, {mismatches} mismatches")
    for wrong in run.wrong[:5]:
        print("too old:", wrong)
    return 1 if run.wrong or mismatches or run.hits < 50 or run.writes < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
