"""Random load on metered ingest, with kill -9 at random moments: nothing is lost, nothing counts
twice, the limit is reached exactly.

    tests/quota/invariants.py [--mode sync|group|journal] [--rounds 3] [--seed N]

A round: clients send records, each under an Idempotency-Key of its own; the server is killed and
started again; whatever had no answer is sent again. At the end of all rounds every request is sent
once more, which must change nothing; then more is sent than the limit allows. What must hold:

    records answered as accepted = rows in the database = the counter, and never above the limit
"""

import argparse
import http.client
import json
import pathlib
import random
import sqlite3
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
import server as harness  # noqa: E402

CLIENTS = 6
READY_SECONDS_MAX = 20
LEFT_FOR_THE_END = 50


class Forebay:
    """The server, its folder kept over restarts."""

    def __init__(self, folder, mode):
        self.folder, self.mode = folder, mode
        self.http, self.resp = harness.free_port(), harness.free_port()
        self.process = None
        self.more = []

    def start(self):
        options = {
            "port": self.resp, "http-port": self.http, "dir": self.folder, "quota": "yes",
            "quota-ack": self.mode, "save": "", "quota-backlog-rows": 2000, "loglevel": "warning",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.process = subprocess.Popen([harness.default_binary(), "serve", *words, *self.more])
        until = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                return self.call("GET", "/readyz")
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise SystemExit("the server does not start")
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


def verify(folder):
    command = [harness.default_binary(), "quota", "verify", "--dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def rows(folder):
    database = sqlite3.connect(pathlib.Path(folder) / "forebay.db")
    one = lambda sql: database.execute(sql).fetchone()[0]  # noqa: E731
    count = one("SELECT COUNT(*) FROM quota_record")
    assert one("SELECT COALESCE(SUM(used), 0) FROM quota_counter") == count, "the counter differs"
    database.close()
    return count


def run(mode, rounds, seed, folder):
    dice = random.Random(seed)
    forebay = Forebay(folder, mode)
    forebay.start()
    root = (pathlib.Path(folder) / "quota-root.key").read_text().strip()
    limit = 1_000_000
    forebay.call("PUT", "/v1/orgs/acme/quota", {"limit": limit}, root)
    key = forebay.call("POST", "/v1/orgs/acme/keys", {}, root)[1]["secret"]
    clients = [Client(forebay, key, number, dice.random()) for number in range(CLIENTS)]
    for number in range(rounds):
        threads = [Client(forebay, key, client.number, dice.random()) for client in clients]
        for thread, client in zip(threads, clients):
            thread.requests, thread.count = client.requests, client.count
            thread.start()
        time.sleep(dice.uniform(0.05, 0.6))
        forebay.kill()
        forebay.start()
        time.sleep(0.05)
        for thread in threads:
            thread.is_stopped = True
        for thread, client in zip(threads, clients):
            thread.join()
            client.count = thread.count
    connection = http.client.HTTPConnection("127.0.0.1", forebay.http, timeout=20)
    for client in clients:
        for name in list(client.requests):
            while not client.send(connection, name):
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
    verify(folder)
    assert rows(folder) == limit, (rows(folder), limit)
    print(f"{mode}: {rounds} kills, {limit} records accepted = stored = counted")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["sync", "group", "journal"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    print(f"seed {args.seed}")
    import tempfile
    for mode in [args.mode] if args.mode else ["sync", "group", "journal"]:
        with tempfile.TemporaryDirectory(prefix="forebay-quota-") as folder:
            run(mode, args.rounds, args.seed, folder)


if __name__ == "__main__":
    main()
