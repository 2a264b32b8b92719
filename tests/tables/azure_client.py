#!/usr/bin/env python3
"""The Azure Mobile Apps JavaScript client of npm against a server with tables: starts one and runs
tests/node/azure_client.test.js, which ./test installs the package for.

    tests/tables/azure_client.py
"""

import os
import pathlib
import subprocess
import sys

import face

TEST = pathlib.Path(__file__).resolve().parents[1] / "node" / "azure_client.test.js"
SECONDS_MAX = 300


def main():
    with face.Forebay() as forebay:
        environment = os.environ | {
            "FOREBAY_TABLES": f"http://127.0.0.1:{forebay.http}",
            "FOREBAY_TOKENS": " ".join(face.token(user) for user in ("ann", "bob")),
        }
        done = subprocess.run(["node", "--test", "--test-reporter=spec", str(TEST)],
                              env=environment, timeout=SECONDS_MAX)
        hits = forebay.stats()["hits"]
    print(f"{hits} hits")
    return done.returncode or int(hits == 0)


if __name__ == "__main__":
    sys.exit(main())
