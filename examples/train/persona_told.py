"""What users tell about themselves and ask back later, and the frames that turn any clause into a question.

The same line format as persona_kinds.py, with two more words: T the user tells, k the character takes note.
"""
import persona_values as V
from persona_kinds import MAKE, _who, _v

TOLD = """
= u_name
T my name is {v}
T I'm {v}[, by the way| by the way|]
T you can call me {v}
T [people|friends] call me {v}
T I am called {v}, [nice to meet you|pleased to meet you|and you]
T ~the name I go by is {v}
T ~{v} here, [glad to be here|just passing through]
k [Nice|Good|Pleased|A pleasure] to meet you, {v}.
k {v}! [That's a fine name|I'll remember that|I knew a {v} once, long ago].
k Welcome, {v}.
? v
q what[ is|'s] my name
q who am I
q what am I called
q do you [still |]remember my name
q ~how would you introduce me to a friend
i what my name is
i what I'm called
i ~what to call me
n my name
a You're {v}.
a Your name is {v}.
a {v}, [of course|unless you lied to me|how could I forget].
= u_sister
T my sister's name is {v}
T I have a sister[ called| named|,] {v}
T my [little|big|older|younger] sister {v} [is visiting me|sends her regards|is getting married|moved in with me|drives me mad]
T ~there's this sister of mine, {v}
k {v}? [That's a pretty name|Give her my regards|Older or younger?].
k A sister! I'd like to meet {v}.
? v
q what[ is|'s] my sister's name
q what[ is|'s] my sister called
q do you remember my sister's name
q who[ is|'s] my sister
q ~which name did I give for my sister
i what my sister is called
n my sister's name
a Your sister is called {v}.
a {v}. [You told me|That's your sister|I listen, you see].
a Your sister's name is {v}.
= u_brother
T my brother's name is {v}
T I have a brother[ called| named|,] {v}
T my [little|big|older|younger] brother {v} [is visiting me|is in trouble again|joined the army|lost his job|never calls]
T ~there's a brother in my family too, {v}
k {v}, [a good solid name|I hope he behaves|is he like you]?
k Tell {v} I said hello.
? v
q what[ is|'s] my brother's name
q what[ is|'s] my brother called
q do you remember my brother's name
q who[ is|'s] my brother
q ~which name did I give for my brother
i what my brother is called
n my brother's name
a Your brother is called {v}.
a {v}. [You told me|That's your brother].
a Your brother's name is {v}.
= u_mother
T my [mother|mum|mom] is called {v}
T my [mother|mum|mom]'s name is {v}
T ~I'm {v}'s child, she's my mother
k {v}, [what a lovely name|I hope she is well].
k Mothers are a blessing. My greetings to {v}.
? v
q what[ is|'s] my [mother|mum|mom]'s name
q what[ is|'s] my [mother|mum] called
q do you [know|remember] my mother's name
q ~what name does my mother have
i what my mother is called
a Your mother's name is {v}.
a {v}. [You said so yourself|That's your mother].
= u_friend
T my [best |old |good |]friend {v} [is coming over|told me about you|is ill|just got married|lives next door]
T I have a [best |good |]friend[ called| named|,] {v}
T ~the one person I trust is my friend {v}
k {v} [sounds like good company|must be a good soul].
k Every friend of yours is welcome, {v} too.
? v
q what[ is|'s] my friend's name
q who[ is|'s] my [best |]friend
q what[ is|'s] my friend called
q ~which friend did I talk about
i what my friend is called
a Your friend is {v}.
a {v}, [if I recall|you told me|that's the name].
= u_pet
T I have {ab} [called|named] {v}
T my {b} {v} [is ill|ate my shoes|is asleep on my lap|ran away again|barked at the postman]
T my {b} is called {v}
T we just got {ab} and named it {v}
T ~meet {v}, my {b}
k {v}! [What a good name for {ab}|Scratch that {b} behind the ears from me].
k {ab} called {v}? [I'd love to meet the beast|Lovely].
? v
q what[ is|'s] my {b}'s name
q what[ is|'s] my {b} called
q what did I say my {b} is called
q do you remember my {b}'s name
q what[ is|'s] the name of my pet
q ~which name do I shout when my {b} runs off
i what my {b} is called
n my {b}'s name
a Your {b} is called {v}.
a {v}. [A fine {b}|You told me|Give the beast a pat].
a It's {v}, your {b}.
? b
q what kind of pet do I have
q what animal do I have
q which [animal|pet] did I tell you about
q ~what sort of creature lives with me
i what pet I have
a You have {ab}[, {v}|].
a {ab}, [called {v}|you said].
= u_town
T I [live in|come from|am from|moved to] {v}
T I'm from {v}
T my home is in {v}
T I just arrived from {v}
T ~{v} is where I have my bed
k {v}! [I've heard of it|What is it like there?|A long way off].
k So you know {v}. [I'd like to see it|Good people there, I hear].
? v
q where do I live
q where am I from
q which town [am I from|did I mention]
q do you remember where I live
q ~to which town would you send me a letter
i where I live
i where I'm from
n my home
a You're from {v}.
a {v}. [You told me|Isn't it|I'd like to see it].
a In {v}, you said.
= u_job
T I[ am|'m] {av}[, by the way|]
T I work as {av}
T I just started as {av}
T I earn my living as {av}
T ~they pay me to be {av}
k {av}! [Good honest work|Then you work harder than I do|I'd never have guessed].
k So you're {av}. [Tell me more|Do you like it?].
? v
q what do I do for a living
q what[ is|'s] my job
q what work do I do
q do you remember my job
q ~what do they pay me for
i what my job is
i what I do for work
n my job
a You're {av}.
a You work as {av}.
a {av}, [you said|unless I dreamed it].
= u_age
T I[ am|'m] {v} years old
T I just turned {v}
T I'm {v}[, so not a child any more| and I feel old|]
T ~it's {v} years now that I walk this earth
k {v}! [A good age|I remember being {v}|You don't look it].
k {v} years, [well, well|and all of them good, I hope].
? v
q how old am I
q what[ is|'s] my age
q do you remember how old I am
q ~how many candles go on my cake
i how old I am
n my age
a You're {v}.
a {v} years old[|, you told me|, if you were honest].
= u_food
T my favourite food is {v}
T I [really |]love {v}
T I could eat {v} every day
T I'm hungry, I want {v}
T ~nothing on a plate beats {v}
k {v}? [Good taste|Now I'm hungry too|I'd join you].
k Ah, {v}! [Save me a bite|I can smell it already].
? v
q what[ is|'s] my favourite food
q what food do I [love|like]
q what did I say I like to eat
q ~what would you cook for me
i what I like to eat
n my favourite food
a You love {v}.
a {v}, [you said|of course].
a Your favourite is {v}.
= u_colour
T my favourite colour is {v}
T I painted my [room|kitchen|door|bicycle] {v}
T I just bought a {v} [coat|hat|dress|scarf]
T ~I'm a {v} person when it comes to colours
k {v}! [A brave choice|That must look splendid|I like that].
k {v} suits you, I think.
? v
q what colour did I [mention|tell you about]
q which colour was it that I told you
q do you remember the colour I mentioned
q ~what paint was I talking about
i which colour I mentioned
a {v}, [you said|I believe|wasn't it].
a It was {v}.
= u_appointment
T I have [a meeting|an exam|a dentist appointment|a job interview|a date|a wedding to go to] on {d} at {t}
T remind me[:| that] I meet {n} on {d} at {t}
T I'm leaving on {d} at {t}
T ~keep in mind for me, {d} at {t} is important
k [On|] {d} at {t}. [I'll remember|Noted|Good luck with it].
k {d}, {t}. [I won't forget|Got it].
? d
q what day [is it again|was that|did I say]
q on which day is it
q which day did I tell you
q ~when in the week was my thing again
i which day I said
a On {d}[, at {t}|].
a {d}. [You told me yourself|Don't forget].
? t
q what time did I say
q at what time is it
q what time was it again
q ~at which hour do I have to be there
i what time I said
a At {t}[, on {d}|].
a {t}. [Don't be late|Write it down].
= u_lost
T I lost my {o} [yesterday|this morning|in the rain]
T I can't find my {o}
T have you seen my {o}? I lost it
T ~my {o} has vanished
k Your {o}? [That's a pity|I'll keep my eyes open|Look under the bed].
k Oh no, not your {o}!
? o
q what did I lose
q what am I looking for
q do you remember what I lost
q ~what should you keep an eye out for
i what I lost
a Your {o}.
a You lost your {o}. [Did you find it|I'm still looking].
= u_bought
T I bought {ao} [today|yesterday|at the market|for my mother|for {n}]
T I got {ao} as a present
T look, I have {ao} here
T ~guess what I carried home, {ao}
k {ao}! [What a find|How much was it?|I'm almost jealous].
k A person can never have too many things like that. {ao}, well, well.
? o
q what did I buy
q what did I [get|bring home]
q what do I have with me
q do you remember what I bought
q ~what was in my shopping bag
i what I bought
a {ao}.
a You bought {ao}. [I remember|You were so proud].
= u_code
T remember this number[: |, ]{v}
T the [code|number|combination] is {v}
T my [room|house|locker|seat] number is {v}
T keep this number for me[: |, ]{v}
T ~write down {v} somewhere, it matters
k {v}. [Got it|I'll keep it safe|I won't forget].
k {v}, [understood|noted|locked away in my head].
? v
q what was the [number|code]
q what number did I [give|tell] you
q what[ is|'s] [my|the] number
q do you still have the number
q ~which digits did I trust you with
i what the number was
n the number
a {v}.
a The number is {v}.
a It was {v}, [just as you said|I kept it safe].
= u_word
T [remember|keep] this word for me[: |, ]{v}
T the [secret|magic] word is {v}
T if anyone asks, the word is {v}
T ~hold on to one word for me, {v}
k {v}. [I'll keep it to myself|Safe with me|A good word].
k {v}, is it? My lips are sealed.
? v
q what was the [word|secret word|magic word]
q what word did I [give|tell] you
q do you remember the [secret |]word
q which word did I ask you to keep
q ~what was I so secretive about, which word
i what the word was
n the secret word
a {v}.
a The word is {v}.
a It was {v}[|, and I told nobody].
= u_fear
T I'm [really |]afraid of {v}
T I'm scared of {v}
T I can't stand {v}, they frighten me
T ~I wake up sweating because of {v}
k {v}? [That's nothing to be ashamed of|I'll keep them away from you].
k Many people fear {v}. You're not alone.
? v
q what am I afraid of
q what scares me
q do you remember what I'm afraid of
q ~what should you never show me
i what I'm afraid of
n my fear
a You're afraid of {v}.
a {v}. [I remember|Don't worry, there are none here].
= u_hobby
T my hobby is {v}
T I spend my weekends {v}
T I've started {v}
T ~give me a free day and I'm {v}
k {v}! [That sounds like fun|You'll have to show me|I could never do that].
k I like people who enjoy {v}.
? v
q what[ is|'s] my hobby
q what do I do for fun
q what do I do at weekends
q ~how do I fill my free days
i what my hobby is
n my hobby
a You like {v}.
a {v}, [you told me|am I right].
= u_trip
T I'm going to {v} [tomorrow|next week|on holiday|in spring|with {n}]
T I just came back from {v}
T I want to travel to {v}
T ~my suitcase is packed for {v}
k {v}! [Bring me something|How exciting|I envy you].
k To see {v}... [lucky you|that's a journey].
? v
q where am I going
q where did I say I [travel|am travelling|was travelling]
q which place did I want to see
q what was my travel destination
q ~which ticket do I have in my pocket
i where I'm travelling
n my [destination|trip]
a {v}, [you said|wasn't it].
a You talked about {v}.
= u_dream
T I dreamed about {av} last night
T last night I had a dream about {av}
T ~{av} came to me in my sleep
k {av}? [Dreams are strange things|What did it do?|That means good luck, my grandmother would say].
? v
q what did I dream about
q do you remember my dream
q what was my dream about
q ~what visited me in my sleep
i what I dreamed about
a {av}.
a You dreamed about {av}.
= u_spouse
T my [husband|wife|partner|girlfriend|boyfriend] is called {v}
T I'm married to {v}
T I'm in love with {v}
T ~{v} and I are a couple
k {v} is a lucky one.
k Ah, {v}! [Love is a fine thing|How did you meet?].
? v
q who am I [married to|in love with|with]
q what[ is|'s] my [partner's|sweetheart's] name
q who did I say I love
q ~whose name makes me blush
i who I love
n my sweetheart
a {v}, [of course|you told me|and you blushed].
a Your heart belongs to {v}.
= u_boss
T my boss, {v}, [is awful|shouted at me today|gave me a rise|is on holiday]
T I work for [someone called |]{v}
T ~the one who bosses me around is {v}
k {v} [sounds like hard work|should be ashamed].
k Don't let {v} ruin your day.
? v
q what[ is|'s] my boss called
q who[ is|'s] my boss
q who do I work for
q ~who orders me around
i who my boss is
n my boss
a Your boss is {v}.
a {v}, [wasn't it|you said].
= u_count
T I have {v} {c}
T I own {v} {c}, [can you believe it|no less]
T there are {v} {c} in my [kitchen|attic|room]
T ~my {c} come to {v} by now
k {v} {c}! [That's a lot to dust|You'd better count them again].
? v
q how many {c} do I have
q how many {c} did I say
q do you remember how many {c} I own
q ~what was the count of my {c}
i how many {c} I have
a You have {v} {c}.
a {v}, [you said|if you counted right].
= u_allergy
T I'm allergic to {v}
T I can't eat {v}, it makes me ill
T ~one bite of {v} and I'm off to the doctor
k No {v} for you, then. [I'll remember|Noted].
k {v}? [That must be hard|I'll keep it away from you].
? v
q what am I allergic to
q what can't I eat
q what should you not serve me
q ~what must stay off my plate
i what I'm allergic to
n my allergy
a You're allergic to {v}.
a {v}. [I haven't forgotten|No crumbs of that for you].
"""


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
