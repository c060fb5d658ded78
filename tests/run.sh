#!/bin/sh
# Builds and runs all tests: installs what is missing first. --cuda: compiles the CUDA backend too (nvcc 12.8 or newer).
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packages.sh"
need_packages $kaiju_packages $kaiju_server_packages catch2 python3 python3-numpy
need_packages libopenblas0-serial || echo "going on without: products of matrices in Python take sixteen times as long" >&2
need_packages bindgen rustc python3-cffi || echo "going on without: kaiju.h is not read by bindgen, or not by cffi" >&2
need_packages nodejs libjs-chart.js || echo "going on without: the page of kaiju-fleet is not compared with its formulas" >&2
need_packages clang tmux || echo "going on without: kaiju.h is read by gcc alone, or the chat not tried in tmux" >&2

need_packages haproxy iproute2 util-linux || echo "going on without: no fleet is broken, which wants haproxy, ip and unshare" >&2

tools="$root/build/tools"
{ need_packages python3-venv && python3 -m venv "$tools"; } || echo "going on without: no test has what it wants from PyPI" >&2
xgrammar=$(PYTHON="$tools/bin/python3" sh "$root/examples/structured/fetch.sh" "$root/build/xgrammar") ||
  echo "going on without: the server's structured replies are not tried, which want xgrammar from PyPI" >&2

# What only tests need, while others build.
install_tools() {
  # clang-format of one version for everybody, for the test `layout`; distributions carry others.
  "$tools/bin/pip" install -q -r "$root/tests/style/requirements.txt" ||
    echo "going on without: layout is not checked, which wants clang-format from PyPI" >&2
  "$tools/bin/pip" install -q --no-deps -r "$root/tests/import/requirements.txt" ||
    echo "going on without: chat formats are not compared with templates, which wants jinja2 from PyPI" >&2
  "$tools/bin/pip" install -q -r "$root/tests/server/requirements.txt" ||
    echo "going on without: the server is not asked by OpenAI's client nor heard by a router, which want openai, pyzmq and msgpack from PyPI" >&2
  "$tools/bin/pip" install -q -r "$root/tests/fleet/requirements.txt" ||
    echo "going on without: the files for Kubernetes and compose are not checked, which wants kubernetes-validate and check-jsonschema from PyPI" >&2
  "$tools/bin/pip" install -q -r "$root/examples/gate/requirements.txt" ||
    echo "going on without: kaiju-gate is not tested, which wants scikit-learn and matplotlib from PyPI" >&2
  # promtool out of Debian's package, which would also install a service.
  [ -x "$tools/bin/promtool" ] || (mkdir -p "$tools/prometheus" && cd "$tools/prometheus" && apt-get download -q prometheus >/dev/null &&
    dpkg -x prometheus_*.deb . && cp usr/bin/promtool "$tools/bin/" && cd .. && rm -rf prometheus) ||
    echo "going on without: the server's alarms are not tried, which wants promtool from the package prometheus" >&2
}
install_tools &
installing=$!
trap wait EXIT

# With the CUDA backend, each kernel compiled once, which shows that all of it compiles. With a GPU `cmake --workflow --preset cuda` runs it.
if [ "${1:-}" = --cuda ]; then
  set -- -DKAIJU_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=80-real -DKAIJU_CUDA_SM90A=ON "-DCMAKE_CUDA_FLAGS_RELWITHDEBINFO=-DNDEBUG -Xcicc -O1 -Xptxas -O1"
fi
build="$root/build/tests"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -DNDEBUG" -DKAIJU_QUICK_COMPILE=ON "-DXGRAMMAR_SOURCE=$xgrammar" "$@"
cmake --build "$build"
wait $installing
ctest --test-dir "$build" --output-on-failure -j2
