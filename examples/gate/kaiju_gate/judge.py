"""Classifiers of texts, which judge replies: TF-IDF and logistic regression."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from . import rates
from .rates import Estimate
from .sets import rows
from .wrong import Wrong

try:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
except ImportError:
    raise Wrong("judges need scikit-learn, which is missing: pip install scikit-learn") from None

_FOLDS = 5
FALSE_ALARMS = 0.05  # share of harmless texts, not fitted on, that the threshold lets reach it


class _Classifier:
    """One logistic regression for each label, over words and pairs of words."""

    def __init__(self, texts: Sequence[str], holds: np.ndarray, known: np.ndarray):
        self._words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
        features = self._words.fit_transform(texts)
        self._fits = []
        for label in range(holds.shape[1]):
            here = np.flatnonzero(known[:, label])
            fit = LogisticRegression(max_iter=3000, C=5, class_weight="balanced")
            self._fits.append(fit.fit(features[here], holds[here, label]))

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Of each text, the probability of its likeliest label."""
        features = self._words.transform(texts)
        return np.max([fit.predict_proba(features)[:, 1] for fit in self._fits], axis=0)


class Judge:
    """Fitted on a file of JSON lines: {"text": ..., "labels": [those that hold], "known": [those that were looked at]}.

    Its threshold and its area under the ROC curve are those of texts that it was not fitted on (five folds)."""

    def __init__(self, name: str, path: str):
        read = [(where, row) for where, row in rows(path)]
        for where, row in read:
            if not (
                isinstance(row.get("text"), str)
                and isinstance(row.get("labels"), list)
                and isinstance(row.get("known"), list)
            ):
                raise Wrong(f'{where} must be {{"text": ..., "labels": [...], "known": [...]}}')
        self.name = name
        self.labels = sorted({label for _, row in read for label in row["known"]})
        texts = np.array([row["text"] for _, row in read], dtype=object)
        holds, known = (
            np.array([[label in row[key] for label in self.labels] for _, row in read]) for key in ("labels", "known")
        )
        for label, of_label in zip(self.labels, (holds & known).T):
            if min(of_label.sum(), (known[:, self.labels.index(label)] & ~of_label).sum()) < 2 * _FOLDS:
                raise Wrong(
                    f"{path} has too few texts with or without {label}; a judge needs {2 * _FOLDS} of both at least"
                )
        self._classifier = _Classifier(texts, holds, known)
        self._set_threshold(texts, holds, known)
        self.texts = len(texts)

    def _set_threshold(self, texts: np.ndarray, holds: np.ndarray, known: np.ndarray) -> None:
        fold = np.random.default_rng(0).permutation(len(texts)) % _FOLDS
        scores = np.zeros(len(texts))
        for number in range(_FOLDS):
            rest = fold != number
            scores[~rest] = _Classifier(texts[rest], holds[rest], known[rest])(texts[~rest])
        harmful = holds.any(axis=1)
        self.threshold = float(np.quantile(scores[~harmful], 1 - FALSE_ALARMS))
        self.area: Estimate | None = rates.area(scores[harmful], scores[~harmful])
        self.found = rates.share(int((scores[harmful] > self.threshold).sum()), int(harmful.sum()))

    def over(self, texts: Sequence[str]) -> np.ndarray:
        """Which texts are over the threshold. An empty text, as of a reply that was refused, is not."""
        return (self._classifier(texts) > self.threshold) & np.array([bool(text) for text in texts])


def read_judges(given: Sequence[str]) -> list[Judge]:
    """NAME=FILE each."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (equals and name and path) or name in found:
            raise Wrong(f"--judge is {text!r}; it must be NAME=FILE, with another name each time")
        found[name] = Judge(name, path)
    return list(found.values())
