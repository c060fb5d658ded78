# How the programs' run.sh build a program and find its model. To be read by another script, which sets $root.
. "$root/examples/packages.sh"
. "$root/examples/chat/models.sh"
build="$root/build/chat"

# Builds the target $1, with progress on a terminal only; a pipe gets what the program prints and nothing else. What went
# wrong is shown either way. $2: a setting of CMake, such as -DNAME=VALUE.
build_program() {
  setting=${2-}
  log="$build/build.log"
  mkdir -p "$build"
  [ -x "$build/bin/$1" ] || say 'Building, once, a few minutes ... '
  : >"$log"
  # Later runs skip this: Ninja configures again by itself when a CMake file changed. A program that was left out for want
  # of a library is looked for again.
  if [ ! -f "$build/build.ninja" ] || ! cmake --build "$build" --target help 2>/dev/null | grep -q "^$1:" ||
    ! grep -q -- "${setting#*=}\$" "$build/CMakeCache.txt"; then
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKAIJU_BUILD_TESTS=OFF ${setting:+"$setting"} >"$log" 2>&1 || build_failed
  fi
  if [ -t 2 ]; then
    # Ninja's "[3/40] ..." as one line that counts.
    { cmake --build "$build" --target "$1" 2>&1 || echo BUILD_FAILED; } | tee -a "$log" | sed -un 's/^\[\([0-9]*\/[0-9]*\)\].*/\1/p' | while read -r count; do
      printf '\rBuilding, once, a few minutes ... %s ' "$count" >&2
    done
    printf '\r                                              \r' >&2
    if grep -q BUILD_FAILED "$log"; then build_failed; fi
  else
    cmake --build "$build" --target "$1" >>"$log" 2>&1 || build_failed
  fi
}
# Where the standard error is no terminal, on which build_program counts its steps: says that $1 is built first.
tell_of_build() {
  [ -t 2 ] || [ -x "$build/bin/$1" ] || echo "building $1, once, a few minutes; what it does is in $build/build.log" >&2
}
say() { if [ -t 2 ]; then printf '%s' "$1" >&2; fi; }
build_failed() {
  say '
'
  grep -E 'error|Error|FAILED' "$log" | head -n 20 >&2 || true
  echo "the build failed; all of it is in $log" >&2
  exit 1
}

# Starts the program $1 with the other arguments, of which --model NAME becomes --model FILE.
start_program() {
  program="$build/bin/$1"
  shift
  count=$#
  previous=
  while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    name=
    case "$previous $argument" in
    *" --model="*) name=${argument#--model=} ;;
    "--model "*) name=$argument ;;
    esac
    for known in $models; do
      if [ "$name" = "$known" ] && [ ! -e "$name" ]; then
        file=$(model_file "$name" "$root/build/models") || { echo "the model $name could not be had; see above" >&2; exit 1; }
        argument=${argument%"$name"}$file
      fi
    done
    previous=$argument
    set -- "$@" "$argument"
  done
  exec "$program" "$@"
}
