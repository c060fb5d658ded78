"""Reading comprehension from real text: questions on fairy tales, each put beside the passage of its tale that answers it.

The corpus gives tales and questions apart. A question goes to the passage that shares the rarest words with it and its answer, and is
used only when the passage holds the answer word for word.
"""
import math
import re

PASSAGE_WORDS = 130
WORD = re.compile(r"[a-z']+")


def words(text):
    return WORD.findall(text.lower())


def passages(text):
    """Runs of whole sentences of about PASSAGE_WORDS words; each begins in the middle of the one before."""
    sentences = [s for s in re.split(r"(?<=[.!?\"]) +|\n+", text) if s]
    out, first = [], 0
    while first < len(sentences):
        last, size = first, 0
        while last < len(sentences) and size < PASSAGE_WORDS:
            size += len(words(sentences[last]))
            last += 1
        out.append(" ".join(sentences[first:last]))
        first = max(first + 1, (first + last) // 2)
    return out


def quizzes(tales, questions):
    """[(passage, [(question, answer)])] for tales and (question, answer) pairs."""
    texts = [p for tale in tales for p in passages(tale)]
    bags = [set(words(p)) for p in texts]
    found, holders = {}, {}
    for i, bag in enumerate(bags):
        for w in bag:
            holders.setdefault(w, []).append(i)
    weight = {w: math.log(len(texts) / len(where)) for w, where in holders.items()}
    for question, answer in questions:
        said, asked = words(answer), set(words(question + " " + answer))
        scores = {}
        for w in asked:
            if weight.get(w, 0) > 2:
                for i in holders[w]:
                    scores[i] = scores.get(i, 0) + weight[w]
        best = sorted(scores, key=lambda i: -scores[i])[:5]
        needed = 0.5 * sum(weight.get(w, 8) for w in asked if weight.get(w, 8) > 2)
        phrase = " " + " ".join(said) + " "
        hit = next((i for i in best if scores[i] >= needed and phrase in " " + " ".join(words(texts[i])) + " "), None)
        if hit is not None and said:
            found.setdefault(hit, []).append((question, answer))
    return [(texts[i], pairs) for i, pairs in sorted(found.items())]
