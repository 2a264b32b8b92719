"""A bank's participant for torture.py: `participant.py PORT DATABASE SEED FAILURES`.

Every change is one SQL transaction with dtm's barrier row and a line of the ledger. With FAILURES
(a share of the calls) it refuses, breaks before or after its transaction, or dawdles.
"""

import http.server
import json
import os
import random
import sqlite3
import sys
import threading
import time
import urllib.parse

PORT, DATABASE, SEED, FAILURES = sys.argv[1:5]
FAILURES = float(FAILURES)
ORIGINS = {"cancel": "try", "compensate": "action"}
# What an operation does to an account: its share of the amount, and of what is frozen.
EFFECTS = {
    ("out", "action"): (-1, 0), ("out", "compensate"): (1, 0),
    ("in", "action"): (1, 0), ("in", "compensate"): (-1, 0),
    ("out", "try"): (-1, 1), ("out", "confirm"): (0, -1), ("out", "cancel"): (1, -1),
    ("in", "try"): (0, 0), ("in", "confirm"): (1, 0), ("in", "cancel"): (0, 0),
}
local = threading.local()
dice = random.Random(int(SEED))


def database():
    if not hasattr(local, "connection"):
        local.connection = sqlite3.connect(DATABASE, isolation_level=None, timeout=5)
        local.connection.execute("PRAGMA synchronous = NORMAL")
    return local.connection


def barrier(connection, kind, gid, branch, op, barrier_id="01", reason=None):
    """Whether a row could be put in."""
    sql = ("INSERT OR IGNORE INTO barrier (trans_type, gid, branch_id, op, barrier_id, reason) "
           "VALUES (?, ?, ?, ?, ?, ?)")
    return connection.execute(sql, (kind, gid, branch, op, barrier_id, reason or op)).rowcount > 0


def change(what, query, body):
    """Does what is asked once; the status to answer with."""
    gid, kind, branch, op = (query[name] for name in ("gid", "trans_type", "branch_id", "op"))
    order = json.loads(body)
    connection = database()
    connection.execute("BEGIN IMMEDIATE")
    try:
        origin = ORIGINS.get(op)
        is_null = origin and barrier(connection, kind, gid, branch, origin, reason=op)
        if not barrier(connection, kind, gid, branch, op) or is_null:
            connection.execute("COMMIT")
            return 200
        amount, frozen = (sign * order["amount"] for sign in EFFECTS[what, op])
        account = order["from" if what == "out" else "to"]
        floor = " AND amount >= ?2" if (what, op) in (("out", "action"), ("out", "try")) else ""
        done = connection.execute(
            f"UPDATE account SET amount = amount + ?1, frozen = frozen + ?4 WHERE id = ?3{floor}",
            (amount, order["amount"], account, frozen)).rowcount
        if not done:
            connection.execute("ROLLBACK")
            return 409
        connection.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)",
                           (gid, account, amount, frozen))
        connection.execute("COMMIT")
        return 200
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return 500


def asked(query):
    """What became of a message's own transaction: if it is not there, it never will be."""
    connection = database()
    try:
        barrier(connection, "msg", query["gid"], "00", "msg", reason="rollback")
        sql = "SELECT reason FROM barrier WHERE gid = ? AND branch_id = '00' AND op = 'msg'"
        (reason,), = connection.execute(sql, (query["gid"],)).fetchall()
    except sqlite3.Error:
        return 500
    return 409 if reason == "rollback" else 200


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        split = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(split.query))
        what, failure = split.path[1:], dice.random() / FAILURES if FAILURES else 9
        if failure < 0.2:
            status = 500
        elif failure < 0.5 and query["op"] in ("action", "try"):
            status = 409
        elif failure < 0.6:
            status = 425
        else:
            if failure < 0.7:
                time.sleep(1.2)
            status = asked(query) if what == "query" else change(what, query, body)
            if 0.7 < failure < 1:
                status = 500
        if 0.98 < failure < 1:
            os._exit(1)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """Who was called may have been killed, or given up."""

    request_queue_size = 256
    daemon_threads = True


Server(("127.0.0.1", int(PORT)), Handler).serve_forever()
