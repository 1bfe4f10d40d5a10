#!/usr/bin/env python3
"""Makes a virtual environment with PyPI packages once and says where its Python is.

usage: pyenv.py DIR PACKAGE ...        prints DIR/bin/python; as a module: python(dir, packages)
A changed list of packages makes it anew.  Tests and tools only: the program needs no Python."""
import os, shutil, subprocess, sys

def python(folder, packages):
    exe, mark = os.path.join(folder, "bin", "python"), os.path.join(folder, "packages.txt")
    want = "\n".join(packages) + "\n"
    if os.path.exists(exe) and os.path.exists(mark) and open(mark).read() == want: return exe
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([exe, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], check=True)
    open(mark, "w").write(want)
    return exe

if __name__ == "__main__": print(python(sys.argv[1], sys.argv[2:]))
