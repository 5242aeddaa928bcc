#!/bin/sh
# Makes the virtual environment given as first argument (default .venv): the package in editable form, all its extras,
# the development tools. Run it through `make setup`, which calls it only when pyproject.toml changed.
# A Python of your choice: `make setup PYTHON=/path/to/python3.12`.
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.venv}

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# A name on PATH proves nothing (version managers put there names that only print an error): each one is tried.
find_python() {
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        if is_recent "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    echo "setup: no Python 3.11 or later (tried: ${PYTHON:-python3.13, python3.12, python3.11, python3})." >&2
    echo "setup: install one (Debian, Ubuntu: apt-get install python3 python3-venv), or name yours:" >&2
    echo "setup:     make setup PYTHON=/path/to/python3.12" >&2
    exit 1
}

started=$(date +%s)
if ! is_recent "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    echo "setup: 1/3 making $venv with $python ($("$python" --version))"
    rm -rf "$venv"
    if ! "$python" -m venv "$venv"; then
        rm -rf "$venv"
        echo "setup: $python cannot make a virtual environment." >&2
        echo "setup: on Debian and Ubuntu: apt-get install python3-venv; elsewhere, name another Python:" >&2
        echo "setup:     make setup PYTHON=/path/to/python3.12" >&2
        exit 1
    fi
else
    echo "setup: 1/3 $venv is there ($("$venv/bin/python" --version)); bringing it up to date"
fi

echo "setup: 2/3 pip"
"$venv/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'  # the first that reads [dependency-groups]

echo "setup: 3/3 the package, its extras and the tools (PySpark alone is 450 MB: a few minutes the first time)"
"$venv/bin/python" -m pip install --editable '.[all]' --group dev

touch "$venv/.installed"
echo "setup: done in $(($(date +%s) - started)) s"
