"""Open facts: relations put together from verbs, things, places, people and times, so that any sentence of a card can be asked for.

The question repeats one part of the fact and asks for the other ("what do you keep in the cellar?"). Same line format as
persona_kinds.py. A form that begins with $ takes its text from a slot.
"""
import persona_values as V

OPEN = """
= open_a
v <$v3|$v1> {ao} {arg}
v [always|often|sometimes|usually] <$v3|$v1> {ao} {arg}
v ~<is|am|are> known to {v1} {ao} {arg}
s {arg} {S} <$v3|$v1> {ao}
s It is said that {S} <$v3|$v1> {ao} {arg}
s ~What {S} <$v3|$v1> {arg} is {ao}
l {v3} {arg}|{ao}; Habit|{v3} {ao} {arg}; ~Known to {v1} {arg}|{ao}
? o
q what do you {v1} {arg}
q what is it you {v1} {arg}
q do you {v1} [something|anything] {arg}
q [I heard|they say] you {v1} something {arg}, what is it
q {arg}, what do you {v1} there or then
q what was it you {v1} {arg}
q ~what sort of thing do you {v1} {arg}
q ~is it true that you {v1} something {arg}
i what you {v1} {arg}
i ~what exactly you {v1} {arg}
a I {v1} {ao} {arg}.
a {ao}.
a {ao}, [as always|if you must know|every time|of course].
a It's {ao}.
? g
q {wh} do you {v1} {ao}{pp}
q {wh} [was it|is it] that you {v1} {ao}{pp}
q {wh} do you {v1} that {o}{pp}
q you {v1} {ao}? {wh}{pq}
q ~[and this {o},|that {o} of yours,] {wh} do you {v1} it{pp}
i {wh} you {v1} {ao}{pp}
i ~{wh} exactly you {v1} {ao}{pp}
a I {v1} {ao} {arg}.
a {arg}.
a {arg}, [as always|if you must know|usually|of course].
= past_a
v [once |]{vd} {ao} {arg}
v {vd} {ao} {arg} [years ago|as a child|last winter]
v ~never <forgets|forget> how {S} {vd} {ao} {arg}
s {arg} {S} once {vd} {ao}
s Long ago {S} {vd} {ao} {arg}
s ~What {S} {vd} {arg} was {ao}
l Once|{vd} {ao} {arg}; Past|{vd} {ao} {arg}; ~{vd} {arg}|{ao}
? o
q what did you {v1} {arg}
q what was it you {vd} {arg}
q did you {v1} [something|anything] {arg}
q [I heard|they say] you {vd} something {arg}, what was it
q what have you got to say about what you {vd} {arg}
q ~what sort of thing did you {v1} {arg}
q ~is it true that you {vd} something {arg}
i what you {vd} {arg}
i ~what exactly you {vd} {arg}
a I {vd} {ao} {arg}.
a {ao}.
a {ao}, [believe it or not|and I'll never forget it|of all things|of course].
a It was {ao}.
? g
q {wh} did you {v1} {ao}{pp}
q {wh} was it that you {vd} {ao}{pp}
q {wh} did you {v1} that {o}{pp}
q you {vd} {ao}? {wh}{pq}
q ~[and this {o},|that {o} of yours,] {wh} did you {v1} it{pp}
i {wh} you {vd} {ao}{pp}
i ~{wh} exactly you {vd} {ao}{pp}
a I {vd} {ao} {arg}.
a {arg}.
a {arg}, [believe it or not|a long time ago|if I remember right|of all places and people].
= rel_a
v <has|have> {ak} [called|named] {n}, {at}
v <has|have> {ak}, {n}, who is {at}
v <visits|visit> {P} {k} {n}, {at}, [every week|now and then|on Sundays]
v ~<is|am|are> close to {n}, {at} and {P} {k}
s {P} {k} {n} is {at}
s {P} {k} is called {n} and works as {at}
s {n}, {P} {k}, is {at}
s ~There is also {n}, {at}, who is {P} {k}
l {k}|{n}, {at}; {k}|{n} ({t}); ~A {k} in the family|{n}, {at}
? n
q what[ is|'s] your {k}'s name
q what[ is|'s] your {k} called
q who[ is|'s] your {k}
q do you have {ak}? what's the name
q tell me the name of your {k}, will you
q ~which name does your {k} have
q ~what do I call your {k}
i what your {k} is called
i who your {k} is
i ~which name your {k} has
n your {k}'s name
a My {k} is called {n}.
a {n}[|, that's my {k}|, a good soul|, a strange one].
a My {k}'s name is {n}.
a {n} is my {k}.
? t
q what does your {k} do[ for a living|]
q what[ is|'s] your {k}'s [job|work|trade]
q what does {n} do[ for a living|]
q ~what kind of work does your {k} do
q ~how does {n} earn money
i what your {k} does
i what {n} does for a living
a [My {k}|{n}] is {at}.
a {n} works as {at}.
a {at}, [and happy with it|as far as I know|like half the family].
y is your {k} {aw}
= kin_likes
v <has|have> {ak} {n} who loves {f}
v <has|have> {ak} named {n}, who lives on {f}
s {P} {k} {n} [loves|lives for|always asks for|is mad about] {f}
s {n}, {P} {k}, [loves|eats nothing but] {f}
s ~For {P} {k} {n} there is nothing like {f}
l {k}|{n}, loves {f}; ~{k} ({n}) likes|{f}
? f
q what does your {k} [like|love|like to eat]
q what does {n} [like|love|like to eat|always ask for]
q what should I [bring|give|cook for] your {k}
q ~what would make your {k} happy
q ~what is {n} so fond of
i what your {k} likes
i what {n} loves
a {f}. [{n} can't get enough|That's what {n} loves].
a {n} loves {f}.
a My {k} loves {f}.
? n
q what[ is|'s] your {k}'s name
q what[ is|'s] your {k} called
q who is the one that loves {f}
q ~which name does your {k} have
i what your {k} is called
a My {k} is called {n}.
a {n}.
a {n} is my {k}.
= fav_a
v <has|have> {v} as {P} favourite {c}
v <thinks|think> {v} is the best {c} there is
v ~<puts|put> {v} above every other {c}
s {P} favourite {c} is {v}
s {P} favorite {c} is {v}
s The {c} {S} <likes|like> best is {v}
s ~Of every {c} there is, {S} <takes|take> {v}
l Favourite {c}; Favorite {c}; Best {c}; ~{c} of choice
? v
q what[ is|'s] your [favourite|favorite] {c}
q which {c} do you like [best|most]
q do you have a favourite {c}
q what {c} do you [love|like|prefer]
q if you could choose any {c}, which would it be
q ~which {c} would you pick
q ~name the {c} you love most, would you
q ~is there a {c} you like more than all others
i what your favourite {c} is
i which {c} you like best
i ~which {c} you would choose
n your favourite {c}
a My favourite {c} is {v}.
a {v}[|, without a doubt|, ever since I was little|, no question].
a I like {v} best.
a That's easy. {v}.
y is your favourite {c} {w}
= attr_a
v <has|have> {av} {o}
v <owns|own> a {o} that is {v}
v ~<is|am|are> proud of a {o}, all {v}
s {P} {o} is {v}
s {P} {o} is painted {v}
s ~{v} is what {P} {o} looks like
l {o}; Colour of the {o}; ~Look of the {o}
? v
q what colour is your {o}
q what color is your {o}
q what does your {o} look like
q how do I recognise your {o}
q ~in what colour did you get your {o}
q ~of what shade is your {o}
i what colour your {o} is
i ~what shade your {o} has
a My {o} is {v}.
a {v}[|, like the evening sky|, and a bit dirty|, what else].
a It's {v}.
y is your {o} {w}
= where_a
v <keeps|keep> {P} {o} [in|under|behind|next to] {p}
v <has|have> {P} {o} standing [in|next to|behind] {p}
v ~<never|never> <moves|move> {P} {o} away from {p}
s {P} {o} [stands|hangs|lies] [in|under|behind|next to] {p}
s ~Look for {P} {o} by {p}
l {o}|in {p}; Place of the {o}|{p}; ~Where the {o} lives|{p}
? p
q where[ is|'s] your {o}
q where do you keep your {o}
q where can I find your {o}
q do you know where your {o} is
q ~in what spot is your {o}
q ~where should I look for your {o}
i where your {o} is
i where you keep your {o}
i ~in what spot your {o} is
a It's by {p}.
a [Look|You'll find it] near {p}.
a My {o}? At {p}, [where it belongs|as always|unless somebody moved it].
"""

