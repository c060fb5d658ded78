# Installs what is missing of the Debian or Ubuntu packages named as arguments. To be read by another script: . examples/packages.sh; need_packages a b
need_packages() {
  missing=
  for package in "$@"; do
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
  done
  [ -z "$missing" ] && return 0
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "these packages are missing and there is no apt-get to install them:$missing" >&2
    return 1
  fi
  as_root=
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
      echo "these packages are missing; as root: apt-get install$missing" >&2
      return 1
    fi
    as_root=sudo
  fi
  echo "installing:$missing" >&2
  log=$(mktemp)
  # shellcheck disable=SC2086  # a list of words on purpose
  if ! { $as_root apt-get update && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    echo "apt-get failed; as root: apt-get install$missing" >&2
    return 1
  fi
  rm -f "$log"
}

kaiju_packages="build-essential cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libxxhash-dev libsentencepiece-dev libprotobuf-dev libutf8proc-dev libssl-dev libcli11-dev libedit-dev"
kaiju_server_packages="libboost-dev libsqlite3-dev zlib1g-dev libzstd-dev libzmq3-dev cppzmq-dev libmsgpack-cxx-dev python3-pip"
