# schemathesis (PyPI) against a server: requests made of examples/server/openapi.json, right and wrong ones. What is answered is what the description says, nothing wrong is accepted, and no key is no answer.
#   sh tests/server/schema.sh KAIJU_SERVER MODEL [options of schemathesis]
# SCHEMATHESIS names the program. Exits with 77, which CTest counts as skipped, where there is none.
set -eu
server=$1 model=$2
shift 2
schemathesis=${SCHEMATHESIS:-schemathesis}
if ! command -v "$schemathesis" >/dev/null; then
  echo "skipped: no schemathesis (pip install schemathesis)"
  exit 77
fi
folder=$(mktemp -d)
printf '{"keys": [{"key": "key-of-schemathesis", "name": "schemathesis", "trusted": true}]}' >"$folder/keys.json"
"$server" --model "$model" --port 0 --max-tokens 8 --store "$folder/store" --log "$folder/log" --keys "$folder/keys.json" \
  >"$folder/out" 2>"$folder/err" &
process=$!
trap 'kill $process 2>/dev/null; wait $process 2>/dev/null || true; rm -rf "$folder"' EXIT
address=
for try in $(seq 100); do
  address=$(sed -n 's/.* listens on //p' "$folder/out")
  [ -z "$address" ] || break
  kill -0 $process 2>/dev/null || break
  sleep 0.1
done
if [ -z "$address" ]; then
  cat "$folder/err"
  exit 1
fi
# A chat and a character that there are, and stay: made-up ids reach nothing but 404.
python3 - "$address" >"$folder/schemathesis.toml" <<'END'
import json, sys, urllib.request
def post(path, **body):
    head = {"authorization": "Bearer key-of-schemathesis", "content-type": "application/json"}
    return json.load(urllib.request.urlopen(urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode(), head)))
chat = post("/chats", character="wren")["id"]
post(f"/chats/{chat}/say", text="Hello!")
character = post("/characters", name="Pip", description="Pip is a robot.")["id"]
for path, name in (("chats", chat), ("characters", character)):
    for method in ("GET", "POST", "PUT"):
        print(f'[[operations]]\ninclude-path-regex = "^/{path}/"\ninclude-method = "{method}"\nparameters = {{ "path.id" = "{name}" }}')
END
# positive_data_acceptance would have everything accepted that the description allows. It cannot say what depends on the
# model: the size of its vocabulary and of its context.
result=0
(cd "$folder" && "$schemathesis" run "$address/openapi.json" --header "Authorization: Bearer key-of-schemathesis" \
  --phases examples,coverage,fuzzing --exclude-checks positive_data_acceptance \
  --continue-on-failure --request-timeout 60 --max-examples 20 --no-color "$@") || result=$?
if ! kill -0 $process; then
  cat "$folder/err"
  echo "the server has ended"
  exit 1
fi
exit $result
