"""bench/cuda/eight.sh with stubs in place of kaiju's programs and of nvidia-smi: it says what failed, and keeps what it
measured when it is ended. No GPU is needed.

python3 eight.py SOURCE_FOLDER"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(sys.argv[1]) / "bench/cuda/eight.sh"

# Every program of the test, by the name that it is called by. A model's file holds its preset and part. Each call has a
# line in $CALLS: program, model, devices, chunk. Calls that match $FAILING fail, those that match $HANGING do not end,
# and those that match $OTHER have another digest. N GPUs take 800 / N ms and 10 more for the exchange, a part alone
# only the former.
STUB = r"""#!/bin/sh
program=${0##*/} preset=bundled part=1 devices= chunk= out= file=
case $program in
nvidia-smi) n=0; while [ $n -lt "$GPUS" ]; do echo "GPU $n: stub"; n=$((n + 1)); done; exit ;;
kaiju-make) ;;
kaiju-bench) file=$2 ;;
kaiju-score) file=$1 ;;
esac
while [ $# -gt 0 ]; do
  case $1 in
  --preset) preset=$2 ;; --part) part=$2 ;; --devices) devices=$2 ;; --chunk) chunk=$2 ;; --out) out=$2 ;;
  esac
  shift
done
[ ! -s "$file" ] || read -r preset part < "$file"
call="$program $preset $part devices $devices chunk $chunk"
echo "$call" >> "$CALLS"
eval "case \$call in $FAILING) exit 1 ;; esac"
eval "case \$call in $HANGING) echo \$\$ > \"\$CALLS.hangs\"; exec sleep 100 ;; esac"
case $program in
kaiju-make) [ ! -e "$out" ] || exit 1; echo "$preset $part" > "$out" ;;
kaiju-score) bits=0a; eval "case \$call in $OTHER) bits=0b ;; esac"; echo "bits: $bits" ;;
kaiju-bench)
  n=$(echo "$devices" | tr -cd , | wc -c) n=$((n + 1))
  us=$((800000 / part / n)); [ $n = 1 ] || us=$((us + 10000))
  line="\"microseconds\": $us, \"share\": 0.5}"
  echo "{\"lines\": [{\"operation\": \"prefill\", \"rows\": 8192, $line"
  for rows in 1 64 256; do echo ", {\"operation\": \"decode\", \"rows\": $rows, $line"; done
  echo "]}"
  ;;
