#!/usr/bin/env bash
# Makes a machine ready to build: installs the Debian packages that are missing and brings .venv to
# requirements.lock. Does nothing that is already done. PYTHON names the interpreter (default python3).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=.venv

missing=()
command -v g++ >/dev/null || missing+=(g++)
command -v "$python" >/dev/null || missing+=(python3)
[ -e /usr/include/gtest/gtest.h ] || missing+=(libgtest-dev)
if command -v "$python" >/dev/null; then
  "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  "$python" -c 'import os, sysconfig
raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    missing+=(python3-dev)
else
  missing+=(python3-venv python3-dev)
fi
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "setup: please install these Debian packages (or their like): ${missing[*]}" >&2
    exit 1
  fi
  echo "setup: installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

if ! "$python" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))'; then
  echo "setup: Python 3.11 or newer is needed; $python is $("$python" -V). Set PYTHON=…" >&2
  exit 1
fi
[ -x $venv/bin/python ] || "$python" -m venv $venv
echo "setup: Python packages of requirements.lock"
$venv/bin/python -m pip install -qq --disable-pip-version-check -r requirements.lock
