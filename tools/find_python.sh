#!/bin/sh
# Prints the path of a Python of the given version, from PATH or pyenv's folder: tools/find_python.sh 3.12
# The exit status is 1, and nothing is printed, where this machine has none.
for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python python3; do
    # A name on PATH proves nothing: version managers put there names that only print an error.
    if [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$1" ]; then
        command -v "$candidate"
        exit
    fi
done
exit 1
