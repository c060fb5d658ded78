#!/bin/sh
# kaiju-chat in a real terminal, tmux: sh tests/capi/chat_tmux.sh KAIJU_CHAT. Prints the screen. Exit code 77 and a reason where there is no tmux.
# What began the chat is no shell that could wake it, so Ctrl-Z must do nothing. What a reply says is not looked at; every key and every rare moment is chat_terminal.cpp's.
set -eu
chat=$1
command -v tmux >/dev/null || {
  echo "skipped: no tmux on this machine (Debian, Ubuntu: apt-get install tmux)"
  exit 77
}
folder=$(mktemp -d)
mux() { tmux -u -S "$folder/socket" -f /dev/null "$@"; }
trap 'mux kill-server 2>/dev/null || true; rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT PIPE TERM
keys() { mux send-keys -t 0 "$@"; }
screen() { mux capture-pane -p -J -S - -t 0 | sed 's/ *$//'; } # -J: a line that the terminal broke comes out whole, longer than the terminal is wide
fail() {
  echo "$1; the screen:" >&2
  screen >&2 || true
  exit 1
}
shows() { # within a minute, so many lines (one unless told) that match a pattern
  for _ in $(seq 600); do
    if [ "$(screen | grep -cE -- "$1")" -ge "${2:-1}" ]; then return; fi
    sleep 0.1
  done
  fail "waited for $1"
}

# HOME: no ~/.editrc of whoever runs this. The trap: a shell that had Ctrl-C too would end with the chat and tell nothing.
mux new-session -d -x 80 -y 24 env HOME="$folder" sh -c 'trap : INT; "$0" --threads 1 --max-tokens 40; echo "left with $?"; stty -a; exec sleep 600' "$chat"
shows '^You:'
keys -l 'Hello! Who are you?'
keys Enter
shows '^Cindergrove: .' 2 # the first is the greeting
shows '^You:$'
keys Up
shows '^You: Hello! Who are you\?$' 2
keys C-c
shows '^You:$'
keys C-z
printf 'two\nlines\n' | mux load-buffer -
mux paste-buffer -p -t 0 # -p: marked as a paste where the program asked for that
shows '^You: two$'
shows '^lines$'
keys C-c
shows '^You:$'
keys -l 'Grüß 日本 😀'
shows '^You: Grüß 日本 😀$'
keys C-c
shows '^You:$'
mux resize-window -t 0 -x 40
keys -l '/help'
keys Enter
shows '/quit'
shows '^You:$'
screen | sed -n '/\/retry/,$p' | awk 'length($0) > 40 { wide = 1 } END { exit wide }' || fail "lines wider than the window"
if screen | grep -q 'tokens/s'; then fail "figures that nobody asked for"; fi
keys C-d
shows '^Save this chat before leaving\?' # narrow: the line may break
keys C-c
shows '^You:$'
keys C-d
shows '^Save this chat before leaving\?' 2
keys -l n
keys Enter
shows '^left with 0$'
shows '(^| )icanon'
shows '(^| )echo '
screen
echo "kaiju-chat in tmux: reply, history, paste, letters, window, leaving as they should be"
