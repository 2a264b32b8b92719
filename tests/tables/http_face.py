#!/usr/bin/env python3
"""The table API over HTTP and RESP: shapes, changes, conditions, what every answer says of the
cache, and what is done with what makes no sense.

    tests/tables/http_face.py
"""

import gzip
import json
import sqlite3
import sys
import threading
import time

import face
from face import where

FOREBAY = face.Forebay(tables_cors="https://app.example")


def call(method, path, body=None, **headers):
    return FOREBAY.call(method, path, body, **headers)


def insert(row, **columns):
    answer = call("POST", "/tables/todo", {"id": row, **columns})
    assert answer.status == 201, answer.body
    return answer


def versions_are_demanded():
    for version, status in ((None, 400), ("1.0.0", 400), ("2.0.7", 200), ("3.0.0", 200)):
        answer = call("GET", "/tables/todo", zumo_api_version=version)
        assert answer.status == status, (version, answer.status)
    assert "ZUMO-API-VERSION" in call("GET", "/tables/todo", zumo_api_version="x").json()["error"]
    answer = call("GET", "/tables/todo?ZUMO-API-VERSION=2.0.0", zumo_api_version=None)
    assert answer.status == 200 and answer.headers["x-zumo-server-version"] == "node-3.0.0"


def a_row_lives_and_dies():
    made = insert("life", text="a \"row\" — é", rank=3, price=1.5, done=True, due="2026-01-02")
    row = made.json()
    assert row["due"] == "2026-01-02T00:00:00.000Z" and row["done"] is True and row["price"] == 1.5
    assert made.headers["etag"] == f'"{row["version"]}"'
    again = call("POST", "/tables/todo", {"id": "life", "text": "b"})
    assert again.status == 409 and again.json()["text"] == "b"
    patched = call("PATCH", "/tables/todo/life", {"rank": 4}, if_match=made.headers["etag"])
    assert patched.status == 200 and patched.json()["rank"] == 4
    late = call("PATCH", "/tables/todo/life", {"rank": 5}, if_match=made.headers["etag"])
    assert late.status == 412 and late.json()["rank"] == 4
    assert late.headers["etag"] == patched.headers["etag"]
    late = call("PATCH", "/tables/todo", {"id": "life", "rank": 5, "version": row["version"]})
    assert late.status == 409 and late.json()["rank"] == 4
    assert call("DELETE", "/tables/todo/life").json()["deleted"] is True
    assert call("GET", "/tables/todo/life").status == 404
    assert call("GET", "/tables/todo/life", zumo_api_version="3.0.0").status == 410
    assert call("GET", "/tables/todo/life?__includeDeleted=true").status == 200
    assert call("PATCH", "/tables/todo/life", {"rank": 5}).status == 404
    assert call("POST", "/tables/todo/life").json()["deleted"] is False
    assert call("GET", "/tables/todo/life").json()["rank"] == 4
    assert call("PATCH", "/tables/todo/nobody", {"rank": 5}).status == 404
    call("DELETE", "/tables/todo/life")


def numbers_are_given_to_rows_that_count():
    first, second = (call("POST", "/tables/counted", {"text": "x"}).json()["id"] for _ in range(2))
    assert isinstance(first, int) and second == first + 1
    assert call("GET", f"/tables/counted/{second}").json()["id"] == second
    assert call("GET", "/tables/counted/abc").status == 404
    assert call("DELETE", f"/tables/counted/{second}").status == 405


def lists_have_pages():
    for number in range(12):
        insert(f"page{number:02}", rank=100)
    address, seen = where("todo", filter="rank eq 100", top=11), []
    while address:
        answer = call("GET", address)
        seen += [row["id"] for row in answer.json()]
        link = answer.headers.get("link")
        address = link and link.split(">")[0].split(f":{FOREBAY.http}")[1]
    assert seen == [f"page{number:02}" for number in range(11)], seen
    counted = call("GET", where("todo", filter="rank eq 100", inlinecount="allpages", top=2))
    assert counted.json()["count"] == 12 and len(counted.json()["results"]) == 2
    three = call("GET", where("todo", filter="rank eq 100", count="true"), zumo_api_version="3.0.0")
    found = three.json()
    assert (len(found["items"]), found["count"], found["nextLink"]) == (5, 12, "$skip=5")
    columns = call("GET", where("todo", filter="rank eq 100", select="id,rank", top=1)).json()
    assert columns == [{"id": "page00", "rank": 100}]


