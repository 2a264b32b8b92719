#!/usr/bin/env python3
"""The seven bugs of the cache article's recipe (seed 001): each has a case that the recipe fails,
with a real redis-server, and Forebay passes.

    tests/tables/seven_bugs.py

The recipe: the key is JSON.stringify(originalUrl), the value JSON.stringify(result), kept by SETEX
for six hours; any error of Redis rejects, and so does any error of SQL, with nothing in it. What it
stands in front of is a model of the SDK: rows as an array whose total is a property of the array,
a filter for the caller's rows, and SQL over the same file.

Invariant: exits with 0 only if Forebay passes all seven and the recipe fails all seven.
"""

import http.server
import json
import shutil
import sqlite3
import sys
import threading
import time
import urllib.parse

import face
from face import call, where

REDIS = shutil.which("redis-server")
SIX_HOURS = 21600


class Rows(list):
    """JavaScript's array with a property that JSON.stringify leaves out."""

    total = None


class Recipe:
    """The recipe's mid-tier."""

    def __init__(self, database):
        self.database, self.queries, self.delay = database, 0, 0
        self.redis = face.harness.Server(binary=REDIS)
        recipe = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802: the library's name
                status, body = recipe.get(self.path, self.headers.get("x-zumo-auth"))
                self.reply(status, body)

            def do_PATCH(self):  # noqa: N802
                length = int(self.headers["content-length"])
                sets = json.loads(self.rfile.read(length))
                with sqlite3.connect(recipe.database) as sql:
                    row = self.path.rsplit("/", 1)[1]
                    sql.execute("UPDATE todo SET text = ? WHERE id = ?", (sets["text"], row))
                self.reply(200, "{}")

            def reply(self, status, body):
                self.send_response(status)
                self.send_header("content-length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        self.web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http = self.web.server_address[1]

    def __enter__(self):
        self.redis.start()
        threading.Thread(target=self.web.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.web.shutdown()
        self.redis.stop()
        self.redis.remove_folder()

    def get(self, url, user):
        key = json.dumps(url)
        try:
            kept = face.resp(self.redis.port, "GET", key)
        except OSError as error:
            return 500, json.dumps({"error": str(error)})
        if kept is not None:
            return 200, kept.decode()
        try:
            result = self.sdk(url, user)
        except sqlite3.Error:
            # reject(null), next(null), and renderResults finds no result.
            return 404, json.dumps({"error": "The item does not exist"})
        face.resp(self.redis.port, "SETEX", key, SIX_HOURS, json.dumps(result))
        if result.total is not None:
            return 200, json.dumps({"results": result, "count": result.total})
        return 200, json.dumps(result)

    def sdk(self, url, user):
        self.queries += 1
        time.sleep(self.delay)
        address = urllib.parse.urlsplit(url)
        table = address.path.rsplit("/", 1)[1]
        asked = dict(urllib.parse.parse_qsl(address.query))
        with sqlite3.connect(self.database) as sql:
            if table == "mine":
                found = sql.execute("SELECT id, text FROM mine WHERE owner = ?", (user,))
            else:
                # Of all filters only "rank eq N" is asked here.
                rank = int(asked.get("$filter", "rank eq 1").rsplit(" ", 1)[1])
                found = sql.execute("SELECT id, text FROM todo WHERE rank = ?", (rank,))
            rows = Rows({"id": row[0], "text": row[1]} for row in found)
        if asked.get("$inlinecount") == "allpages":
            rows.total = len(rows)
        return rows

    def break_cache(self):
        self.redis.stop()

    def expire(self):
        face.resp(self.redis.port, "FLUSHALL")

    def user(self, name):
        return name


class Ours(face.Forebay):
    """Forebay with what the cases need of both arms."""

    delay = 0

    @property
    def queries(self):
        return self.stats()["fills"]

    def break_cache(self):
        self.resp("CONFIG", "SET", "maxmemory", "1")

    def expire(self):
        self.resp("TABLE.PURGE", "todo")

    def user(self, name):
        return face.token(name)


def texts(answer):
    found = answer.json()
    assert isinstance(found, list), f"no list: {found}"
    return [row["text"] for row in found]


def the_total_is_there_on_a_hit_too(arm):
    address = where("todo", filter="rank eq 1", inlinecount="allpages")
    first, second = (call(arm.http, "GET", address).json() for _ in range(2))
    assert first == second and first["count"] == 1, f"{first} and then {second}"


def rows_are_not_served_to_others(arm):
    for name in ("ann", "bob"):
        found = texts(call(arm.http, "GET", "/tables/mine", x_zumo_auth=arm.user(name)))
        assert found == [name], f"{name} got {found}"


def one_question_is_one_key(arm):
    before = arm.queries
    for address in ("/tables/todo?$filter=rank%20eq%202&$top=5",
                    "/tables/todo?$top=5&$filter=rank%20eq%202",
                    "/tables/todo?$top=5&$filter=rank+eq+2",
                    "/tables/todo?%24top=5&%24filter=rank%20eq%202"):
        assert call(arm.http, "GET", address).status == 200
    assert arm.queries == before + 1, f"{arm.queries - before} queries for one question"


def a_change_is_seen(arm):
    address = where("todo", filter="rank eq 1")
    before = texts(call(arm.http, "GET", address))
    text = before[0] + "!"
    assert call(arm.http, "PATCH", "/tables/todo/one", {"text": text}).status == 200
    after = texts(call(arm.http, "GET", address))
    assert after == [text], f"{after} after {text} was stored"


def an_expiry_is_one_query(arm):
    address = where("todo", filter="rank eq 1")
    call(arm.http, "GET", address)
    arm.expire()
    before, arm.delay = arm.queries, 0.05
    clients = [threading.Thread(target=call, args=(arm.http, "GET", address)) for _ in range(100)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    arm.delay = 0
    assert arm.queries == before + 1, f"{arm.queries - before} queries for one expiry"


def a_failing_database_is_an_error(arm):
    with sqlite3.connect(arm.database) as sql:
        sql.execute("ALTER TABLE todo RENAME TO elsewhere")
    try:
        status = call(arm.http, "GET", where("todo", filter="rank eq 77")).status
    finally:
        with sqlite3.connect(arm.database) as sql:
            sql.execute("ALTER TABLE elsewhere RENAME TO todo")
    assert status in (500, 503), f"{status} though SQL failed"


def a_failing_cache_fails_nothing(arm):
    arm.break_cache()
    status = call(arm.http, "GET", where("todo", filter="rank eq 1", top="3")).status
    assert status == 200, f"{status} though SQL is up"


# The last two change the arm for good.
CASES = [
    the_total_is_there_on_a_hit_too, rows_are_not_served_to_others, one_question_is_one_key,
    a_change_is_seen, an_expiry_is_one_query, a_failing_database_is_an_error,
    a_failing_cache_fails_nothing,
]


def fill(ours):
    for row, rank in (("one", 1), ("two", 2)):
        ours.call("POST", "/tables/todo", {"id": row, "text": row, "rank": rank})
    for name in ("ann", "bob"):
        ours.call("POST", "/tables/mine", {"text": name}, x_zumo_auth=face.token(name))


def main():
    if REDIS is None:
        raise SystemExit("redis-server is not installed: the recipe cannot be run")
    wrong = 0
    with Ours() as ours, Recipe(ours.database) as recipe:
        fill(ours)
        for case in CASES:
            said = []
            for arm in (recipe, ours):
                try:
                    case(arm)
                    said.append("passes")
                except AssertionError as error:
                    said.append(f"fails: {error}")
            is_right = said[0] != "passes" and said[1] == "passes"
            wrong += not is_right
            print(f"{'ok    ' if is_right else 'FAILED'}  {case.__name__}\n"
                  f"        recipe {said[0]}\n        Forebay {said[1]}")
    print(f"{len(CASES) - wrong} passed, {wrong} failed")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
