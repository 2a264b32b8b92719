#!/usr/bin/env python3
"""Readers and writers on cached rows over HTTP, with purges, expiries, restarts and kill -9 of
Forebay and of the database: nobody is served what is older than what anybody had been told.

    tests/tables/checker.py [--sql sqlite|mariadb|postgres] [--seconds 15] [--accidents 3]
    tests/tables/checker.py --long     each database for five minutes, an accident every 5 seconds

Each row is a register with one writer, which raises its number. A reader notes what had been
acknowledged and what anybody had read before it asks, by id or by a list: of one row, of all, of
those at or above a number that the row has reached, of those below one that it has left. Most
changes touch but some of these. Linearizability of such a register is that a reader sees

* no number below those, and
* no number above the last that was sent.

Answers marked as old because the database did not answer (sql-error) are counted apart: that is
their stated bound. One table's answers expire every 300 ms under all its readers, and another one's
are removed every 100 ms. Accidents in turn: kill -9 of Forebay, an orderly restart, and kill -9 of
the database, which is started again after a moment.

Invariant: exits with 0 only if no answer was wrong, and there were hits enough to tell.
"""

import argparse
import http.client
import pathlib
import sys
import threading
import time

import face
from face import where

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
import databases  # noqa: E402

RANKED, SHORT = ("r0", "r1", "r2"), ("s0", "s1")
READERS = 6
STORM_SECONDS = 0.1
DOWN_SECONDS = 0.3
LONG_SECONDS = 300
BETWEEN_ACCIDENTS = 5
CALM_SECONDS_MAX = 120


class Register:
    """One row: which column holds its number, and what is known of it."""

    def __init__(self, table, row):
        self.table, self.row = table, row
        self.sent = self.acknowledged = self.seen = 0
        # The row's version as its writer knows it: a change of which nobody knows the end cannot
        # come about later and undo the next one.
        self.tag = None

    def body(self, number):
        return {"rank": number} if self.table == "todo" else {"text": str(number)}

    def number(self, found):
        return found["rank"] if self.table == "todo" else int(found["text"])

    def least(self):
        return max(self.acknowledged, self.seen)


def question(register, turn, least):
    """An address that has the row if it is as new as it has to be, or (the second answer) has it
    only if it is not."""
    table, row = register.table, register.row
    if turn % 2:
        return f"/tables/{table}/{row}", False
    # Bounds that stay the same for some changes: what is asked once is kept for no one.
    bound = least - least % 16
    filters = [f"id eq '{row}'", None]
    if table == "todo":
        filters += [f"id eq '{row}' and rank ge {bound}", f"rank ge {bound} and startswith(id,'r')",
                    f"id eq '{row}' and rank lt {bound}"]
    number = turn // 10 % len(filters)
    words = {"orderby": "id"} if filters[number] is None else {"filter": filters[number]}
    return where(table, **words), number == 4


