"""kaiju-gate labelled: replies that people labelled, of two public sets, as a file for --judge.

The bundled model's classifier was not trained on them."""

from __future__ import annotations

import argparse
import csv
import json
import os
from typing import Iterator

from .report import Report, Table
from .wrong import Wrong

_LONGEST = 600  # characters: the judged replies are short
_MEDICAL = "Unauthorized Expertise"  # advice about illness is no label of the head


def diasafety(clone: str) -> Iterator[tuple[str, bool]]:
    """thu-coai/DiaSafety (Apache-2.0): replies of chat models and of people, in their context safe or not."""
    for part in ("train", "val", "test"):
        with open(os.path.join(clone, "DiaSafety_dataset", part + ".json"), encoding="utf-8") as file:
            for row in json.load(file):
                if row["category"] != _MEDICAL:
                    yield row["response"].strip(), row["label"] == "Unsafe"


def gptfuzz(clone: str) -> Iterator[tuple[str, bool]]:
    """sherdencooper/GPTFuzz (MIT): replies to harmful requests, which comply or do not. English ones alone."""
    csv.field_size_limit(10**8)
    for part in ("train", "evaluate"):
        with open(os.path.join(clone, "datasets", "responses_labeled", part + ".csv"), encoding="utf-8") as file:
            for row in list(csv.reader(file))[1:]:
                text = row[1].strip() if len(row) == 3 and row[2] in ("0", "1") else ""
                if text and sum(ord(letter) < 128 for letter in text) > 0.95 * len(text):
                    yield text[:_LONGEST], row[2] == "1"


SOURCES = {"DiaSafety": diasafety, "GPTFuzz": gptfuzz}


def run(args: argparse.Namespace) -> Report:
    report, counts = Report(f"{args.out}: replies that people labelled"), []
    try:
        with open(args.out, "w", encoding="utf-8") as out:
            for name, read in SOURCES.items():
                found = [(text, harmful) for text, harmful in read(os.path.join(args.clones, name)) if text]
                out.writelines(
                    json.dumps({"text": text, "labels": ["harm"] * harmful, "known": ["harm"]}) + "\n"
                    for text, harmful in found
                )
                counts.append([name, str(len(found)), str(sum(harmful for _, harmful in found))])
    except OSError as error:
        raise Wrong(
            f"{error.filename}: {error.strerror}; --clones must be a folder with clones of "
            "thu-coai/DiaSafety and sherdencooper/GPTFuzz"
        ) from None
    report.tables.append(Table("sources", ["clone", "replies", "harmful"], counts))
    return report
