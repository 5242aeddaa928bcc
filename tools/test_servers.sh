#!/usr/bin/env bash
# Sees to it that what the tests need from Debian is there: RabbitMQ and amqp-tools to compare with, a browser,
# the tutorial of Channels, Prometheus, and PostgreSQL.
# Installs what is missing when run by root on a machine with apt-get; otherwise says what will be skipped, and why.
# It leaves no service running that did not run before: each test starts a node of its own.
# Of the two RabbitMQs that the tests compare with, the one that this machine does not have comes from another release
# of Debian, made once in a folder below $cache; it needs 250 MB and half a minute.
set -u

cache=${HAREBELL_TEST_CACHE:-/var/cache/harebell-test}
# tests/fixtures/rabbitmq.py has the same table.
releases="3.10=bookworm 4.0=trixie"

policy=/usr/sbin/policy-rc.d
own_policy=
fresh=
trap tidy EXIT
trap 'exit 130' INT TERM

port_in_use() {
    (exec 3<>/dev/tcp/127.0.0.1/5672) 2>/dev/null
}

have_rabbitmq() { [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || command -v rabbitmq-server >/dev/null 2>&1; }
# Whether the system in folder $1 (nothing: this machine) has RabbitMQ $2.
has_version() {
    for found in "$1"/usr/lib/rabbitmq/lib/rabbitmq_server-"$2".*; do
        [ -d "$found" ] && return 0
    done
    return 1
}
have_amqp_tools() { command -v amqp-publish >/dev/null 2>&1 && command -v amqp-consume >/dev/null 2>&1; }

have_chromium() { command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1; }
have_prometheus() { command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1; }
have_postgres() {
    for found in /usr/lib/postgresql/*/bin/initdb; do
        [ -x "$found" ] && return 0
    done
    command -v initdb >/dev/null 2>&1
}
have_tutorial() { command -v chromedriver >/dev/null 2>&1 && [ -d /usr/share/doc/python-django-channels-doc/html ]; }

install() {
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@" </dev/null
}

tidy() {
    forget_policy
    [ -z "$fresh" ] || rm -rf --one-file-system "$fresh"
}

forget_policy() {
    if [ -n "$own_policy" ]; then
        rm -f "$policy"
        own_policy=
    fi
}

# Where apt gets this machine's Debian from. Nothing on a machine with another distribution's packages.
debian_mirror() {
    # shellcheck disable=SC2016  # the names are apt's
    apt-get indextargets --format '$(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 == "main" { print $3; exit }'
}

# Makes a system of the Debian release $2 with RabbitMQ $1 in the cache.
make_release() {
    target=$cache/rabbitmq-$1
    command -v mmdebstrap >/dev/null 2>&1 || install mmdebstrap || { apt-get update && install mmdebstrap; } || return 1
    mirror=$(debian_mirror)
    [ -n "$mirror" ] || { apt-get update && mirror=$(debian_mirror); }
    if [ -z "$mirror" ]; then
        echo "test servers: none of apt's sources is Debian's, so there is no mirror to get Debian's $2 from"
        return 1
    fi
    echo "test servers: making a Debian $2 with RabbitMQ $1 in $target, from $mirror"
    mkdir -p "$cache" || return 1
    fresh=$(mktemp -d "$cache/making.XXXXXX") || return 1
    if mmdebstrap --quiet --variant=minbase --include=rabbitmq-server "$2" "$fresh/root" "$mirror" </dev/null &&
        has_version "$fresh/root" "$1"; then
        # Another run may have put its own there meanwhile: nodes may use it already, so that one stays.
        has_version "$target" "$1" || { rm -rf --one-file-system "$target" && mv -T "$fresh/root" "$target"; }
    fi
    rm -rf --one-file-system "$fresh"
    fresh=
    has_version "$target" "$1"
}

missing=
have_rabbitmq || missing="$missing rabbitmq-server"
have_amqp_tools || missing="$missing amqp-tools"
have_chromium || missing="$missing chromium"
have_tutorial || missing="$missing chromium-driver python-django-channels-doc"
have_prometheus || missing="$missing prometheus"
have_postgres || missing="$missing postgresql"

if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "test servers: installing$missing with apt-get"
    port_in_use && was_in_use=yes || was_in_use=no
    # The package would start a broker on port 5672 and enable it. A policy that says no keeps it from that.
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        own_policy=yes
    fi
    # Nor is a cluster of PostgreSQL made, which the next start of this machine would run.
    if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
        mkdir -p /etc/postgresql-common && echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    fi
    # shellcheck disable=SC2086  # a list of packages
    install --option Dpkg::Options::=--force-confold $missing || { apt-get update && install --option Dpkg::Options::=--force-confold $missing; } || echo "test servers: apt-get failed, see above"
    forget_policy
    if [ "$was_in_use" = no ] && port_in_use; then
        echo "test servers: stopping the RabbitMQ service that the installation started"
        service rabbitmq-server stop || rabbitmqctl stop
    fi
fi

for entry in $releases; do
    version=${entry%=*} release=${entry#*=}
    has_version "" "$version" && { echo "test servers: RabbitMQ $version is this machine's"; continue; }
    if ! has_version "$cache/rabbitmq-$version" "$version" && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        make_release "$version" "$release" || echo "test servers: making it failed, see above"
    fi
    if ! has_version "$cache/rabbitmq-$version" "$version"; then
        echo "test servers: NO RabbitMQ $version: the tests that compare with it will be SKIPPED."
        echo "test servers:   remedy: run make test as root on a Debian, which makes $cache/rabbitmq-$version"
    elif ! { [ "$(id -u)" = 0 ] && unshare --mount true || unshare --mount --map-root-user true; } 2>/dev/null; then
        echo "test servers: RabbitMQ $version is in $cache, but mount namespaces are refused here: its tests will be SKIPPED."
        echo "test servers:   remedy: run make test as root, in a container with CAP_SYS_ADMIN"
    else
        echo "test servers: RabbitMQ $version is in $cache/rabbitmq-$version"
    fi
done
# Asgiref 1 and Daphne 1, for the layer of ASGI 1: they cannot be installed beside the versions of today.
if [ ! -e "$cache/asgi1/asgiref" ] && [ -x .venv/bin/python ] && mkdir -p "$cache" 2>/dev/null; then
    .venv/bin/python -m pip install --quiet --no-deps --target "$cache/asgi1.new" asgiref==1.1.2 daphne==1.4.2 six &&
        mv -T "$cache/asgi1.new" "$cache/asgi1"
fi
if [ -e "$cache/asgi1/asgiref" ]; then
    echo "test servers: asgiref 1 and Daphne 1 are in $cache/asgi1"
else
    echo "test servers: NO asgiref 1: the conformance tests of ASGI 1 will be SKIPPED."
    echo "test servers:   remedy: run make test where pip reaches PyPI, as root"
fi
# Django 6 with its tests, on a Python that it takes.
make_django6() {
    for candidate in python3.13 python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[23].*/bin/python; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1 || continue
        "$candidate" -m venv "$cache/django6.new" &&
            "$cache/django6.new/bin/python" -m pip install --quiet 'Django>=6.0,<6.1' &&
            version=$("$cache/django6.new/bin/python" -c 'import django; print(django.__version__)') &&
            "$cache/django6.new/bin/python" -m pip download --quiet --no-deps --no-binary :all: "Django==$version" \
                -d "$cache/django6.new/source" &&
            tar -xzf "$cache"/django6.new/source/*.tar.gz -C "$cache/django6.new/source" &&
            mv "$cache"/django6.new/source/*/tests "$cache/django6.new/tests" &&
            rm -rf "$cache/django6.new/source" && rm -rf "$cache/django6" &&
            mv -T "$cache/django6.new" "$cache/django6" && return
        rm -rf "$cache/django6.new"
    done
    return 1
}
if [ ! -e "$cache/django6/tests" ] && mkdir -p "$cache" 2>/dev/null; then
    make_django6 || echo "test servers: Django 6 could not be installed"
fi
if [ -e "$cache/django6/tests" ]; then
    echo "test servers: Django 6 is in $cache/django6"
else
    echo "test servers: NO Django 6: its own tests of task backends will be SKIPPED."
    echo "test servers:   remedy: run make test as root with a Python 3.12 on PATH or in pyenv's folder"
fi
if have_rabbitmq; then
    echo "test servers: RabbitMQ is there"
else
    echo "test servers: NO RabbitMQ: the tests marked rabbitmq (differential, fixtures) will be SKIPPED."
    echo "test servers:   remedy: apt-get install rabbitmq-server, or run make test as root"
fi
if have_amqp_tools; then
    echo "test servers: amqp-tools are there"
else
    echo "test servers: NO amqp-tools: the tests with amqp-publish and amqp-consume will be SKIPPED."
    echo "test servers:   remedy: apt-get install amqp-tools, or run make test as root"
fi
if have_chromium; then
    echo "test servers: Chromium is there"
else
    echo "test servers: NO Chromium: the chat example's test in a browser will be SKIPPED."
    echo "test servers:   remedy: apt-get install chromium, or run make test as root"
fi
if have_prometheus; then
    echo "test servers: Prometheus is there"
else
    echo "test servers: NO Prometheus: the tests of the alert rules and the dashboard will be SKIPPED."
    echo "test servers:   remedy: apt-get install prometheus, or run make test as root"
fi
if have_postgres; then
    echo "test servers: PostgreSQL is there"
else
    echo "test servers: NO PostgreSQL: the tests of the outbox in it will be SKIPPED."
    echo "test servers:   remedy: apt-get install postgresql, or run make test as root"
fi
if have_tutorial; then
    echo "test servers: the tutorial of Channels and a driver for the browser are there"
else
    echo "test servers: NO chromedriver or python-django-channels-doc: the tutorial of Channels will be SKIPPED."
    echo "test servers:   remedy: apt-get install chromium-driver python-django-channels-doc, or make test as root"
fi
exit 0
