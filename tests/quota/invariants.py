"""Random load on metered ingest, with kill -9 at random moments: nothing is lost, nothing counts
twice, the limit is reached exactly.

    tests/quota/invariants.py [--sql sqlite|mariadb|postgres] [--mode sync|group|journal]
                              [--rounds 3] [--seed N] [--full-disk | --lone]

A round: clients send records, each under an Idempotency-Key of its own; the server is killed and
started again, or, where there is a database server, that one, or both; whatever had no answer is
sent again. Sometimes the database is stopped for a while (SIGSTOP), or is gone for longer than
requests wait. At the end of all rounds every request is sent once more, which must change nothing;
then more is sent than the limit allows. What must hold:

    records answered as accepted = rows in the database = the counter, and never above the limit

--lone has one client instead, whose records have no Idempotency-Key, so that the thread that a
request comes by stores it. What had no answer is not sent again: it may be there or not, but once.

--full-disk fills the disk that the database is on instead (as root: it mounts one of its own).
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
import databases  # noqa: E402
import server as harness  # noqa: E402

CLIENTS = 6
READY_SECONDS_MAX = 20
LEFT_FOR_THE_END = 50
WAIT_MS = 1500
MODES = ["sync", "group", "journal"]


class File:
    """SQLite: no server, a file in Forebay's folder."""

    name = "sqlite"
    process = None

    def __init__(self, folder, **_):
        self.path = pathlib.Path(folder) / "forebay.db"

    def start(self):
        return self

    def stop(self):
        pass

    remove_folder = stop

    def make(self, _):
        return "sqlite:forebay.db"

    def sql(self, text, _):
        with sqlite3.connect(self.path, timeout=20) as database:
            return database.execute(text).fetchall()


KINDS = {"sqlite": File, "mariadb": databases.MariaDb, "postgres": databases.Postgres}


class Forebay:
    """The server, its folder kept over restarts."""

    def __init__(self, folder, mode, sql="sqlite:forebay.db"):
        self.folder, self.mode, self.sql = folder, mode, sql
        self.http, self.resp = harness.free_port(), harness.free_port()
        self.process = None
        self.more = []

    def start(self):
        options = {
            "port": self.resp, "http-port": self.http, "dir": self.folder, "quota": "yes",
            "quota-ack": self.mode, "save": "", "quota-backlog-rows": 2000, "loglevel": "warning",
            "quota-wait-ms": WAIT_MS, "sql": self.sql,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        log = open(pathlib.Path(self.folder) / "forebay.log", "ab")
        self.process = subprocess.Popen([harness.default_binary(), "serve", *words, *self.more],
                                        stdout=log, stderr=log)
        until = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                return self.call("GET", "/readyz")
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    log = (pathlib.Path(self.folder) / "forebay.log").read_text()[-2000:]
                    raise SystemExit(f"the server does not start:\n{log}")
                time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def call(self, method, path, body=None, key=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=20)
        try:
            return self.on(connection, method, path, body, key, **headers)
        finally:
            connection.close()

    def on(self, connection, method, path, body=None, key=None, **headers):
        all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            all_headers["Authorization"] = f"Bearer {key}"
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, all_headers)
        answer = connection.getresponse()
        content = answer.read()
        is_json = "json" in (answer.headers.get("content-type") or "")
        return answer.status, json.loads(content) if is_json else content, answer.headers