class Run:
    """What all threads share."""

    def __init__(self, forebay, seconds):
        self.forebay = forebay
        self.until = time.monotonic() + seconds
        self.registers = [Register("todo", row) for row in RANKED]
        self.registers += [Register("short", row) for row in SHORT]
        self.hits = self.answers = self.marked = self.writes = self.unknown = 0
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

    def make(self):
        """Makes the rows; the databases and the server have all the time they need."""
        for register in self.registers:
            path = f"/tables/{register.table}"
            until = time.monotonic() + CALM_SECONDS_MAX
            while True:
                answer = self.call("POST", path, {"id": register.row} | register.body(0))
                if answer is not None and answer.status in (201, 409):
                    break
                if time.monotonic() > until:
                    raise SystemExit(f"no row can be made: {answer and answer.body}")

    def write(self, register):
        while self.is_on():
            number = register.sent + 1
            register.sent = number
            path = f"/tables/{register.table}/{register.row}"
            answer = self.call("PATCH", path, register.body(number), if_match=register.tag)
            with self.lock:
                if answer is not None and answer.status in (200, 412):
                    register.tag = answer.headers["etag"]
                if answer is not None and answer.status == 200:
                    register.acknowledged = number
                    self.writes += 1
                else:
                    self.unknown += 1
            time.sleep(0.003 * (number % 5))

    def read(self, turn):
        while self.is_on():
            turn += 1
            register = self.registers[turn % len(self.registers)]
            with self.lock:
                least = register.least()
            address, is_absent = question(register, turn, least)
            answer = self.call("GET", address)
            most = register.sent
            if answer is None or answer.status != 200:
                continue
            found = answer.json()
            found = found if isinstance(found, list) else [found]
            row = next((row for row in found if row["id"] == register.row), None)
            if row or not is_absent:
                self.judge(register, (address, least, most), row, answer.headers)

    def judge(self, register, asked, row, headers):
        address, least, most = asked
        status = headers["cache-status"]
        with self.lock:
            self.answers += 1
            self.hits += headers["x-cache"] == "HIT"
            if "sql-error" in status:
                self.marked += 1
                return
            number = register.number(row) if row else None
            if number is None or not least <= number <= most:
                self.wrong.append((address, number, least, most, status))
            else:
                register.seen = max(register.seen, number)

    def storm(self):
        while self.is_on():
            try:
                self.forebay.resp("TABLE.PURGE", "todo")
            except (OSError, ValueError):
                pass
            time.sleep(STORM_SECONDS)


def accidents(run, count, database):
    """Makes accidents, evenly spread, until the run ends."""
    server = run.forebay.server
    kinds = [kind for kind in ("kill", "restart", "database") if database or kind != "database"]
    for number in range(count):
        left = run.until - time.monotonic()
        time.sleep(max(0, left / (count + 1 - number)))
        if not run.is_on():
            return
        kind = kinds[number % len(kinds)]
        if kind == "database":
            database.kill()
            time.sleep(DOWN_SECONDS)
            database.start()
        elif kind == "restart":
            server.stop()
            run.forebay.start()
        else:
            server.process.kill()
            server.process.wait()
            run.forebay.start()


def check(sql, seconds, count):
    """One run; how many things were wrong."""
    kinds = {"mariadb": databases.MariaDb, "postgres": databases.Postgres}
    database = kinds[sql]() if sql in kinds else None
    try:
        options = {"sql": database.start().make("checked")} if database else {}
        with face.Forebay(appendonly="yes", tables_sample=20, **options) as forebay:
            run = Run(forebay, seconds)
            run.make()
            run.until = time.monotonic() + seconds
            threads = [threading.Thread(target=run.write, args=(register,))
                       for register in run.registers]
            threads += [threading.Thread(target=run.read, args=(n,)) for n in range(READERS)]
            threads.append(threading.Thread(target=run.storm))
            for thread in threads:
                thread.start()
            accidents(run, count, database)
            for thread in threads:
                thread.join()
            stats = forebay.stats()
            mismatches = stats["mismatches"]
    finally:
        if database:
            database.stop()
            database.remove_folder()
    print(f"{sql}: {run.answers} answers, {run.hits} hits, {run.marked} marked as old, "
          f"{run.writes} changes, {run.unknown} of unknown end, {count} accidents, "
          f"{len(run.wrong)} wrong, {mismatches} mismatches, "
          f"{stats['outlived']} lists outlived changes since the last start", flush=True)
    for wrong in run.wrong[:5]:
        print("wrong (address, number, least, most, status):", wrong)
    return len(run.wrong) + mismatches + (run.hits < 50) + (run.writes < 20)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sql", choices=("sqlite", "mariadb", "postgres"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--accidents", type=int, default=3)
    parser.add_argument("--long", action="store_true")
    arguments = parser.parse_args()
    if not arguments.long:
        return int(check(arguments.sql, arguments.seconds, arguments.accidents) > 0)
    count = LONG_SECONDS // BETWEEN_ACCIDENTS
    failed = [check(sql, LONG_SECONDS, count) for sql in ("sqlite", "mariadb", "postgres")]
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
