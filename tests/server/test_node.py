#!/usr/bin/env python3
"""The OpenAI SDK for Node against the server.

usage: test_node.py BUILD"""
import shutil
from harness import *

FOLDER, N = "build/node-openai", 6

def main():
    if not shutil.which("node") or not shutil.which("npm"):
        print(f"skipped: no node or npm here\n0 passed, 0 failed, {N} skipped")
        return 0
    if not os.path.exists(f"{FOLDER}/node_modules/openai"):
        os.makedirs(FOLDER, exist_ok=True)
        r = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", FOLDER, "openai"], capture_output=True, text=True)
        if r.returncode:
            print(f"skipped: npm cannot install openai: {r.stderr[-300:]}\n0 passed, 0 failed, {N} skipped")
            return 0
    shutil.copy("tests/server/openai_node.mjs", f"{FOLDER}/test.mjs")
    script = ["why\n</think>\n\nHello." + END] * 2 + [WEATHER_CALL] * 2 + [{"text": "word " * 500, "decode_delay_ms": 20}]
    with Server(script=script) as s:
        r = subprocess.run(["node", f"{FOLDER}/test.mjs", s.url + "/v1"], capture_output=True, text=True, timeout=120)
        end = time.time() + 5
        while s.get("/health")[2]["n_running"]: assert time.time() < end, "the aborted stream still runs"
    print(r.stdout + r.stderr)
    return r.returncode

if __name__ == "__main__": sys.exit(main())