class Client(threading.Thread):
    """Sends records until it is stopped; keeps what it was told about each."""

    def __init__(self, forebay, key, number, seed):
        super().__init__()
        self.forebay, self.key, self.number = forebay, key, number
        self.random = random.Random(seed)
        self.requests = {}
        self.seen = set()
        self.is_stopped = False
        self.count = 0

    def make(self):
        """A new request: its records, some of them events with a name of their own."""
        self.count += 1
        name = f"{self.number}-{self.count}"
        records = [{"n": name, "i": index} for index in range(self.random.choice([1, 1, 1, 3]))]
        self.requests[name] = [records, None]
        return name

    def send(self, connection, name):
        records, known = self.requests[name]
        status, body, headers = self.forebay.on(
            connection, "POST", "/v1/events", records, self.key, Idempotency_Key=f'"{name}"')
        self.seen.add(status)
        if status in (200, 202):
            assert known is None or known == body["accepted"], (name, known, body)
            self.requests[name][1] = body["accepted"]
        elif status == 429:
            assert not known, f"{name} was accepted before, and is refused now"
            self.requests[name][1] = 0
        else:
            assert status in (409, 503), (status, body)
            return False
        return True

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.forebay.http, timeout=20)
        name = None
        while not self.is_stopped or name:
            unsure = [old for old, (_, told) in self.requests.items() if told is None]
            if not name:
                if self.is_stopped:
                    break
                name = unsure[0] if unsure else self.make()
            try:
                if self.send(connection, name):
                    name = None
            except (OSError, http.client.HTTPException):
                connection.close()
                if self.is_stopped:
                    break
                time.sleep(0.01)
        connection.close()

    def accepted(self):
        return sum(told or 0 for _, told in self.requests.values())


class Lone(threading.Thread):
    """Sends records without keys, one at a time, until it is stopped; keeps which were accepted,
    which refused, and of which it was told nothing."""

    def __init__(self, forebay, key, first):
        super().__init__()
        self.forebay, self.key, self.number = forebay, key, first
        self.accepted, self.refused, self.untold = set(), set(), set()
        self.is_stopped = False

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.forebay.http, timeout=20)
        while not self.is_stopped:
            self.number += 1
            try:
                status, body, _ = self.forebay.on(
                    connection, "POST", "/v1/events", {"n": self.number}, self.key)
                assert status in (200, 202, 503), (status, body)
                (self.refused if status == 503 else self.accepted).add(self.number)
            except (OSError, http.client.HTTPException):
                self.untold.add(self.number)
                connection.close()
                time.sleep(0.01)
        connection.close()


def run_lone(mode, rounds, seed, folder, database):
    dice = random.Random(f"{seed} {mode} lone")
    name = f"quota_{mode}"
    forebay = Forebay(folder, mode, database.make(name))
    forebay.start()
    root, key = set_up(forebay, 1_000_000)
    accepted, refused, untold, happened, last = set(), set(), set(), [], 0
    for _ in range(rounds):
        client = Lone(forebay, key, last)
        client.start()
        time.sleep(dice.uniform(0.05, 0.6))
        happened.append(accident(dice, forebay, database))
        time.sleep(0.1)
        client.is_stopped = True
        client.join()
        last = client.number
        accepted |= client.accepted
        refused |= client.refused
        untold |= client.untold
    report = forebay.call("GET", "/v1/verify", None, root)[1]
    assert not report["differences"], report
    forebay.process.terminate()
    forebay.process.wait()
    verify(forebay)
    count = rows(database, name)
    told = database.sql("SELECT data FROM quota_record", name)
    stored = [json.loads(row[0])["n"] for row in told]
    assert len(set(stored)) == len(stored) == count, "a record is there twice"
    missing, wrong = accepted - set(stored), refused & set(stored)
    assert not missing and not wrong, (sorted(missing)[:5], sorted(wrong)[:5])
    counted = ", ".join(f"{happened.count(kind)} {kind}" for kind in sorted(set(happened)))
    print(f"{database.name}, {mode}, one client: {counted}; {len(accepted)} accepted, all stored; "
          f"{len(refused)} refused, none stored; {len(untold)} without an answer, "
          f"{len(untold & set(stored))} stored; {count} counted", flush=True)


def verify(forebay):
    command = [harness.default_binary(), "quota", "verify", "--dir", str(forebay.folder),
               "--sql", forebay.sql]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def rows(database, name):
    one = lambda sql: int(database.sql(sql, name)[0][0])  # noqa: E731
    count = one("SELECT COUNT(*) FROM quota_record")
    assert one("SELECT COALESCE(SUM(used), 0) FROM quota_counter") == count, "the counter differs"
    return count


