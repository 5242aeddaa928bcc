#!/usr/bin/env bash
# Runs tests on every supported Python that this machine has, each in a virtual environment of its own: .venvs/3.12, ...
#
#     tools/pythons.sh                        all tests but Spark's and the repository's own, without RabbitMQ
#     tools/pythons.sh tests/routing -x       these, with pytest's options
#     tools/pythons.sh --quick                some of them, in a minute on the newest Python that there is
#     PYTHONS="3.13 3.14" tools/pythons.sh    on these only; one that is missing is then an error
#     WITHOUT=3.11 tools/pythons.sh           not on this one
#
# A Python is looked for on PATH and in pyenv's folder. What was run, and which Python is missing, is said at the end.
# PROCESSES is how many run at once, as many as there are cores otherwise.
set -uo pipefail
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE  # as in the Makefile
wanted=${PYTHONS:-}
versions=${wanted:-3.11 3.12 3.13 3.14}
tests=("$@")
quick=
if [ "${1:-}" = --quick ]; then
    quick=yes
    versions=${wanted:-3.14 3.13 3.12 3.11}
    tests=(tests/protocol tests/routing tests/broker/queues tests/broker/operations tests/client/core
        tests/client/recovery tests/client/patterns --hypothesis-profile quick)
fi
if [ ${#tests[@]} -eq 0 ]; then
    # All but what needs Spark, or the tools of the development group.
    tests=(tests)
    for folder in spark cli/spark cli/flights docs examples repository tools typing; do
        tests+=(--ignore "tests/$folder")
    done
fi

failed=0
said=()
for version in $versions; do
    [ "$version" != "${WITHOUT:-}" ] || continue
    if ! python=$(tools/find_python.sh "$version"); then
        said+=("$version: not on this machine")
        [ -z "$wanted" ] || failed=1
        continue
    fi
    venv=.venvs/$version
    stamp=$venv/.installed
    if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
        echo "pythons: $version: $venv with $python"
        if ! { [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"; } ||
            ! "$venv/bin/python" -m pip install --quiet --upgrade 'pip>=25.1' ||
            ! "$venv/bin/python" -m pip install --quiet --editable '.[server,channels,otel,speed]' --group test; then
            said+=("$version: the environment could not be made")
            failed=1
            continue
        fi
        touch "$stamp"
    fi
    echo "pythons: $version: $("$venv/bin/python" -VV): pytest ${tests[*]}"
    log=$(mktemp)
    "$venv/bin/python" -m pytest -q -p no:cacheprovider -n "${PROCESSES:-logical}" --dist worksteal \
        -m "not spark and not rabbitmq and not slow" "${tests[@]}" | tee "$log"
    [ "${PIPESTATUS[0]}" -eq 0 ] || failed=1
    said+=("$("$venv/bin/python" -V): $(tail -n 1 "$log")")
    rm -f "$log"
    [ -z "$quick" ] || break
done
printf 'pythons: %s\n' "${said[@]}"
exit $failed
