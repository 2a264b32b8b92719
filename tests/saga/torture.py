"""A bank under torture: sagas, messages and TCC over 1000 accounts in SQL, branches failing at
random, the coordinator and its participants killed with -9 at random.

    tests/saga/torture.py [--rounds 3] [--seconds 1.5] [--seed N]

A round: clients transfer money in every mode, over HTTP participants and by the server's own SQL
and Redis steps, while somebody is killed and started again; some clients vanish halfway. Then
nobody fails any more and everything has to come to its end. What must hold after each round:

    the sum over all accounts is what it was; nothing is frozen; no transaction is unfinished;
    what the server's own steps counted in the keyspace is what they moved in SQL;
    each transaction's lines of the ledger come to nothing; one that succeeded moved its amount
    once, one that failed moved nothing; none that was acknowledged is unknown
"""

import argparse
import collections
import http.client
import json
import pathlib
import random
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "harness"))
import server as harness  # noqa: E402

ACCOUNTS, AMOUNT, CLIENTS = 1000, 1000, 8
# Between two transfers of a client at most: else a fast machine begins more than two participants
# in Python settle.
PAUSE_SECONDS_MAX = 0.05
SETTLE_SECONDS_MAX = 180
SCHEMA = """
CREATE TABLE IF NOT EXISTS account (id integer PRIMARY KEY, amount integer, frozen integer);
CREATE TABLE IF NOT EXISTS ledger (gid text, account integer, amount integer, frozen integer);
CREATE INDEX IF NOT EXISTS ledger_gid ON ledger (gid);
CREATE TABLE IF NOT EXISTS barrier (
  id integer PRIMARY KEY, trans_type varchar(45), gid varchar(128), branch_id varchar(128),
  op varchar(45), barrier_id varchar(45), reason varchar(45),
  UNIQUE (gid, branch_id, op, barrier_id));
"""


