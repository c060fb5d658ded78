"""kaiju-fleet: what a fleet of machines costs, from measured figures of one machine."""

import argparse
import json
import math
import os
import re
import sys

import files
import ledger
import model
import page
import stepped
import study

# What round robin finds, by kaiju-bench fleet (docs/fleet.md).
ROUND_ROBIN_HIT_RATE = 0.24


def line(name, value, note=""):
    print(f"  {name:<34}{value:>16}   {note}".rstrip())


def print_plan(machine, traffic, plan):
    history, prompt, computed = model.lengths(traffic)
    print(f"{machine['name']}\n{traffic['name']}: {traffic['messages_per_second']:,g} messages a second\n")
    line("prompt, mean", f"{prompt:,.0f} tokens", f"card {traffic['card_tokens']:,g}, history {history:,.0f}")
    line("computed for a message", f"{computed:,.0f} tokens", f"hit rate {100 * traffic['hit_rate']:.2f}%")
    line("one machine, messages a second", f"{plan['rate_of_a_machine']:.1f}", f"limit: {plan['limit']}")
    line("conversations that fit its memory", f"{model.conversations_that_fit(machine, traffic):,.0f}")
    line("machines needed", f"{plan['needed']:,}", f"the busiest has {traffic['balance']:g} times the mean load")
    line(
        "machines with spares", f"{plan['machines']:,}", f"enough are up {100 * plan['availability']:.4f}% of the time"
    )
    busiest = plan["busiest"]
    line(
        "first token, p50 / p90 / p99",
        f"{busiest['p50_ms']:.0f} / {busiest['p90_ms']:.0f} / {busiest['p99_ms']:.0f} ms",
        "at the busiest machine",
    )
    line(
        "  the same, steps simulated",
        " / ".join(f"{plan['simulated'][name]:.0f}" for name in ("p50_ms", "p90_ms", "p99_ms")) + " ms",
        beyond(traffic, plan["simulated"]),
    )
    line("speed of a reply", f"{busiest['tokens_per_second']:.0f} tokens/s", f"steps of {busiest['step_ms']:.1f} ms")
    line("  the same, steps simulated", f"{plan['simulated']['tokens_per_second']:.0f} tokens/s")
    line("an hour of the fleet", f"${plan['dollars_an_hour']:,.2f}")
    line("a month", f"${plan['dollars_a_month']:,.0f}")
    line("a message, at the peak", f"${plan['dollars_a_message']:.8f}")
    line("  at the day's mean", f"${plan['dollars_a_message_mean']:.8f}", "the fleet is rented all day for its peak")
    line("an hour of talk, at the peak", f"${plan['dollars_an_hour_of_talk']:.5f}")
    line("  at the day's mean", f"${plan['dollars_an_hour_of_talk_mean']:.5f}")


def lost_rows(machine, traffic, plan):
    rows = []
    some = {math.ceil(plan["machines"] * share) for share in (0, 0.001, 0.01, 0.02, 0.05, 0.1)}
    for lost in sorted(some | {plan["machines"] - plan["needed"]}):
        rows.append({"lost": lost, **model.with_lost(machine, traffic, plan["machines"], lost)})
    return rows


def beyond(traffic, simulated):
    """Which limits of the traffic the simulated steps do not hold, where the formulas hold them."""
    names = [name for name in ("p50_ms", "p99_ms") if simulated[name] > traffic[name]]
    return "".join(f"{name[:3]} is beyond its limit of {traffic[name]:g} ms " for name in names).strip()


def print_lost(rows):
    print("\nmachines lost      first token, p50      p99      first limit that breaks, by the formulas")
    for row in rows:
        times = [f"{row[name]:,.0f} ms" if name in row else "none" for name in ("p50_ms", "p99_ms")]
        print(f"{row['lost']:>13}{times[0]:>22}{times[1]:>12}      {row['limit'] or 'all hold'}")


def plan(arguments, machine, traffic):
    found = model.fleet(machine, traffic)
    if found is None:
        raise files.Refused("not one message fits a machine: " + model.one_machine(machine, traffic, 1e-9)["limit"])
    rows = lost_rows(machine, traffic, found)
    found["simulated"] = stepped.figures(machine, traffic, found["busiest"]["messages_per_second"])
    if arguments.json:
        print(json.dumps({**found, "lost": rows}, indent=2))
        return
    print_plan(machine, traffic, found)
    print_lost(rows)


def print_ledger(arguments, machine, traffic):
    incidents = ledger.incidents(machine, traffic, arguments.round_robin_hit_rate)
    ablations = ledger.ablations(machine, traffic, arguments.round_robin_hit_rate)
    if arguments.json:
        names = ("name", "how", "dollars", "study_dollars")
        print(json.dumps({"incidents": [dict(zip(names, row)) for row in incidents], "ablations": ablations}, indent=2))
        return
    print(f"{'incident: computing alone':<52}{'here':>12}{'the study':>12}   how")
    for name, how, dollars, theirs in incidents:
        study_says = "" if theirs is None else f"${theirs:,d}"
        print(f"{name:<52}{'$' + format(dollars, ',.2f'):>12}{study_says:>12}   {how}")
    print(f"\n{'ablation':<52}{'machines':>12}{'$ an hour':>12}   limit")
    for row in ablations:
        print(f"{row['name']:<52}{row['machines']:>12,}{row['dollars_an_hour_of_talk']:>12.5f}   {row['limit']}")