def every_answer_says_what_it_is():
    insert("said", rank=200, text="x" * 2000)
    address = where("todo", filter="rank eq 200")
    miss = call("GET", address)
    assert miss.headers["x-cache"] == "MISS" and "stored" in miss.headers["cache-status"]
    assert "fwd=uri-miss; fwd-status=200" in miss.headers["cache-status"]
    assert "sql;dur=" in miss.headers["server-timing"]
    hit = call("GET", address)
    assert hit.headers["x-cache"] == "HIT" and hit.headers["age"] == "0"
    assert hit.headers["cache-status"].startswith("forebay; hit; ttl=") and hit.body == miss.body
    same = call("GET", address, if_none_match=hit.headers["etag"])
    assert same.status == 304 and same.body == b""
    for name in ("etag", "cache-control", "vary", "date"):
        assert same.headers[name], name
    head = call("HEAD", address)
    assert head.status == 200 and head.body == b""
    assert int(head.headers["content-length"]) == len(hit.body)
    packed = packed_soon(address, "gzip")
    assert gzip.decompress(packed.body) == hit.body
    assert packed.headers["etag"] != hit.headers["etag"]
    same = call("GET", address, if_none_match=packed.headers["etag"], accept_encoding="gzip")
    assert same.status == 304 and "content-encoding" not in same.headers
    changed = call("PATCH", "/tables/todo/said", {"text": "y"})
    stale = call("GET", address, if_none_match=hit.headers["etag"])
    assert stale.status == 200 and "fwd=stale" in stale.headers["cache-status"]
    assert stale.headers["x-table-version"] == changed.headers["x-table-version"]


def packed_soon(address, coding):
    """A body in a coding: made for those who come later once somebody has asked for it."""
    until = time.monotonic() + 30
    while True:
        packed = call("GET", address, accept_encoding=coding)
        if packed.headers.get("content-encoding") == coding:
            return packed
        assert "content-encoding" not in packed.headers and time.monotonic() < until
        time.sleep(0.01)


def requests_have_a_say():
    address = where("todo", filter="rank eq 300")
    assert call("GET", address, cache_control="only-if-cached").status == 504
    call("GET", address)
    assert call("GET", address, cache_control="only-if-cached").status == 200
    new = call("GET", address, cache_control="no-cache")
    assert "fwd=request" in new.headers["cache-status"] and "stored" in new.headers["cache-status"]
    assert call("GET", address, cache_control="no-store").headers["x-cache"] == "BYPASS"
    version = int(call("GET", address).headers["x-table-version"])
    good = call("GET", address, if_version_at_least=str(version))
    assert good.headers["x-cache"] == "HIT"
    assert call("GET", address, if_version_at_least=str(version + 1000)).status == 503


def lists_outlive_what_cannot_touch_them():
    insert("outlives", rank=800)
    address = where("todo", filter="rank eq 800")
    first = call("GET", address)
    before = FOREBAY.stats()["outlived"]
    for words in (("POST", "/tables/todo", {"id": "beside", "rank": 801}),
                  ("PATCH", "/tables/todo/beside", {"rank": 802})):
        version = call(*words).headers["x-table-version"]
        kept = call("GET", address, if_version_at_least=version)
        assert kept.headers["x-cache"] == "HIT" and kept.headers["x-table-version"] == version
        assert "forebay; hit" in kept.headers["cache-status"] and kept.body == first.body
        same = call("GET", address, if_none_match=first.headers["etag"])
        assert same.status == 304 and same.headers["x-table-version"] == version
    assert FOREBAY.stats()["outlived"] == before + 2
    call("PATCH", "/tables/todo/beside", {"rank": 800})
    assert call("GET", address).headers["x-cache"] == "MISS"


def tokens_are_looked_at():
    good = face.token("ann")
    assert call("GET", "/tables/mine").status == 401
    assert call("GET", "/tables/mine", x_zumo_auth=good).status == 200
    assert call("GET", "/tables/mine", authorization=f"Bearer {good}").status == 200
    for bad in ("x", good + "x", face.token("ann", secret="another"),
                face.token("ann", exp=time.time() - 3600), face.token("ann", aud="urn:other"),
                face.token("ann", iss="urn:other"), face.token("ann", header={"alg": "none"}),
                face.token("")):
        assert call("GET", "/tables/mine", x_zumo_auth=bad).status == 401, bad
        # A bad token is bad where none is needed, too.
        assert call("GET", "/tables/todo", x_zumo_auth=bad).status == 401, bad
    row = call("POST", "/tables/mine", {"text": "a", "owner": "bob"}, x_zumo_auth=good).json()
    assert row["owner"] == "ann"
    other = face.token("bob")
    assert call("GET", f"/tables/mine/{row['id']}", x_zumo_auth=good).status == 200
    assert call("GET", f"/tables/mine/{row['id']}", x_zumo_auth=other).status == 404
    patch = call("PATCH", f"/tables/mine/{row['id']}", {"text": "b"}, x_zumo_auth=other)
    assert patch.status == 404
    assert call("DELETE", f"/tables/mine/{row['id']}", x_zumo_auth=other).status == 404
    assert len(call("GET", "/tables/mine", x_zumo_auth=good).json()) == 1


