#!/bin/sh
# Builds checkkernels for aarch64 and runs it under qemu's user mode.
# usage: aarch64.sh BUILD [checkkernels' arguments]
set -eu

out=$1/aarch64
shift
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v "$tool" >/dev/null && continue
    echo "aarch64: skipped, there is no $tool (Debian: gcc-aarch64-linux-gnu qemu-user)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
done
make -s -j2 VARIANT=release CC=aarch64-linux-gnu-gcc O="$out" PKGFLAGS= "$out/checkkernels-alone"
exec qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu max "$out/checkkernels-alone" "$@"
