"""Gradients of a model that is held to another one: backward.Gradients, and the KL of the other's next tokens against its own. The KL's
gradient by the logits is the difference of the two distributions: 0 where they agree, and without the noise of drawn targets."""
import torch

import backward
import model
import ops


class Gradients(backward.Gradients):
    reference = None  # normed rows and Weights of the model that this one is held to, in hold() alone

    def hold(self, reference, tokens, positions, shape, norm):
        """Adds the gradients of norm * the sum over all rows of KL(reference || own)."""
        rows = model.forward(reference, tokens, positions, model.Training(shape, False))[1]
        self.reference = rows, reference
        self.run(tokens, positions, None, None, norm, shape, False)
        self.reference = None

    def backward_head(self, x, a, targets, weights, norm, marks, head_norm):
        if self.reference is None:
            return super().backward_head(x, a, targets, weights, norm, marks, head_norm)
        w, (theirs, reference), da = self.w, self.reference, torch.empty_like(x)
        for i in range(0, len(a), model.HEAD_ROWS // 4):
            rows = slice(i, i + model.HEAD_ROWS // 4)
            own, other = model.logits(w, a[rows]).log_softmax(-1), model.logits(reference, theirs[rows]).log_softmax(-1)
            self.loss += (other.exp() * (other - own)).sum() * norm
            dl = ((own.exp() - other.exp()) * norm).bfloat16()
            self.head += ops.outer(dl, a[rows]) * (w.clips["final_in"] / 127)
            torch.mm(dl, self.real_head, out=da[rows])
        return self.norm(da, x, torch.zeros_like(x), w.const.final_in, "final_in", 0)