# third person, base, past
PRESENT = [tuple(v.split("/")) for v in ("keeps/keep hides/hide sells/sell repairs/repair paints/paint stores/store buries/bury washes/wash polishes/polish "
           "sharpens/sharpen draws/draw studies/study guards/guard displays/display mends/mend carries/carry drops/drop trades/trade steals/steal "
           "admires/admire sketches/sketch cleans/clean wraps/wrap gives away/give away looks for/look for waits for/wait for dreams about/dream about "
           "talks about/talk about worries about/worry about shows/show brings/bring reads about/read about").replace(" away", "_away").replace(" for", "_for").replace(" about", "_about").split()]
PAST = [tuple(v.split("/")) for v in ("lost/lose found/find sold/sell bought/buy broke/break built/build buried/bury burned/burn stole/steal saw/see won/win drew/draw "
        "dropped/drop forgot/forget fixed/fix traded/trade painted/paint hid/hide threw_away/throw_away left_behind/leave_behind gave_away/give_away picked_up/pick_up "
        "smashed/smash discovered/discover borrowed/borrow sat_on/sit_on paid_for/pay_for wished_for/wish_for caught/catch").split()]
TO_PERSON = [("sells", "sell", "sold", "to"), ("gives", "give", "gave", "to"), ("shows", "show", "showed", "to"), ("lends", "lend", "lent", "to"), ("promises", "promise", "promised", "to"),
             ("buys", "buy", "bought", "from"), ("hides", "hide", "hid", "from"), ("borrows", "borrow", "borrowed", "from"), ("steals", "steal", "stole", "from"),
             ("repairs", "repair", "repaired", "for"), ("carries", "carry", "carried", "for"), ("polishes", "polish", "polished", "for"), ("makes", "make", "made", "for"),
             ("shares", "share", "shared", "with"), ("inspects", "inspect", "inspected", "with"), ("inherits", "inherit", "inherited", "from")]
