"""kaiju-chat --swipe-log: a preference is written when the user goes on after /retry, and only then.

    python3 swipe_log.py KAIJU_CHAT"""

import json
import os
import stat
import subprocess
import sys
import tempfile


def talk(chat: str, lines: list[str], *options: str) -> list[str]:
    text = "".join(line + "\n" for line in lines)
    done = subprocess.run(
        [chat, "--temperature", "1.5", "--seed", "5", "--max-tokens", "12", "--threads", "1", "--json", *options],
        input=text, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line)["reply"] for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    chat = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "swipes.jsonl")
        said = ["Hello!", "/retry", "/retry", "What do you like?", "/retry", "/undo", "Good night.", "/retry"]
        replies = talk(chat, said, "--swipe-log", log)
        with open(log, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        assert len(rows) == 1, rows  # not of the turn that was undone, nor of the last, with which nobody went on
        row = rows[0]
        assert row["turns"][-1] == ["user", "Hello!"] and row["card"].count("\n") >= 1, row
        assert row["kept"] == replies[2] and row["swiped"] == [r for r in replies[:2] if r != replies[2]], (row, replies)
        assert stat.S_IMODE(os.stat(log).st_mode) == 0o600
        talk(chat, said[:4], "--swipe-log", log)
        with open(log, encoding="utf-8") as file:
            assert len(file.readlines()) == 2  # a log grows
        os.unlink(log)
        talk(chat, said)
        assert os.listdir(folder) == []  # nothing without the option
    print("ok")


if __name__ == "__main__":
    main()
