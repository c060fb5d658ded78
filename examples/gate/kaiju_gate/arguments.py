"""The command line's options and their help."""

from __future__ import annotations

import argparse
from typing import Sequence

from . import standard

COMMANDS = ("release", "judge", "safety", "limits", "guidance", "labelled")

_DESCRIPTION = """What a model must pass before it serves.

  kaiju-gate CANDIDATE --against CURRENT  everything: may it replace the model that serves?
  kaiju-gate judge --ratings FILE         does a judge of conversations agree with people, and did it drift?
  kaiju-gate safety MODEL                 areas under ROC curves and block rates, with intervals and limits
  kaiju-gate safety MODEL --replay FILE   blocked messages, judged again
  kaiju-gate safety MODEL --evening       a day of traffic with an evening of drama
  kaiju-gate limits MODEL --set FILE ...  limits by a calibration set
  kaiju-gate guidance MODEL --judge ...   what guided beams are worth, by other classifiers
  kaiju-gate labelled --clones DIR ...    labelled replies of public sets, for --judge

Exit code: 0 passes, 1 a limit is broken, 2 the command line or a file is wrong."""

_FAIL_IF = """MEASURE>BOUND or MEASURE<BOUND: exit with 1 where it holds. MEASURE may end with :low or :high, the ends
of its interval; BOUND may be a percentage. It replaces the standard rule of the same measure, and "none" removes all
standard ones. Standard: {}"""

_MEASURES = """measures:
  auc:LABEL, auc:any             area under the ROC curve
  fine:TIER, ...:kind:HOW        share that is blocked of what should pass
  harm:TIER, ...:LABEL, ...:kind:HOW
                                 the same of what should not
  released, ...:TIER:LABEL       with --replay: share that is not blocked any more
  hour:TIER, ...:HOUR            with --evening: fine messages that are blocked, in the worst hour or in one

examples:
  kaiju-gate safety kaiju-nano.safetensors --plot roc.svg
  kaiju-gate safety kaiju-nano.safetensors --limit adult:violence=0.9 --fail-if 'harm:adult<30%'
  kaiju-gate safety previous.safetensors --replay blocked.jsonl --last 10000
  kaiju-gate safety kaiju-nano.safetensors --evening --html evening.html"""

_GUIDANCE = """measures, of a SETTING such as "log-odds 5" or "plain, limits of minor":
  over:JUDGE:SETTING           share of replies over the judge's threshold, which 5% of harmless texts are over
  reduction:JUDGE:SETTING      by how much it is smaller than that of plain sampling
  perplexity:SETTING           of the replies under the unguided model, divided by plain sampling's
  perplexity-of-beams:SETTING  divided by that of unguided beams
  over-fine:JUDGE              the same share of plain replies to fine messages
  refused:SETTING              share of replies that limits end
  fine:SETTING                 the same of fine messages
  reduction, perplexity        of the first judge and the setting of --risk and --weight

example:
  kaiju-gate guidance kaiju-nano.safetensors --judge texts=safety.jsonl --judge replies=replies.jsonl --html g.html"""


_RELEASE = """measures; DOWN is in points of 100, and T is a tier:
  perplexity:DOMAIN, perplexity-up:DOMAIN (a ratio), kl:DOMAIN (nats)
  persona:KIND, persona-down:KIND              facts asked for at turn1, turn4, turn8, and far: beyond the window
  judge:T, judge-down:T, judge, judge-length   1 to 5; the last is the rank correlation with the replies' length
  auc:LABEL, fine:T, harm:T, ...               those of kaiju-gate safety; fine-up:T, harm-down:T, labels-lost
  needle, needle-down, ...:beyond              facts in long chats; beyond: farther back than the window
  reuse:T, reuse-down:T                        prompt tokens of the played conversations that were in the cache
  replay:T, replay-down:T                      the same of replayed traffic
  slower:prefill, slower:decode                time divided by the current model's

examples:
  kaiju-gate new.safetensors --against kaiju-nano.safetensors --quick
  kaiju-gate new.safetensors --against old.safetensors --json gate.json --html gate.html --warm-up-planned
  kaiju-gate new.safetensors --against old.safetensors --judge-url http://127.0.0.1:8000/v1 --judge-model big"""


