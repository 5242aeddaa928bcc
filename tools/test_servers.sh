#!/usr/bin/env bash
# Sees to it that what the tests need from Debian is there: RabbitMQ and amqp-tools to compare with, a browser, and
# the tutorial of Channels.
# Installs what is missing when run by root on a machine with apt-get; otherwise says what will be skipped, and why.
# It leaves no service running that did not run before: each test starts a node of its own.
set -u

policy=/usr/sbin/policy-rc.d
own_policy=

port_in_use() {
    (exec 3<>/dev/tcp/127.0.0.1/5672) 2>/dev/null
}

have_rabbitmq() { [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || command -v rabbitmq-server >/dev/null 2>&1; }
have_amqp_tools() { command -v amqp-publish >/dev/null 2>&1 && command -v amqp-consume >/dev/null 2>&1; }

have_chromium() { command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1; }
have_tutorial() { command -v chromedriver >/dev/null 2>&1 && [ -d /usr/share/doc/python-django-channels-doc/html ]; }

install() {
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@" </dev/null
}

forget_policy() {
    if [ -n "$own_policy" ]; then
        rm -f "$policy"
        own_policy=
    fi
}

missing=
have_rabbitmq || missing="$missing rabbitmq-server"
have_amqp_tools || missing="$missing amqp-tools"
have_chromium || missing="$missing chromium"
have_tutorial || missing="$missing chromium-driver python-django-channels-doc"

if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "test servers: installing$missing with apt-get"
    port_in_use && was_in_use=yes || was_in_use=no
    # The package would start a broker on port 5672 and enable it. A policy that says no keeps it from that.
    if [ ! -e "$policy" ]; then
        trap forget_policy EXIT
        trap 'exit 130' INT TERM
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        own_policy=yes
    fi
    # shellcheck disable=SC2086  # a list of packages
    install $missing || { apt-get update && install $missing; } || echo "test servers: apt-get failed, see above"
    forget_policy
    if [ "$was_in_use" = no ] && port_in_use; then
        echo "test servers: stopping the RabbitMQ service that the installation started"
        service rabbitmq-server stop || rabbitmqctl stop
    fi
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
if have_tutorial; then
    echo "test servers: the tutorial of Channels and a driver for the browser are there"
else
    echo "test servers: NO chromedriver or python-django-channels-doc: the tutorial of Channels will be SKIPPED."
    echo "test servers:   remedy: apt-get install chromium-driver python-django-channels-doc, or make test as root"
fi
exit 0