KIN = V.split("aunt,uncle,cousin,grandmother,grandfather,nephew,niece,godfather,godmother,landlord,landlady,colleague,stepfather,stepmother,lodger,bodyguard,tailor,cook,tutor,doctor,lawyer,barber,former teacher,old flame,housemate,business partner,drinking companion,fellow traveller,mother-in-law,brother-in-law,penfriend,coachman,gardener,accountant,patron,foster father,half-sister,grandson,granddaughter,captain,guardian,twin,sidekick")
OWNED = V.split("coat,cart,bicycle,house,boat,kitchen,umbrella,roof,hat,scarf,tent,gate,piano,chair,sofa,kite,mailbox,notebook,bag,suitcase,carpet,blanket,teapot,cup,bed,lamp,cloak,dress,helmet,shield,saddle,fence,shed,wheelbarrow,car,van,sled,flag,mask,apron,wagon,toolbox,spectacles case,raincoat,pillow,sweater,bathtub")
FAV = {"animal": V.ANIMAL, "flower": V.PLANT, "instrument": V.INSTRUMENT, "month": V.MONTH, "day of the week": V.WEEKDAY, "city": V.CITY, "country": V.LAND,
       "school subject": V.SUBJECT, "language": V.LANGUAGE, "word": V.WORD, "fruit or spice": V.FOOD_WITH}
