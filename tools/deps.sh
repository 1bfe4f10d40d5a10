#!/bin/sh
# Installs what calla is built and tested with, or says which line does it.
# usage: deps.sh [all]    all: also what only make test-all uses; where that is missing its tests are skipped
set -eu

debian="gcc make pkg-config libevent-dev libjson-c-dev libpcre2-dev libutf8proc-dev libzstd-dev libxxhash-dev \
libedit-dev libcurl4-openssl-dev libssl-dev libcmocka-dev zstd python3 python3-venv python3-jinja2"

optional="clang-14 libclang-rt-14-dev patch gcc-aarch64-linux-gnu qemu-user"

if [ "${1:-}" = all ] && command -v dpkg-query >/dev/null 2>&1; then
    missing=""
    for p in $optional; do
        dpkg-query -W -f='${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"
    done
    if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing for test-all:$missing"
        export DEBIAN_FRONTEND=noninteractive
        { apt-get update -qq
          # shellcheck disable=SC2086
          apt-get install -y -qq $missing >/dev/null; } || echo "not installed:$missing; fuzzing is skipped"
    elif [ -n "$missing" ]; then
        echo "optional, for fuzzing (Debian 12):  sudo apt-get install$missing"
    fi
fi

missing=""
if command -v dpkg-query >/dev/null 2>&1; then
    for p in $debian; do
        dpkg-query -W -f='${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"
    done
    [ -n "$missing" ] || exit 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing:$missing"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        # shellcheck disable=SC2086
        apt-get install -y -qq $missing >/dev/null
        exit 0
    fi
    echo "calla needs these packages, and only root can install them:"
    echo "  Debian 12:                  sudo apt-get install$missing"
    echo "  Debian 13 (unverified):     sudo apt-get install$missing"
    echo "  Ubuntu 24.04 (unverified):  sudo apt-get install$missing"
    exit 1
fi
for lib in libevent json-c libpcre2-8 libutf8proc libzstd libxxhash libedit libcurl openssl cmocka; do
    pkg-config --exists "$lib" 2>/dev/null || missing="$missing $lib"
done
[ -n "$missing" ] || exit 0
echo "calla needs these libraries:$missing"
echo "  Homebrew (unverified):  brew install pkg-config libevent json-c pcre2 utf8proc zstd xxhash libedit curl openssl cmocka"
exit 1