def nonsense_is_named():
    for address, word in ((where("todo", filter="rank eq"), "position 7"),
                          (where("todo", filter="nope eq 1"), "\"nope\""),
                          (where("todo", filter="frob(text)"), "\"frob\""),
                          (where("todo", orderby="nope"), "\"nope\""),
                          (where("todo", select="nope"), "\"nope\""),
                          (where("todo", top=101), "more than 100"),
                          (where("todo", filter="(" * 100 + "done"), "levels deep"),
                          (where("todo", filter="x" * 9000), "8192 bytes")):
        answer = call("GET", address)
        assert answer.status == 400 and word in answer.json()["error"], answer.body
        assert answer.headers["content-type"] == "application/problem+json"
    assert "nope" in call("GET", "/tables/nope").json()["error"]
    bodies = (({"rank": "x"}, "rank"), ({"nope": 1}, "nope"), ({"deleted": True}, "deleted"))
    for body, column in bodies:
        answer = call("POST", "/tables/todo", body)
        assert answer.status == 400 and answer.json()["column"] == column, answer.body
    assert call("POST", "/tables/todo", "{").status == 400
    assert call("PUT", "/tables/todo/a", {}).status == 405


ATTACKS = (
    "'; DROP TABLE todo; --", "' OR '1'='1", "\"; DROP TABLE todo; --", "1; DELETE FROM todo",
    "\\'; DROP TABLE todo; --", "') UNION SELECT name FROM sqlite_master --", "`todo`", "$1", "?",
    "?1", ":a", "%27; DROP TABLE todo", "/* */", "x' AND sleep(9) --", "\u2019 OR 1=1",
)


def nothing_gets_into_sql():
    insert("kept", text="kept", rank=400)
    addresses = []
    for text in ATTACKS:
        quoted = text.replace("'", "''")
        addresses += [where("todo", **{name: text}) for name in
                      ("filter", "orderby", "select", "top", "skip", "inlinecount", "expand")]
        addresses += [where("todo", filter=f"text eq '{quoted}'"),
                      where("todo", filter=f"substringof('{quoted}',text)"),
                      where("todo", filter=f"replace(text,'{quoted}','{quoted}') eq 'x'")]
        addresses.append(f"/tables/{face.urllib.parse.quote(text, safe='')}")
        addresses.append(f"/tables/todo/{face.urllib.parse.quote(text, safe='')}")
        found = call("GET", where("todo", filter=f"text eq '{quoted}' or rank eq 400")).json()
        assert [row["id"] for row in found] == ["kept"], (text, found)
        body = call("POST", "/tables/todo", {"text": text, "rank": 401}).json()
        assert body["text"] == text
        assert call("POST", "/tables/todo", {text: 1}).status == 400
        call("PATCH", "/tables/todo/kept", {"text": "x"}, if_match=json.dumps(text))
        token = face.token(text)
        assert call("GET", "/tables/mine", x_zumo_auth=token).json() == []
    for address in addresses:
        status = call("GET", address).status
        assert status in (200, 400, 404), (address, status)
    with sqlite3.connect(FOREBAY.database) as sql:
        stored = sql.execute("SELECT COUNT(*) FROM todo WHERE rank = 401").fetchone()
        assert stored == (len(ATTACKS),), stored


def scripts_of_known_origins_may_call():
    preflight = call("OPTIONS", "/tables/todo", origin="https://app.example",
                     access_control_request_headers="zumo-api-version")
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert preflight.headers["access-control-allow-headers"] == "zumo-api-version"
    answer = call("GET", "/tables/todo", origin="https://app.example")
    assert "Link" in answer.headers["access-control-expose-headers"]
    other = call("GET", "/tables/todo", origin="https://evil.example")
    assert "access-control-allow-origin" not in other.headers


def answers_are_keys():
    call("GET", where("todo", filter="rank eq 500"))
    keys = FOREBAY.resp("KEYS", "cache:todo:*")
    assert b"cache:todo:2:q:f=(eq rank 500)" in keys, keys
    FOREBAY.resp("DEL", "cache:todo:2:q:f=(eq rank 500)")
    assert call("GET", where("todo", filter="rank eq 500")).headers["x-cache"] == "MISS"
    assert FOREBAY.resp("TABLE.GET", "todo", "$filter=rank eq 500") == b"[]"
    assert b"position 5" in FOREBAY.resp("TABLE.GET", "todo", "$filter=rank !")
    assert FOREBAY.resp("TABLE.PURGE", "todo") >= 1
    assert FOREBAY.resp("KEYS", "cache:todo:*") == []
    assert FOREBAY.stats()["mismatches"] == 0
    insert("in-multi")
    assert FOREBAY.resp("TABLE.GET", "nope").startswith(b"-ERR no such table")


