"""The page with sliders and plots: one HTML file that contains the formulas, the figures and Chart.js."""

import json
import os

import files


def chart_source(path=None):
    for candidate in [path] if path else files.CHART:
        if os.path.exists(candidate):
            with open(candidate, encoding="utf-8") as file:
                return file.read()
    raise files.Refused(f"cannot read {path or files.CHART[0]}: apt-get install libjs-chart.js, or give --chart FILE")


def inside_script(text):
    """Text that cannot end the script element that it is put into."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def text_of(machine, traffic, chart=None):
    def beside(name):
        with open(os.path.join(files.HERE, name), encoding="utf-8") as file:
            return file.read()

    parts = {
        "CHART": chart_source(chart),
        "MODEL": beside("model.js"),
        "PAGE": beside("page.js"),
        "MACHINE": json.dumps(machine),
        "TRAFFIC": json.dumps(traffic),
    }
    out = beside("page.html")
    for name, part in parts.items():
        out = out.replace(f"/*{name}*/", inside_script(part))
    return out


def write(path, machine, traffic, chart=None):
    text = text_of(machine, traffic, chart)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise files.Refused(f"cannot write {path}: {error.strerror}") from error