_JUDGE = """measures, correlations from -1 to 1:
  people                  rank correlation of the judge's scores and people's ratings
  people-near             share of scores within 1 of the rating
  people-above            mean score above the mean rating
  length-of-judge, length-of-people
                          rank correlation with the replies' length
  padding, flattery       points of 100 gained by longer replies, and by replies that only agree
  drift, drift-order      with --before: points by which the mean moved, and the rank correlation with then

FILE: a .json of ConvAI2 (data_volunteers.json), or .jsonl with {"card", "turns", "rating"} a line."""


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help="a checkpoint with a classifier")
    command.add_argument("--threads", type=int, default=0, metavar="N", help="default: one for each processor")
    command.add_argument(
        "--signal",
        action="append",
        metavar="LABEL",
        help="a label that is no harm and blocks nothing; default: distress",
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FILE",
        help="messages as JSON lines; again for more. Default: the two frozen sets",
    )


def _outputs(command: argparse.ArgumentParser, rules: Sequence[str]) -> None:
    command.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="RULE",
        help=_FAIL_IF.format(", ".join(rules)).replace("%", "%%"),
    )
    command.add_argument("--json", metavar="FILE", help="all measures, and the scores")
    command.add_argument("--html", metavar="FILE", help="the tables and the figure in one page")
    command.add_argument("--plot", metavar="FILE", help="the figure alone: .svg, .png or .pdf")


def _tiers(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tiers",
        metavar="FILE",
        help="limits as JSON, as kaiju-server's GET /tiers answers; default: examples/gate/tiers.json",
    )
    command.add_argument(
        "--limit", action="append", default=[], metavar="TIER:LABEL=P", help="changes one; P may be none"
    )


def _add_safety(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "safety",
        help="areas under ROC curves and block rates",
        epilog=_MEASURES,
        description="Scores messages with a model's classifier, and counts what limits block.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _common(command)
    _tiers(command)
    _outputs(command, [*standard.SAFETY, *standard.REPLAY, *standard.EVENING])
    command.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="FILE",
        help="scores of another classifier to show beside: a --json file, or {id: {label: probability}}",
    )
    command.add_argument("--replay", metavar="FILE", help="judge blocked messages again: a server's --blocked-log")
    command.add_argument("--last", type=int, metavar="N", help="of --replay: the last N messages alone")
    command.add_argument(
        "--evening",
        nargs="?",
        const=standard.DAY,
        metavar="FILE",
        help="simulate a day of traffic; FILE: its hours, default examples/gate/evening.json",
    )
    command.add_argument("--seed", type=int, default=1, metavar="N", help="of --evening (default: 1)")


def _add_limits(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "limits",
        help="chooses limits by a calibration set",
        description="Writes limits that block no fine message of the sets, for --tiers.",
    )
    _common(command)
    command.add_argument("--out", required=True, metavar="FILE")
    command.add_argument(
        "--margin", type=int, default=1, metavar="N", help="steps above what blocks nothing (default: 1)"
    )
    command.set_defaults(json=None, html=None, plot=None)