esac
"""


def cells(line):
    return [cell.strip() for cell in line.strip("|\n").split("|")]


class Eight(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        self.out, self.scratch, programs = (self.root / name for name in ("out", "scratch", "programs"))
        self.scratch.mkdir()
        programs.mkdir()
        for name in ("kaiju-make", "kaiju-score", "kaiju-bench", "nvidia-smi"):
            (programs / name).write_text(STUB)
            (programs / name).chmod(0o755)
        (self.root / "bundled").touch()
        self.programs = programs

    def start(self, gpus=2, presets="small", most=8, failing="never", other="never", hanging="never"):
        environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}", "GPUS": str(gpus),
                       "KAIJU_SCRATCH": str(self.scratch), "CALLS": str(self.root / "calls"),
                       "FAILING": failing, "OTHER": other, "HANGING": hanging}  # fmt: skip
        command = ["sh", SCRIPT, self.programs, self.root / "bundled", self.out, str(most), presets]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run_script(self, **how):
        process = self.start(**how)
        stdout, stderr = process.communicate(timeout=60)
        self.assertEqual(list(self.scratch.iterdir()), [], "the scratch folder is left empty")
        return process.returncode, stdout, stderr

    def table(self):
        lines = (self.out / "table.md").read_text().splitlines()
        rows = [cells(line) for line in lines if line.startswith("| `")]
        return {(row[0].strip("`"), int(row[1])): row[2:] for row in rows}

    def calls(self, program):
        lines = (self.root / "calls").read_text().splitlines()
        return [line.split()[1:] for line in lines if line.startswith(program)]

    def test_all_is_well(self):
        code, stdout, stderr = self.run_script(gpus=8, presets="large small")
        self.assertEqual((code, stderr), (0, ""))
        table = self.table()
        self.assertEqual(list(table), [(preset, n) for preset in ("large", "small") for n in (1, 2, 4, 8)])
        self.assertEqual(table["large", 1], ["800.00 ms, 50%"] * 4)
        self.assertEqual(table["small", 8], ["110.00 ms, 50%, 7.27 x, exchange 10.00 ms"] * 4)
        self.assertTrue(stdout.endswith((self.out / "table.md").read_text()))
        self.assertEqual(len((self.out / "digests").read_text().splitlines()), 24)
        # Whole models before parts, most GPUs first.
        calls = self.calls("kaiju-bench")
        measured = [(preset, part, devices.count(",") + 1) for preset, part, _, devices, *_ in calls]
        whole = [(preset, "1", n) for preset in ("large", "small") for n in (8, 4, 2, 1)]
        parts = [(preset, str(n), 1) for preset in ("large", "small") for n in (8, 4, 2)]
        self.assertEqual(measured, whole + parts)

    def test_fewer_gpus_are_a_dry_run(self):
        for how, counts in (({"gpus": 4}, [1, 2, 4]), ({"gpus": 8, "most": 2}, [1, 2])):
            code, _, stderr = self.run_script(**how)
            self.assertEqual((code, stderr), (0, ""))
            self.assertEqual(list(self.table()), [("small", n) for n in counts])

    def test_one_gpu_is_refused(self):
        code, _, stderr = self.run_script(gpus=1)
        self.assertEqual(code, 2)
        self.assertIn("two GPUs are needed", stderr)

    def test_every_score_fails(self):
        code, stdout, stderr = self.run_script(failing="kaiju-score*")
        self.assertEqual(code, 1)
        self.assertEqual(stderr.count("no digest"), 12)
        self.assertIn("- the bundled model on 2 GPUs in chunks of 7: no digest", stdout)
        self.assertEqual(self.table()["small", 2], ["410.00 ms, 50%, 1.95 x, exchange 10.00 ms"] * 4)

    def test_only_the_first_scores_fail(self):
        code, _, stderr = self.run_script(failing="'kaiju-score bundled'*'devices 1 '*")
        self.assertEqual(code, 1)
        self.assertEqual(stderr.splitlines(), [f"eight.sh: the bundled model on 1 GPUs in chunks of {chunk}: no digest"
                                               for chunk in (0, 64, 7)])  # fmt: skip

    def test_digests_differ(self):
        code, stdout, stderr = self.run_script(other="'kaiju-score large'*'devices 1,2 chunk 64'")
        self.assertEqual(code, 1)
        line = "large, 2 layers, on 2 GPUs in chunks of 64: the digest is 0b, not 0a"
        self.assertEqual(stderr, f"eight.sh: {line}\n")
        self.assertIn(f"- {line}\n", stdout)

    def test_a_measurement_fails(self):
        code, stdout, stderr = self.run_script(failing="'kaiju-bench small 1 devices 1,2'*")
        self.assertEqual((code, stderr), (1, "eight.sh: small-2: not measured\n"))
        self.assertEqual(self.table(), {("small", 1): ["800.00 ms, 50%"] * 4, ("small", 2): ["not measured"] * 4})
        self.assertIn("- small-2: not measured\n", stdout)

    def test_a_model_is_not_made(self):
        code, _, stderr = self.run_script(presets="medium small", failing="'kaiju-make medium 1'*")
        self.assertEqual((code, stderr), (1, "eight.sh: medium: the model was not made\n"))
        self.assertEqual(self.table()["medium", 1], ["not measured"] * 4)
        self.assertEqual(self.table()["small", 1], ["800.00 ms, 50%"] * 4)

    def test_figures_of_an_earlier_run_do_not_count(self):
        self.run_script()
        code, *_ = self.run_script(failing="kaiju-bench*")
        self.assertEqual(code, 1)
        self.assertEqual(self.table()["small", 2], ["not measured"] * 4)

    def test_signals_leave_the_table_and_no_model(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            (self.root / "calls.hangs").unlink(missing_ok=True)
            process = self.start(gpus=4, hanging="'kaiju-bench small 1 devices 1,2 '*")
            while not (hangs := self.root / "calls.hangs").exists() or not hangs.read_text().endswith("\n"):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            self.assertNotEqual(list(self.scratch.iterdir()), [])
            # What is measured is printed at once, not at the end alone.
            while "| `small` | 4 |" not in process.stdout.readline():
                self.assertIsNone(process.poll())
            process.send_signal(number)
            stdout, _ = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 128 + number)
            self.assertEqual(list(self.scratch.iterdir()), [])
            self.assertIn("| `small` | 4 | 210.00 ms, 50% |", stdout)
            self.assertIn("| `small` | 2 | not measured |", stdout)
            self.assertEqual(self.table()["small", 4], ["210.00 ms, 50%"] * 4)
            child = pathlib.Path(f"/proc/{int(hangs.read_text())}/stat")  # gone, or dead and not yet waited for
            deadline = time.monotonic() + 10
            while child.exists() and " Z " not in child.read_text():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
