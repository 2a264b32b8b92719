"""schemathesis against the OpenAPI document of metered ingest: no undocumented answer.

    tests/quota/schema.py [PATH OF SCHEMATHESIS]

Runs it twice, each time for a bounded number of cases: with the root key, and with an API key that
has every scope. The organisation in paths is one that exists.

One check of schemathesis is left out: that whatever fits the schemas is accepted. Time zones, URLs
and moments have rules that a JSON schema does not say, and one idempotency key with two contents is
refused by design.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import invariants  # noqa: E402

ROOT = "fbroot_test"
SECONDS_MAX = 60
EXAMPLES = 10


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "schemathesis"
    with tempfile.TemporaryDirectory() as folder:
        server = invariants.Forebay(folder, "group")
        server.more = ["--quota-root-key", ROOT]
        server.start()
        try:
            return sum(run(program, server, folder, key) for key in keys(server))
        finally:
            server.kill()


def keys(server):
    server.call("PUT", "/v1/orgs/acme/quota", {"limit": 1 << 40}, ROOT)
    scopes = {"scopes": ["ingest", "read", "manage"]}
    status, key, _ = server.call("POST", "/v1/orgs/acme/keys", scopes, ROOT)
    assert status == 201, key
    return [("the root key", ROOT), ("an API key", key["secret"])]


def run(program, server, folder, key):
    name, secret = key
    config = pathlib.Path(folder) / "schemathesis.toml"
    config.write_text('[parameters]\n"path.org" = "acme"\n')
    command = [
        program, "--config-file", str(config), "run",
        f"http://127.0.0.1:{server.http}/openapi.json",
        "-H", f"Authorization: Bearer {secret}", "--phases", "examples,coverage,fuzzing",
        "--exclude-checks", "positive_data_acceptance",
        "--max-examples", str(EXAMPLES), "--max-time", str(SECONDS_MAX // 2), "--seed", "1",
    ]
    print(f"schemathesis with {name}", flush=True)
    environment = {**os.environ, "NO_COLOR": "1", "HYPOTHESIS_STORAGE_DIRECTORY": folder}
    return subprocess.run(command, cwd=folder, env=environment).returncode != 0


if __name__ == "__main__":
    failed = main()
    print(f"{2 - failed} passed, {failed} failed")
    sys.exit(failed > 0)