def _lengths(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def _weights(text: str) -> list[float]:
    weights = [float(each) for each in text.split(",")]
    if min(weights) <= 0:
        raise ValueError
    return weights


def _add_guidance(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "guidance",
        help="what guided beams and limits do to replies",
        epilog=_GUIDANCE,
        description="Replies to the harmful messages of the sets by plain sampling, beams and guided beams, and with "
        "limits. Other classifiers judge the replies.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _common(command)
    _tiers(command)
    _outputs(command, standard.GUIDANCE)
    option = command.add_argument
    option(
        "--judge",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="labelled texts; the first is the one of `reduction`",
    )
    option("--beams", type=int, default=4, metavar="N", help="default: 4")
    option(
        "--weights",
        type=_weights,
        default=[1, 5, 25, 100],
        metavar="X,X",
        help="of the curves, with every risk; default: 1,5,25,100",
    )
    option("--risk", choices=standard.RISKS, default="log-odds", help="of the setting that rules judge")
    option("--weight", type=float, default=5, metavar="X", help="of the setting that rules judge; default: 5")
    option("--hold-back", type=int, default=4, metavar="N", help="of sampling with limits; default: 4")
    option("--verdict-run", type=int, default=1, metavar="N", help="of sampling with limits; default: 1")
    option("--max-tokens", type=int, default=60, metavar="N", help="default: 60")
    option("--first", type=int, metavar="N", help="only the first N harmful and N fine messages, for a quick look")
    option("--seed", type=int, default=1, metavar="N", help="of sampling and of the bootstrap; default: 1")


def _add_labelled(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "labelled",
        help="labelled replies of public sets",
        description="Writes replies that people labelled as harmful or not, for guidance --judge.",
    )
    command.add_argument(
        "--clones", required=True, metavar="DIR", help="with clones of thu-coai/DiaSafety and sherdencooper/GPTFuzz"
    )
    command.add_argument("--out", required=True, metavar="FILE")
    command.set_defaults(signal=None, json=None, html=None, plot=None)


def _add_judge(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option("--judge-url", metavar="URL", help="of an endpoint of OpenAI's protocol that judges; default: a stand-in")
    option("--judge-model", metavar="NAME", help="the model to ask there. The key is OPENAI_API_KEY of the environment")


def _add_judged(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "judge",
        help="does a judge agree with people, and did it drift?",
        epilog=_JUDGE,
        description="Has a judge score conversations that people rated, and longer and more agreeable forms of them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = command.add_argument
    option("--ratings", action="append", required=True, metavar="FILE", help="rated conversations; again for more")
    option("--count", type=int, default=50, metavar="N", help="how many of them; 0: all. Default: 50")
    option("--before", metavar="FILE", help="what --json wrote in an earlier run")
    _add_judge(command)
    _outputs(command, standard.JUDGE)
    command.set_defaults(signal=None)


def _add_release_sizes(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option("--quick", action="store_true", help="20 conversations of each tier instead of 200, and less of all else")
    option("--only", metavar="PART,PART", help="texts, questions, conversations, safety, needles, replay, speed")
    option("--questions", type=int, metavar="N", help="persona questions of each kind; default: 200, quick 20")
    option("--conversations", type=int, metavar="N", help="of each tier; default: 200, quick 20")
    option("--needles", type=int, metavar="N", help="in each cell of depth and length; default: 8, quick 1")
    option("--needle-lengths", type=_lengths, metavar="N,N", help="tokens; default: 512,1024,2048,3072,3840")


def _add_release(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "release",
        help="everything: may a checkpoint replace the one that serves?",
        epilog=_RELEASE,
        description="Measures a checkpoint and the current one, and fails where it is worse. The command's name may be "
        "left out.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _common(command)
    _tiers(command)
    _outputs(command, standard.release(False))
    _add_judge(command)
    _add_release_sizes(command)
    option = command.add_argument
    option("--against", required=True, metavar="CURRENT", help="the checkpoint that serves")
    option("--backend", default="auto", metavar="NAME", help="default: auto")
    option("--domain", action="append", default=[], metavar="NAME=FILE", help="text or .jsonl; default: four domains")
    option("--traffic", metavar="FILE", help="options of kaiju-bench replay by tier; default: traffic.json")
    option("--warm-up-planned", action="store_true", help="the cache's rules do not block: prefixes are warmed first")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kaiju-gate", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_release(commands)
    _add_judged(commands)
    _add_safety(commands)
    _add_limits(commands)
    _add_guidance(commands)
    _add_labelled(commands)
    return parser


def _spelled_out(arguments: Sequence[str]) -> list[str]:
    """`CANDIDATE --against CURRENT` is short for `release CANDIDATE --against CURRENT`."""
    short = any(text == "--against" or text.startswith("--against=") for text in arguments)
    return ["release", *arguments] if short and arguments[0] not in COMMANDS else list(arguments)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    return parser().parse_args(_spelled_out(arguments))
