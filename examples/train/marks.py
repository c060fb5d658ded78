"""What the classifier head should say at which rows (the marks of data.py), and its loss: binary cross-entropy over the labels that are known."""
import numpy as np
import torch
import torch.nn.functional as F

import safety
from data import MARK_END, MARK_LIGHT

END_WEIGHT, LIGHT_WEIGHT = 4.0, 0.25
LOSS_SHARE = 0.3  # of the head's loss beside the language model's


def weigh(marks):
    """Weight of every label at every token of uint16 marks [n]: float32 [n, labels]."""
    known = (marks[:, None] >> (6 + np.arange(len(safety.LABELS)))) & 1
    return (known * np.where(marks & MARK_END, END_WEIGHT, np.where(marks & MARK_LIGHT, LIGHT_WEIGHT, 1.0))[:, None]).astype(np.float32)


class Marks:
    """rows [K] of a micro-batch with marks, right answers and weights [K, labels]."""

    def __init__(self, marks, device):
        at = np.nonzero(marks)[0]
        found = marks[at]
        self.rows = torch.from_numpy(at).to(device)
        self.right = torch.from_numpy(((found[:, None] >> np.arange(len(safety.LABELS))) & 1).astype(np.float32)).to(device)
        self.weight = torch.from_numpy(weigh(found)).to(device)

    def loss(self, scores, norm):
        """Sum of weight * norm * loss, and its gradient by the scores."""
        weight = self.weight * norm
        return (F.binary_cross_entropy_with_logits(scores, self.right, reduction="none") * weight).sum(), (scores.sigmoid() - self.right) * weight