def print_study(arguments, *_):
    rows = study.rows()
    if arguments.json:
        print(json.dumps([dict(zip(("claim", "again", "verdict"), row)) for row in rows], indent=2))
        return
    for claim, again, verdict in rows:
        print(f"{claim}\n    {again}\n    {verdict}\n")


def write_page(arguments, machine, traffic):
    page.write(arguments.out, machine, traffic, arguments.chart)
    print(f"wrote {arguments.out}: open it in a browser", file=sys.stderr)


EXAMPLES = {
    "": """  kaiju-fleet plan
  kaiju-fleet plan --messages-per-second 50 --hit-rate 0.95 --price-per-hour 2.5
  kaiju-fleet ledger
  kaiju-fleet page --out fleet.html""",
    "plan": """  kaiju-fleet plan
  kaiju-fleet plan --messages-per-second 50 --hit-rate 0.95 --price-per-hour 2.5
  kaiju-fleet plan --machine mine.json --traffic mine_too.json --json""",
    "ledger": """  kaiju-fleet ledger
  kaiju-fleet ledger --messages-per-second 50 --round-robin-hit-rate 0.3""",
    "study": """  kaiju-fleet study
  kaiju-fleet study --json""",
    "page": """  kaiju-fleet page --out fleet.html
  kaiju-fleet page --machine mine.json --chart chart.min.js""",
}


class Parser(argparse.ArgumentParser):
    """Tells a wrong command line in one line, as kaiju's other programs do."""

    def error(self, message):
        self.exit(2, f"kaiju-fleet: {message} (see {self.prog} --help)\n")


def number(name, least, most):
    """The type of an option: a number from `least` to `most`."""

    def read(text):
        try:
            value = float(text)
        except ValueError:
            value = None
        if not files.is_number(value, least, most):
            raise argparse.ArgumentTypeError(f"{name} must be a number from {least:g} to {most:g}")
        return value

    return read


def version():
    """That of the sources in which the program is."""
    try:
        with open(os.path.join(files.HERE, "..", "..", "CMakeLists.txt"), encoding="utf-8") as file:
            return re.search(r"project\(kaiju VERSION ([0-9.]+)", file.read()).group(1)
    except (OSError, AttributeError):
        return "unknown: kaiju's sources are not around the program"


def options():
    """Parsers of the options that commands share: machine and traffic, and --json."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--machine", metavar="FILE", help="figures of one machine (default: h200.json beside the program)"
    )
    common.add_argument("--traffic", metavar="FILE", help="traffic; what it leaves out is case_study.json's")
    group = common.add_argument_group("traffic, in place of the file's")
    for name, (least, most, text) in files.TRAFFIC.items():
        group.add_argument(
            "--" + name.replace("_", "-"),
            type=number(name, least, most),
            metavar="N",
            help=f"{text} ({least:g} to {most:g})".replace("%", "%%"),
        )
    common.add_argument(
        "--price-per-hour", type=number("price_per_hour", 0, 1e9), metavar="DOLLARS", help="of one machine"
    )
    printing = argparse.ArgumentParser(add_help=False)
    printing.add_argument("--json", action="store_true", help="JSON in place of a table")
    return common, printing


def parser():
    """The parser of the command line, and those of the commands by name."""
    common, printing = options()

    def shape(command):
        return {
            "epilog": f"Examples:\n{EXAMPLES[command]}",
            "formatter_class": argparse.RawDescriptionHelpFormatter,
        }

    out = Parser(prog="kaiju-fleet", description=__doc__, **shape(""))
    commands = out.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name, run, parents, text):
        one = commands.add_parser(name, parents=parents, help=text, description=text, **shape(name))
        one.set_defaults(run=run)
        return one

    add("plan", plan, [common, printing], "machines, dollars, times to the first token")
    one = add("ledger", print_ledger, [common, printing], "incidents and ablations, priced")
    one.add_argument(
        "--round-robin-hit-rate",
        type=number("round_robin_hit_rate", 0, 1),
        default=ROUND_ROBIN_HIT_RATE,
        metavar="N",
        help="what is found without affinity (kaiju-bench fleet --rules round-robin; default: %(default)g)",
    )
    add("study", print_study, [common, printing], "the case study's numbers, computed again")
    one = add("page", write_page, [common], "writes a page with sliders and plots, which needs no server")
    one.add_argument("--out", default="fleet.html", metavar="FILE", help="the page (default: %(default)s)")
    one.add_argument("--chart", metavar="FILE", help="Chart.js (default: that of Debian's package libjs-chart.js)")
    for each in (out, *commands.choices.values()):
        each.add_argument("--version", action="version", version=version(), help="print the version and exit")
    return out, commands.choices


def main(arguments=None):
    whole, commands = parser()
    arguments, unknown = whole.parse_known_args(arguments)
    if unknown:
        commands[arguments.command].error("unrecognized arguments: " + " ".join(unknown))
    changes = {name: getattr(arguments, name) for name in files.TRAFFIC if getattr(arguments, name) is not None}
    try:
        machine = files.machine(arguments.machine)
        if arguments.price_per_hour is not None:
            machine["price_per_hour"] = arguments.price_per_hour
        files.check_machine(machine, "--price-per-hour")
        arguments.run(arguments, machine, files.traffic(arguments.traffic, **changes))
        sys.stdout.flush()
    except files.Refused as refused:
        print(f"kaiju-fleet: {refused}", file=sys.stderr)
        return 1
    except OSError as problem:  # of the page or of the standard output
        print(f"kaiju-fleet: cannot write {problem.filename or 'the output'}: {problem.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left to write would fail again at the end
        return 1
    return 0
