# The service of systemd: what systemd-analyze says about it, and that it waits longer than the server drains.
#   sh tests/server/unit.sh PREFIX   where kaiju was installed
# Exits with 77, which CTest counts as skipped, where systemd-analyze is not installed.
set -eu
if ! command -v systemd-analyze >/dev/null; then
  echo "skipped: no systemd-analyze (package systemd)"
  exit 77
fi
prefix=$1
unit=$prefix/lib/systemd/system/kaiju-server.service
server=$prefix/bin/kaiju-server

grep -q "^ExecStart=$server " "$unit" || { grep ExecStart "$unit"; echo "ExecStart does not start $server"; exit 1; }
if grep '@[A-Z]*@' "$unit"; then echo "something was not substituted"; exit 1; fi
# It says nothing where nothing is wrong; misspelt settings are warnings with exit code 0.
said=$(systemd-analyze verify --man=no --recursive-errors=no "$unit" 2>&1) || { echo "$said"; exit 1; }
if [ -n "$said" ]; then echo "$said"; exit 1; fi
# 0.0 is safe, 10.0 open; a service that says nothing has 9.6. The server's way to clients is what is left.
systemd-analyze security --offline=yes --no-pager "$unit" | tail -n 1
systemd-analyze security --offline=yes --threshold=20 --no-pager "$unit" >/dev/null

stop=$(sed -n 's/^TimeoutStopSec=//p' "$unit")
drain=$("$server" --help | sed -n 's/.*--drain-seconds N .*default: \([0-9]*\).*/\1/p')
[ "$stop" -gt "$drain" ] || { echo "TimeoutStopSec=$stop is not longer than --drain-seconds $drain"; exit 1; }
