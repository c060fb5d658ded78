#!/bin/sh
# Prometheus's own promtool tries the alarms. 77: there is none. Arguments: a folder where there may be one.
PATH="$PATH:$1"
command -v promtool >/dev/null || { echo "there is no promtool"; exit 77; }
cd "$(dirname "$0")" && promtool check rules ../../examples/server/alerts.yml && promtool test rules alerts_test.yml
