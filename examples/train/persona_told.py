"""What users tell about themselves and ask back later, and the frames that turn any clause into a question.

phrases/base_told.txt and told_*.txt, in the line format of persona_kinds.py with two more words: T the user tells, k the character takes note.
"""
import persona_values as V
from persona_kinds import MAKE, _who, _v


def _u_pet(r, s, b):
    x = V.pick(r, V.ANIMAL, s)
    return {"v": V.pet_name(r, s), "b": x, "ab": V.an(x)}


def _appointment(r, s, b):
    t = V.one(r, ("two o'clock", "three o'clock", "four o'clock", "five o'clock", "six o'clock", "nine o'clock", "ten o'clock", "half past one", "half past four", "noon", "a quarter to six", "midnight"))
    while V.held(t) != bool(s):
        t = str(1 + int(r() * 12)) + ":" + V.one(r, ("00", "15", "30", "45", "10", "20"))
    return {"d": V.pick(r, V.WEEKDAY, s), "t": t, "n": V.given(r, s)}


def _thing(r, s, b):
    o = V.thing(r, s)
    return {"o": o, "ao": V.an(o), "n": V.given(r, s)}


def _dreamt(r, s, b):
    v = V.pick(r, V.ADJ, s) + " " + V.one(r, (V.pick(r, V.ANIMAL, s), V.pick(r, V.WORD, s)))
    return {"v": v, "av": V.an(v)}


_given = _v(V.given)
MAKE_TOLD = {
    "u_name": _given, "u_friend": _given, "u_mother": _v(lambda r, s: V.given(r, s, "she")),
    "u_sister": _v(lambda r, s: V.given(r, s, "she")), "u_brother": _v(lambda r, s: V.given(r, s, "he")),
    "u_pet": _u_pet, "u_town": _v(V.town), "u_job": MAKE["trade"], "u_age": MAKE["age"], "u_food": _v(V.food),
    "u_colour": _v(V.colour), "u_appointment": _appointment, "u_lost": _thing, "u_bought": _thing,
    "u_code": _v(lambda r, s: str(V.number(r, s, 10, 9999))), "u_word": MAKE["password"],
    "u_fear": _v(lambda r, s: V.pick(r, V.FEAR_THING, s)), "u_hobby": MAKE["hobby"],
    "u_trip": lambda r, s, b: {"v": V.town(r, s) if r() < 0.5 else V.far_land(r, s), "n": V.given(r, s)},
    "u_dream": _dreamt, "u_spouse": _given, "u_boss": lambda r, s, b: {"v": _who(r, s, b)},
    "u_count": MAKE["fact_number"], "u_allergy": _v(lambda r, s: V.pick(r, V.FOOD_WITH, s)),
}

# Frames turn an indirect clause {i} or a noun phrase {n} into a question: constructs independent of the kind.
FRAME_I = """[Can|Could|Would|Will] you tell me {i}?
Tell me {i}.
[Please|Do] tell me {i}.
I'd [love|like] to know {i}.
I [was wondering|wonder] {i}.
Do you mind telling me {i}?
[Do|Would] you mind if I ask {i}?
May I ask {i}?
[Remind me|Tell me again] {i}[, please|].
I forgot {i}.
I don't think I know {i}.
I never asked you {i}.
You never told me {i}.
I'm curious {i}.
What I want to know is {i}.
Let me ask you {i}.
[Somebody|My friend] asked me {i}. What should I say?
~Any chance you would let on {i}?
~I have been trying to work out {i}.
~It would help me to hear {i}.
~Go ahead and say {i}.
~If I had to write down {i}, what would I put?"""
FRAME_N = """Tell me about {n}.
What about {n}?
What can you tell me about {n}?
I'd like to hear about {n}.
Can you say something about {n}?
And {n}?
Could you tell me {n}?
Do you remember {n}?
I want to know {n}.
What was {n} again?
Remind me of {n}.
~Fill me in on {n}.
~I'm still in the dark about {n}.
~Let's talk about {n} for a moment."""
FRAME_U = """[Can|Could] you tell me {i}?
Do you [still |]remember {i}?
Tell me {i}.
Do you know {i}?
I wonder if you [still |]know {i}.
Did I tell you {i}?
[Remind me|Tell me again] {i}.
Let's see if you listened. Tell me {i}.
I forgot {i}. Do you know?
~Quick test, {i}?
~I bet you can't say {i}.
~Have you kept in mind {i}?"""
FRAME_Q = """{q}?
[So|And|Well|Now|Okay|Right|Hey], {q}?
By the way, {q}?
[Tell me|Say|Listen|One thing|Another question|Just curious|May I ask]: {q}?
[Tell me|Say], {q}?
{q}, {call}?
{call}, {q}?
Hey {call}, {q}?
[Sorry to be nosy, but|If you don't mind me asking,|I have to ask,|Can I ask you something?|I have a question.|Something else:] {q}?
Hmm. {q}?
Good to know. {q}?
[Ha|Haha|Oh|Nice|Interesting|I see|Fair enough|Wow|Lovely]! {q}?
[I'd like to get to know you.|Let's talk about you.|Enough about me.|Let's change the subject.] {q}?
~Out of curiosity, {q}?
~Humour me, {q}?
~There's one thing I keep thinking about. {q}?
~Forgive the question, but {q}?"""
# "{f}" is the asked noun phrase as the character would say it ("my home").
DEFLECT = """[That's a thing|Some things] I'd rather keep to myself.
I don't [think I ever said|talk about that|like to speak of that].
[Ha, |Hm, |]that's not something I tell everyone.
[You'll have to guess|Guess|That's for me to know|A person needs a few secrets].
I'd rather not say. Ask me something else.
[Nobody has asked me that before|Good question], and I have no answer for you.
{f}? [I'd rather not say|Let's leave that for another day|That stays with me].
{f}? [I couldn't tell you|I have nothing to say about that|There's not much to tell].
Let's talk about something else."""
UNKNOWN = """[You haven't told me that|You never told me that|I don't think you told me][ yet|].
How should I know? You never said.
I don't know that. [Tell me|Will you tell me]?
You haven't mentioned it[ yet|]. [Go on, tell me|I'm listening]."""