class Bank:
    """All processes, and the folder that outlives them."""

    def __init__(self, folder, dice):
        self.folder, self.dice = pathlib.Path(folder), dice
        self.http, self.resp = harness.free_port(), harness.free_port()
        self.ports = [harness.free_port() for _ in range(2)]
        self.coordinator, self.participants = None, [None, None]
        self.failures, self.kills, self.counted = 0.15, collections.Counter(), 0
        self.path = self.folder / "forebay.db"
        connection = self.sql()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA)
        rows = [(number, AMOUNT, 0) for number in range(ACCOUNTS)]
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO account VALUES (?, ?, ?)", rows)
        connection.execute("COMMIT")
        connection.close()

    def sql(self):
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=20)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def start_coordinator(self):
        options = {
            "port": self.resp, "http-port": self.http, "dir": self.folder, "saga": "yes",
            "save": "", "appendonly": "yes", "loglevel": "warning", "saga-local-steps": "yes",
            "saga-durability": self.dice.choice(["none", "everysec", "always"]),
            "saga-retry-seconds": 1, "saga-request-seconds": 1, "saga-timeout-seconds": 2,
            "saga-retry-seconds-max": 2, "saga-tries-max": 0,
            "appendfsync": self.dice.choice(["everysec", "always"]),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.coordinator = subprocess.Popen([harness.default_binary(), "serve", *words])

    def start_participant(self, number):
        script = pathlib.Path(__file__).with_name("participant.py")
        words = [self.ports[number], self.path, self.dice.randrange(1 << 30), self.failures]
        self.participants[number] = subprocess.Popen(
            [sys.executable, str(script), *map(str, words)])

    def start_what_is_down(self):
        if self.coordinator is None or self.coordinator.poll() is not None:
            self.start_coordinator()
        for number, process in enumerate(self.participants):
            if process is None or process.poll() is not None:
                self.start_participant(number)

    def kill(self, name):
        process = self.coordinator if name == "coordinator" else self.participants[int(name)]
        process.kill()
        process.wait()
        self.kills[name if name == "coordinator" else "participant"] += 1

    def stop(self):
        for process in [self.coordinator, *self.participants]:
            if process is not None:
                process.kill()
                process.wait()

    def url(self, what):
        return f"http://127.0.0.1:{self.dice.choice(self.ports)}/{what}"

    def ask(self, method, path, body=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http, timeout=10)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def get(self, key):
        """A number in the keyspace."""
        with socket.create_connection(("127.0.0.1", self.resp), timeout=10) as wire:
            wire.sendall(f"GET {key}\r\n".encode())
            reply = wire.recv(100).split(b"\r\n")
        return 0 if reply[0] == b"$-1" else int(reply[1])

    def dtm(self, name, body, is_stopped=lambda: False):
        """Asks until there is an answer: who gets none knows nothing."""
        while True:
            try:
                status, text = self.ask("POST", f"/api/dtmsvr/{name}", body)
                if status != 500:
                    return status
                assert b"log cannot" in text or b"unfinished" in text, (name, body, text)
            except (OSError, http.client.HTTPException):
                pass
            if is_stopped():
                return 0
            time.sleep(0.05)


class Client(threading.Thread):
    """Transfers money in random modes until it is stopped."""

    def __init__(self, bank, number, seed):
        super().__init__()
        self.bank, self.number, self.dice = bank, number, random.Random(seed)
        self.is_stopped, self.count = False, 0
        # What the coordinator has acknowledged, and what each was to move.
        self.known, self.orders, self.modes = set(), {}, collections.Counter()
        self.own = None

    def run(self):
        self.own = self.bank.sql()
        modes = [self.saga, self.saga, self.local, self.message, self.tcc]
        while not self.is_stopped:
            self.count += 1
            gid = f"{self.number}-{self.count}-{self.dice.randrange(1 << 40):x}"
            source, target = self.dice.sample(range(ACCOUNTS), 2)
            order = {"from": source, "to": target, "amount": self.dice.randrange(1, 300)}
            mode = self.dice.choice(modes)
            self.orders[gid] = (mode.__name__, order)
            self.modes[mode.__name__] += 1
            mode(gid, order)
            time.sleep(self.dice.uniform(0, PAUSE_SECONDS_MAX))
        self.own.close()

    def vanishes(self):
        return self.dice.random() < 0.08

    def send(self, name, gid, kind, **fields):
        body = {"gid": gid, "trans_type": kind, "retry_interval": 1} | fields
        status = self.bank.dtm(name, body, lambda: self.is_stopped)
        if status == 200:
            self.known.add(gid)
        return status

    def saga(self, gid, order):
        url, payload = self.bank.url, json.dumps(order)
        steps = [{"action": url("out"), "compensate": url("out")},
                 {"action": url("in"), "compensate": url("in")}]
        self.send("submit", gid, "saga", steps=steps, payloads=[payload] * 2,
                  wait_result=self.dice.random() < 0.5)

    def local(self, gid, order):
        """By the server's own steps, one of them over HTTP now and then."""
        def sql(account, amount, floor):
            text = "UPDATE account SET amount = amount + ? WHERE id = ? AND amount >= ?"
            args = [amount, account, floor]
            return "sql:" + json.dumps({"sql": text, "args": args, "rows": 1})
        amount, lowest = order["amount"], -(1 << 40)
        count = [f'redis:["INCRBY", "moved", {sign * amount}]' for sign in (1, -1)]
        steps = [{"action": sql(order["from"], -amount, amount),
                  "compensate": sql(order["from"], amount, lowest)},
                 {"action": count[0], "compensate": count[1]},
                 {"action": sql(order["to"], amount, lowest),
                  "compensate": sql(order["to"], -amount, lowest)}]
        if self.dice.random() < 0.3:
            steps[0] = {"action": self.bank.url("out"), "compensate": self.bank.url("out")}
        if self.dice.random() < 0.2:
            steps.append({"action": 'redis:["NOSUCH"]', "compensate": ""})
        self.send("submit", gid, "saga", steps=steps, payloads=[json.dumps(order)] * len(steps))

    def message(self, gid, order):
        steps = [{"action": self.bank.url("in")}]
        fields = {"steps": steps, "payloads": [json.dumps(order)],
                  "query_prepared": self.bank.url("query")}
        if self.send("prepare", gid, "msg", **fields) != 200 or self.vanishes():
            return
        if not self.debit(gid, order):
            self.send("abort", gid, "msg")
        elif not self.vanishes():
            self.send("submit", gid, "msg", **fields)

    def debit(self, gid, order):
        """The message's own transaction, with its barrier row."""
        own = self.own
        own.execute("BEGIN IMMEDIATE")
        row = own.execute("INSERT OR IGNORE INTO barrier (trans_type, gid, branch_id, op, "
                          "barrier_id, reason) VALUES ('msg', ?, '00', 'msg', '01', 'msg')",
                          (gid,)).rowcount
        done = row and own.execute(
            "UPDATE account SET amount = amount - ?1 WHERE id = ?2 AND amount >= ?1",
            (order["amount"], order["from"])).rowcount
        if not done:
            own.execute("ROLLBACK")
            return False
        own.execute("INSERT INTO ledger VALUES (?, ?, ?, 0)",
                    (gid, order["from"], -order["amount"]))
        own.execute("COMMIT")
        return True

    def tcc(self, gid, order):
        if self.send("prepare", gid, "tcc") != 200:
            return
        is_fine = True
        for branch, what in [("01", "out"), ("02", "in")]:
            port = self.dice.choice(self.bank.ports)
            url = f"http://127.0.0.1:{port}/{what}"
            fields = {"branch_id": branch, "data": json.dumps(order), "confirm": url,
                      "cancel": url}
            body = {"gid": gid, "trans_type": "tcc"} | fields
            status = self.bank.dtm("registerBranch", body, lambda: self.is_stopped)
            if status != 200 or self.vanishes():
                is_fine = False
                break
            query = f"gid={gid}&trans_type=tcc&branch_id={branch}&op=try"
            try:
                status, _ = self.bank.ask("POST", f"/{what}?{query}", order, port)
            except (OSError, http.client.HTTPException):
                status = 0
            is_fine = is_fine and status == 200
            if not is_fine:
                break
        if not self.vanishes():
            self.send("submit" if is_fine else "abort", gid, "tcc")


def settle(bank):
    """Nobody fails any more: everything comes to its end."""
    bank.failures = 0
    for number in range(2):
        bank.participants[number].kill()
        bank.participants[number].wait()
    bank.start_what_is_down()
    until = time.monotonic() + SETTLE_SECONDS_MAX
    while True:
        try:
            left = 0
            for status in ["prepared", "submitted", "aborting"]:
                text = bank.ask("GET", f"/api/dtmsvr/all?status={status}&limit=1000")[1]
                left += len(json.loads(text)["transactions"])
            if not left:
                return
            bank.ask("POST", "/v1/sagas:bulk", {"filter": {}, "verb": "retry"})
        except (OSError, http.client.HTTPException):
            left = "?"
        assert time.monotonic() < until, f"{left} transactions are unfinished"
        time.sleep(0.1)


def check(bank, clients):
    connection = bank.sql()
    (amount, frozen), = connection.execute("SELECT sum(amount), sum(frozen) FROM account")
    assert (amount, frozen) == (ACCOUNTS * AMOUNT, 0), (amount, frozen)
    moved = collections.defaultdict(int)
    sums = collections.defaultdict(int)
    for gid, account, change, ice in connection.execute("SELECT * FROM ledger"):
        sums[gid] += change + ice
        moved[gid, account] += change
    ends, counted = collections.Counter(), 0
    for client in clients:
        for gid, (mode, order) in client.orders.items():
            text = bank.ask("GET", f"/api/dtmsvr/query?gid={gid}")[1]
            t = json.loads(text)["transaction"]
            assert t is not None or gid not in client.known, f"{gid} was acknowledged and is gone"
            status = t["status"] if t else "unknown"
            ends[mode, status] += 1
            if mode == "local":
                counted += order["amount"] if status == "succeed" else 0
            else:
                assert sums[gid] == 0, (gid, mode, status, sums[gid])
                wanted = order["amount"] if status == "succeed" else 0
                assert moved[gid, order["to"]] == wanted, (gid, mode, status, order)
                assert moved[gid, order["from"]] == -wanted, (gid, mode, status, order)
    connection.close()
    bank.counted += counted
    assert bank.get("moved") == bank.counted, "the keyspace's own steps"
    return ends


def play(bank, number, seconds, dice):
    bank.failures = 0.15
    for index in range(2):
        if bank.participants[index] is not None:
            bank.participants[index].kill()
            bank.participants[index].wait()
    bank.start_what_is_down()
    clients = [Client(bank, f"r{number}c{index}", dice.random()) for index in range(CLIENTS)]
    for client in clients:
        client.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(dice.uniform(0.1, 0.6))
        bank.kill(dice.choice(["coordinator", "coordinator", "0", "1"]))
        time.sleep(dice.uniform(0, 0.2))
        bank.start_what_is_down()
    for client in clients:
        client.is_stopped = True
    for client in clients:
        client.join()
    bank.start_what_is_down()
    settle(bank)
    return check(bank, clients)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    dice = random.Random(args.seed)
    print(f"seed {args.seed}", flush=True)
    total = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="forebay-bank-") as folder:
        bank = Bank(folder, dice)
        try:
            for number in range(args.rounds):
                ends = play(bank, number, args.seconds, dice)
                total += ends
                if (number + 1) % 10 == 0:
                    print(f"{number + 1} rounds, {sum(total.values())} transactions", flush=True)
        finally:
            bank.stop()
    for (mode, status), count in sorted(total.items()):
        print(f"{mode:8} {status:8} {count}")
    print(f"killed: {dict(bank.kills)}; {ACCOUNTS * AMOUNT} conserved in each of {args.rounds} "
          "rounds, nothing unfinished")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