SPOT = V.split("stove,window,bed,door,staircase,woodpile,well,pear tree,bookshelf,fireplace,piano,sink,kennel,gate,chimney,wardrobe,cellar door,bathtub,rain barrel,henhouse,compost heap,bakery,church,bridge,fountain,statue,beehive,pantry,workbench,flour sacks,grandfather clock,laundry basket,garden wall,coal heap,apple tree,cider press,anvil,altar,mailbox,tombstone")


def _fact(past):
    def make(r, s, b):
        x = r()
        o = V.thing(r, s) if r() < 0.6 else None
        ao = V.an(o) if o else None
        if o is None:
            o = ao = V.pick(r, V.GERUND_OBJ, s) if r() < 0.7 else V.food(r, s)
        if x < 0.4:
            v3, v1, vd, prep = V.one(r, TO_PERSON)
            who = V.given(r, s) if r() < 0.5 else V.one(r, ("the ", "an old ", "a rich ", "a young ")) + V.trade(r, s)
            who = who if r() < 0.7 else V.one(r, ("Mrs ", "Mr ", "Old ", "Doctor ", "Aunt ")) + V.surname(r, s)
            return {"v3": v3, "v1": v1, "vd": vd, "o": o, "ao": ao, "arg": prep + " " + who, "wh": "who", "pp": " " + prep, "pq": " " + prep, "g": who}
        two = V.one(r, PAST if past else PRESENT)
        v3, v1, vd = (two[0], two[1], two[0]) if past else (two[0], two[1], two[0])
        v3, v1, vd = v3.replace("_", " "), v1.replace("_", " "), vd.replace("_", " ")
        if x < 0.75:
            spot = V.one(r, (lambda: "the " + V.pick(r, V.PLACEBIT, s), lambda: "the " + V.pick(r, SPOT, s), lambda: V.town(r, s)))()
            prep = V.one(r, ("in ", "behind ", "near ")) if spot.startswith("the ") else V.one(r, ("in ", "near "))
            return {"v3": v3, "v1": v1, "vd": vd, "o": o, "ao": ao, "arg": prep + spot, "wh": "where", "pp": "", "pq": "", "g": spot}
        time = V.one(r, (lambda: "on " + V.pick(r, V.WEEKDAY, s) + ("" if past else "s"), lambda: "in " + V.pick(r, V.MONTH, s), lambda: ("on the night of " if past else "on ") + "the " + V.pick(r, V.GOD_WORD, s) + " festival"))()
        return {"v3": v3, "v1": v1, "vd": vd, "o": o, "ao": ao, "arg": time, "wh": "when", "pp": "", "pq": "", "g": time.split(" ", 1)[1]}
    return make


def _rel(r, s, b):
    t, k = V.trade(r, s), V.pick(r, KIN, 0)
    return {"k": k, "ak": V.an(k), "n": V.given(r, s), "t": t, "at": V.an(t)}


def _kin_likes(r, s, b):
    k = V.pick(r, KIN, 0)
    return {"k": k, "ak": V.an(k), "n": V.given(r, s), "f": V.food(r, s) if r() < 0.6 else V.pick(r, V.GERUND_OBJ, s)}


def _fav(r, s, b):
    c = V.one(r, list(FAV))
    return {"c": c, "v": V.pick(r, FAV[c], s)}


def _attr(r, s, b):
    v = V.colour(r, s)
    return {"o": V.pick(r, OWNED, 0), "v": v, "av": V.an(v)}


MAKE_OPEN = {"open_a": _fact(False), "past_a": _fact(True), "rel_a": _rel, "kin_likes": _kin_likes, "fav_a": _fav, "attr_a": _attr,
             "where_a": lambda r, s, b: {"o": V.pick(r, OWNED, 0), "p": "the " + V.pick(r, SPOT, s)}}
# One card may hold several open facts: the same phrasings under a second and third name.
COPIES = {"open_b": "open_a", "open_c": "open_a", "past_b": "past_a", "rel_b": "rel_a", "rel_c": "rel_a", "fav_b": "fav_a", "fav_c": "fav_a", "attr_b": "attr_a", "where_b": "where_a"}
MAKE_OPEN.update({copy: MAKE_OPEN[of] for copy, of in COPIES.items()})