def accident(dice, forebay, database):
    """Something dies, or does not answer for a while."""
    kinds = ["forebay"]
    if database.process:
        kinds += ["database", "both", "stopped", "gone"]
    kind = dice.choice(kinds)
    if kind == "forebay":
        forebay.kill()
        forebay.start()
    elif kind == "both":
        forebay.kill()
        database.kill()
        database.start()
        forebay.start()
    elif kind == "stopped":
        stop_and_go(dice.uniform(0.1, 2.5), database.process.pid)
    else:
        database.kill()
        time.sleep(dice.uniform(0, 2.5) if kind == "gone" else 0)
        database.start()
    return kind


def stop_and_go(seconds, parent):
    """The database does not answer: all its processes are stopped for a while."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)],
                              capture_output=True, text=True).stdout.split()
    everybody = [parent, *map(int, children)]
    for sign in (signal.SIGSTOP, signal.SIGCONT):
        for process in everybody:
            try:
                os.kill(process, sign)
            except ProcessLookupError:
                pass
        time.sleep(seconds if sign == signal.SIGSTOP else 0)


def set_up(forebay, limit):
    root = (pathlib.Path(forebay.folder) / "quota-root.key").read_text().strip()
    forebay.call("PUT", "/v1/orgs/acme/quota", {"limit": limit}, root)
    return root, forebay.call("POST", "/v1/orgs/acme/keys", {}, root)[1]["secret"]


def under_load(forebay, key, clients, dice, accidents):
    """Lets clients send while accidents happen; they come back with what they were told."""
    threads = [Client(forebay, key, client.number, dice.random()) for client in clients]
    for thread, client in zip(threads, clients):
        thread.requests, thread.count, thread.seen = client.requests, client.count, client.seen
        thread.start()
    accidents()
    time.sleep(0.05)
    for thread in threads:
        thread.is_stopped = True
    for thread, client in zip(threads, clients):
        thread.join()
        client.count = thread.count


def finish(forebay, database, name, root, key, clients):
    """Everything once more, then the end of the quota: what was accepted in all."""
    connection = http.client.HTTPConnection("127.0.0.1", forebay.http, timeout=60)
    for client in clients:
        for request in list(client.requests):
            while not client.send(connection, request):
                time.sleep(0.01)
    accepted = sum(client.accepted() for client in clients)
    status, body, _ = forebay.call("GET", "/v1/quota", None, key)
    assert (status, body["usage"]["used"]) == (200, accepted), (body, accepted)
    # The end of the quota, by all clients at once.
    limit = accepted + LEFT_FOR_THE_END
    forebay.call("PUT", "/v1/orgs/acme/quota", {"limit": limit}, root)
    counts = []

    def race():
        done = [forebay.call("POST", "/v1/events", {}, key)[0] for _ in range(20)]
        counts.append(sum(status in (200, 202) for status in done))

    racers = [threading.Thread(target=race) for _ in range(CLIENTS)]
    [racer.start() for racer in racers]
    [racer.join() for racer in racers]
    assert sum(counts) == LEFT_FOR_THE_END, counts
    report = forebay.call("GET", "/v1/verify", None, root)[1]
    assert not report["differences"], report
    forebay.process.terminate()
    forebay.process.wait()
    verify(forebay)
    assert rows(database, name) == limit, (rows(database, name), limit)
    return limit


def run(mode, rounds, seed, folder, database):
    dice = random.Random(f"{seed} {mode}")
    forebay = Forebay(folder, mode, database.make(f"quota_{mode}"))
    forebay.start()
    root, key = set_up(forebay, 1_000_000)
    clients = [Client(forebay, key, number, dice.random()) for number in range(CLIENTS)]
    happened = []

    def accidents():
        time.sleep(dice.uniform(0.05, 0.6))
        happened.append(accident(dice, forebay, database))

    for _ in range(rounds):
        under_load(forebay, key, clients, dice, accidents)
    limit = finish(forebay, database, f"quota_{mode}", root, key, clients)
    counted = ", ".join(f"{happened.count(kind)} {kind}" for kind in sorted(set(happened)))
    print(f"{database.name}, {mode}: {counted}; {limit} records accepted = stored = counted",
          flush=True)


def full_disk(mode, kind, seed, mount):
    """The disk is full: 503 for all that waits, nothing of it counted; then there is room again."""
    dice = random.Random(f"{seed} {mode}")
    folder = pathlib.Path(mount) / "data"
    folder.mkdir()
    home = tempfile.mkdtemp(prefix="forebay-quota-") if kind is not File else str(folder)
    small = {"innodb_log_file_size": "8M"} if kind is databases.MariaDb else {
        "max_wal_size": "32MB", "min_wal_size": "32MB"}
    database = File(folder) if kind is File else kind(folder=folder, options=small).start()
    forebay = None
    try:
        forebay = Forebay(home, mode, database.make("full_disk"))
        forebay.start()
        root, key = set_up(forebay, 1_000_000)
        clients = [Client(forebay, key, number, dice.random()) for number in range(CLIENTS)]
        filler = Client(forebay, key, CLIENTS, dice.random())

        def accidents():
            ballast = pathlib.Path(mount) / "ballast"
            with open(ballast, "wb") as file:
                try:
                    while True:
                        file.write(bytes(1 << 16))
                        file.flush()
                except OSError:
                    pass
            until = time.monotonic() + 60
            connection = http.client.HTTPConnection("127.0.0.1", forebay.http, timeout=8)
            while 503 not in filler.seen and time.monotonic() < until:
                name = filler.make()
                filler.requests[name][0] = [{"x": os.urandom(150_000).hex()}]
                try:
                    filler.send(connection, name)
                except (OSError, http.client.HTTPException):
                    # PostgreSQL gives up when its log cannot grow: what it was doing then has no
                    # known end until it is back, and others are refused.
                    break
            connection.close()
            ballast.unlink()
            # A database that gave up over it comes back.
            if database.process and database.process.poll() is not None:
                database.start()

        under_load(forebay, key, clients, dice, accidents)
        # The journal's disk is another one, where there is a database server.
        if mode != "journal" or kind is File:
            seen = filler.seen.union(*(client.seen for client in clients))
            assert 503 in seen, f"a full disk was not told: {seen}"
        limit = finish(forebay, database, "full_disk", root, key, [*clients, filler])
        print(f"{database.name}, {mode}: disk full; {limit} records accepted = stored = counted",
              flush=True)
    finally:
        if forebay and forebay.process and forebay.process.poll() is None:
            forebay.kill()
        database.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sql", choices=list(KINDS))
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--full-disk", action="store_true")
    parser.add_argument("--lone", action="store_true")
    args = parser.parse_args()
    print(f"seed {args.seed}")
    for kind in [KINDS[args.sql]] if args.sql else KINDS.values():
        if args.full_disk:
            for mode in [args.mode] if args.mode else MODES:
                on_small_disk(kind, mode, args.seed)
            continue
        with tempfile.TemporaryDirectory(prefix="forebay-quota-") as folder:
            database = kind() if kind is not File else File(folder)
            try:
                database.start()
                for mode in [args.mode] if args.mode else MODES:
                    home = pathlib.Path(folder) / mode
                    home.mkdir()
                    if kind is File:
                        database = File(home)
                    kind_of_run = run_lone if args.lone else run
                    kind_of_run(mode, args.rounds, args.seed, str(home), database)
            finally:
                database.stop()
                database.remove_folder()


def on_small_disk(kind, mode, seed):
    with tempfile.TemporaryDirectory(prefix="forebay-disk-") as mount:
        mounted = ["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", mount]
        subprocess.run(mounted, check=True)
        try:
            full_disk(mode, kind, seed, mount)
        finally:
            subprocess.run(["umount", "-l", mount], check=True)


if __name__ == "__main__":
    main()