def others_changes_are_seen_within_the_bound():
    insert("foreign", rank=600, text="before")
    address = where("todo", filter="rank eq 600")
    call("GET", address)
    assert call("GET", address).headers["x-cache"] == "HIT"
    with sqlite3.connect(FOREBAY.database) as sql:
        sql.execute("UPDATE todo SET text = 'after' WHERE id = 'foreign'")
    # The bound is 50 ms; a busy machine may be late.
    until = time.monotonic() + 30
    while call("GET", address).json()[0]["text"] != "after":
        assert time.monotonic() < until, "it is not seen"
        time.sleep(0.01)


def a_change_that_waits_holds_up_nobody_else():
    insert("held", rank=700, text="before")
    address = where("todo", filter="rank eq 700")
    # Quick ones first: then the thread of the connection makes changes itself.
    for number in range(20):
        assert call("PATCH", "/tables/todo/held", {"text": str(number)}).status == 200
    call("GET", address)
    with sqlite3.connect(FOREBAY.database, isolation_level=None) as sql:
        sql.execute("BEGIN IMMEDIATE")
        changes = [threading.Thread(target=lambda: statuses.append(
            call("PATCH", "/tables/todo/held", {"text": "after"}).status)) for _ in range(4)]
        statuses = []
        for change in changes:
            change.start()
        # On every thread of the server, while the changes cannot go on.
        for _ in range(20):
            assert call("GET", address).headers["x-cache"] == "HIT"
        sql.execute("ROLLBACK")
    for change in changes:
        change.join()
    assert statuses == [200] * 4, statuses
    assert call("GET", address).json()[0]["text"] == "after"


def a_dynamic_table_grows_by_what_it_is_sent():
    first = call("POST", "/tables/open", {"id": "a", "text": "x"})
    assert first.status == 201 and "colour" not in first.json()
    for _ in range(2):
        assert "colour" not in call("GET", "/tables/open").json()[0]
        assert call("GET", "/tables/open/a").status == 200
    sent = {"id": "b", "colour": "red", "weight": 2.5, "good": True}
    made = call("POST", "/tables/open", sent)
    assert made.status == 201 and made.json().items() >= sent.items(), made.body
    # What was kept before has the new members, too.
    assert call("GET", "/tables/open/a").json()["colour"] is None
    assert [row["colour"] for row in call("GET", "/tables/open").json()] == [None, "red"]
    found = call("GET", where("open", filter="colour eq 'red' and weight gt 2 and good")).json()
    assert [row["id"] for row in found] == ["b"]
    changed = call("PATCH", "/tables/open/a", {"size": 7})
    assert changed.status == 200 and changed.json()["size"] == 7
    for body, status in (({"id": "c", "no name": 1}, 400), ({"id": "c", "a\"b": 1}, 400),
                         ({"id": "c", "list": [1]}, 400), ({"id": "c", "Colour": "x"}, 400)):
        answer = call("POST", "/tables/open", body)
        assert answer.status == status, (body, answer.body)
    assert call("POST", "/tables/todo", {"id": "c", "colour": "red"}).status == 400
    FOREBAY.server.stop()
    FOREBAY.start()
    assert call("GET", where("open", filter="size eq 7")).json()[0]["id"] == "a"


def the_document_has_every_table():
    document = call("GET", "/tables/openapi.json").json()
    assert set(document["components"]["schemas"]) == set(face.TABLES["tables"])
    assert "/tables/todo/{id}" in document["paths"]


CASES = [
    versions_are_demanded, a_row_lives_and_dies, numbers_are_given_to_rows_that_count,
    lists_have_pages, every_answer_says_what_it_is, requests_have_a_say,
    lists_outlive_what_cannot_touch_them, tokens_are_looked_at,
    nonsense_is_named, nothing_gets_into_sql, scripts_of_known_origins_may_call, answers_are_keys,
    others_changes_are_seen_within_the_bound, a_change_that_waits_holds_up_nobody_else,
    a_dynamic_table_grows_by_what_it_is_sent,
    the_document_has_every_table,
]

if __name__ == "__main__":
    with FOREBAY:
        sys.exit(1 if face.run(CASES) else 0)
