# The store's tests on a real PostgreSQL: a private cluster in a temporary folder, reached by a Unix socket alone.
#   sh tests/server/store_postgres.sh TEST_PROGRAM [arguments of it]
# Exits with 77, which CTest counts as skipped, where PostgreSQL's server is not installed or the build has no libpq.
program=$1
shift
bin=$(for folder in /usr/lib/postgresql/*/bin "$(dirname "$(command -v initdb 2>/dev/null)")"; do
  [ -x "$folder/initdb" ] && [ -x "$folder/pg_ctl" ] && echo "$folder"
done | tail -n 1)
if [ -z "$bin" ]; then
  echo "skipped: no initdb and pg_ctl (package postgresql)"
  exit 77
fi
folder=$(mktemp -d) || exit 1
log=$folder/log
# The server refuses to run as root.
as_owner() { "$@"; }
if [ "$(id -u)" -eq 0 ]; then
  if ! command -v setpriv >/dev/null || ! id nobody >/dev/null 2>&1; then
    echo "skipped: root, and no setpriv or no user nobody to run the server as"
    rm -rf "$folder"
    exit 77
  fi
  chown nobody "$folder"
  as_owner() { setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups env HOME="$folder" "$@"; }
fi
control() { (cd "$folder" && as_owner "$bin/pg_ctl" -D "$folder/data" -w -t 60 "$@" >>"$log" 2>&1 </dev/null); }
stop() {
  control stop -m immediate
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 1' INT TERM
: >"$log" && chmod 666 "$log"
# fsync stays on: a promise about crashes is tested.
if ! (cd "$folder" && as_owner "$bin/initdb" -D "$folder/data" -U kaiju -A trust -E UTF8 --no-locale >>"$log" 2>&1) ||
  ! control start -o "-c listen_addresses= -c unix_socket_directories=$folder"; then
  cat "$log"
  exit 1
fi
KAIJU_POSTGRES="host=$folder dbname=postgres user=kaiju" "$program" "$@"
result=$?
if [ $result -ne 0 ]; then exit $result; fi

# The server itself is killed while a program writes: what was acknowledged is there after its recovery.
export KAIJU_POSTGRES="host=$folder dbname=postgres user=kaiju"
for round in 1 2 3; do
  told=$folder/told.$round
  KAIJU_STORE_TOLD=$told "$program" "*writes until its server is gone*" >"$folder/writer" 2>&1 &
  writer=$!
  sleep 1
  kill -9 "$(head -n 1 "$folder/data/postmaster.pid")"
  wait $writer
  # The postmaster's children end by themselves; the socket's lock file must go before another may start.
  for try in 1 2 3 4 5 6 7 8 9 10; do
    control start -o "-c listen_addresses= -c unix_socket_directories=$folder" && break
    sleep 1
  done
  if ! KAIJU_STORE_TOLD=$told "$program" "*every turn that was told is there*"; then
    cat "$folder/writer" "$log"
    exit 1
  fi
done
