"""Kinds of facts a card can hold; phrases/base_*.txt and kinds_*.txt say how cards state them, how users ask for them, how characters answer.

One block per kind (a block adds to the kind of that name), one phrasing per line. The first word of a line says what it is:
  =  a new kind                      v  verb phrase of a card ("lives in Hull")      s  whole card sentence      l  list labels
  ?  a field that can be asked       q  question      i  indirect ("where you live")      n  noun phrase ("your home")
  a  answer in the first person      y  yes/no question, {w} a possibly wrong value      t  something to add to an answer
A phrasing that begins with ~ is for the held-out set only. [a|b|] is a choice, {x} a slot, <lives|live> or <is|am|are> agree
with the subject of the card; {S} {P} {O} are its subject, possessive and object.
"""
import persona_values as V

BODY = V.split("a bad back,weak knees,a stiff neck,sore feet,a bad tooth,headaches,hay fever,insomnia,a weak stomach,poor eyesight,deafness in one ear,a twisted ankle,cold hands,hiccups,seasickness,nosebleeds,a bad cough,gout,rheumatism,dizziness,a broken rib,toothache,a swollen thumb,flat feet,asthma,fainting spells,a ringing ear,an old fever")
RUDE = V.split("whistle indoors,talk with a full mouth,arrive late,slam doors,brag about money,never say thank you,spit on the floor,cheat at cards,kick dogs,waste bread,interrupt stories,snore in church,read over my shoulder,leave gates open,borrow and never return,laugh at their own jokes,haggle over pennies,chew loudly,step on flowers,lie about small things,gossip,boast about their ancestors,cut in line,shout before breakfast,forget birthdays,count other people's coins,hum off key,talk during concerts,feed the gulls,break promises")
GERUND = V.split("carving,painting,collecting,drawing,mending,sketching,repairing,studying,photographing,knitting,sewing,polishing,sorting,counting")
ACT = V.split("dancing,swimming,fishing,juggling,wrestling,baking,whittling,stargazing,hiking,rowing,skating,climbing,embroidery,chess,archery,fencing,yodelling,origami,beekeeping,birdwatching,gardening,singing,card tricks,dominoes,crossword puzzles,mushroom picking,kite flying,ghost hunting,bell ringing,storytelling,marbles,cooking,napping,tap dancing,calligraphy,cloud watching,bowling")
RITUAL = V.split("counting the stairs,knocking on wood,talking to the moon,kissing the doorframe,turning around twice,saluting magpies,humming to the kettle,folding napkins into birds,sleeping in boots,writing on walls,sniffing every book,bowing to trees,washing spoons twice,naming every spider,winding three clocks,lighting a single candle,whispering to the bees,tapping both shoes,sharpening pencils,apologising to furniture,saving breadcrumbs,counting backwards from fifty,wearing odd socks,tasting snow,touching every lamp post,reading gravestones,feeding the stove first,eating soup with a fork,blowing on dice,ironing handkerchiefs")
HURT = V.split("a fall from a roof,a duel,a bar fight,a runaway horse,a kitchen knife,a dog bite,a shipwreck,a falling bell,a broken bottle,a swan,an angry goose,a fishing hook,a house fire,a bear,a rusty nail,a carriage crash,a burst boiler,a snake bite,an arrow,a bull,a loose chandelier,a bicycle accident,a sledding race,an exploding stove,a wild boar,a slipped axe,a lightning strike,a cannon ball,a parrot,a falling ladder,a crocodile")
REGRET = V.split("not saying goodbye to {n},leaving {p},selling the family house in {p},lying to {n},never learning to swim,breaking a promise to {n},gambling away a horse,missing the last boat to {p},burning the letters from {n},not asking {n} to dance,refusing a job in {p},quarrelling with {n},running away from {p},never writing to {n},letting {n} take the blame,giving up the piano,turning down the hand of {n},not buying that house in {p}")
DREAM = V.split("opening an inn in {p},sailing to {p},writing a book about {o},owning a farm near {p},seeing {p} once before dying,building a boat out of {o},becoming mayor of {p},finding a cure for hiccups,opening a shop for {o},marrying in {p},walking to {p} on foot,learning to fly,buying a house in {p},making the finest {o} in the world,dancing for the queen of {p},a quiet cottage in {p},teaching children about {o},retiring to {p}")


def _who(r, s, b):
    x = r()
    if x < 0.6:
        return V.given(r, s)
    if x < 0.8:
        return V.given(r, s) + " " + V.surname(r, s)
    if x < 0.9:
        return V.one(r, ("Old ", "Master ", "Doctor ", "Captain ", "Mrs ", "Mr ", "Aunt ", "Uncle ", "Lady ", "Sister ", "Madame ")) + V.surname(r, s)
    return V.given(r, s) + " the " + V.pick(r, V.ADJ, s).capitalize()


def _v(f):
    return lambda r, s, b: {"v": f(r, s)}


def _av(f):
    def make(r, s, b):
        v = f(r, s)
        return {"v": v, "av": V.an(v)}
    return make


def _fear(r, s, b):
    x = r()
    if x < 0.5:
        return {"v": V.pick(r, V.FEAR_THING, s)}
    if x < 0.7:
        return {"v": V.one(r, ("deep", "old", "dark", "big", "talking", "empty", "barking", "white", "black")) + " " + V.pick(r, V.FEAR_THING, s)}
    if x < 0.85:
        return {"v": "the " + V.one(r, ("old ", "dark ", "empty ", "")) + V.pick(r, V.PLACEBIT, s) + V.one(r, (" at night", "", " after dark"))}
    return {"v": V.one(r, ("being locked in a ", "getting lost in a ", "sleeping in a ")) + V.pick(r, V.PLACEBIT, s)}


def _hobby(r, s, b):
    if r() < 0.4:
        return {"v": V.pick(r, ACT, s)}
    return {"v": V.pick(r, GERUND, s) + " " + V.pick(r, V.GERUND_OBJ, s)}


def _kin(sex):
    def make(r, s, b):
        t = V.trade(r, s)
        return {"n": V.given(r, s, sex), "t": t, "at": V.an(t)}
    return make


def _pet(r, s, b):
    b_ = V.pick(r, V.ANIMAL, s)
    x = V.one(r, V.PET_LOOK) + " " + b_ if r() < 0.55 else b_
    return {"x": x, "ax": V.an(x), "n": V.pet_name(r, s), "b": b_}


def _thing_from(r, s, b):
    o = V.thing(r, s)
    return {"o": o, "ao": V.an(o), "g": _who(r, s, b)}


def _theft(r, s, b):
    o = V.thing(r, s)
    return {"o": o, "ao": V.an(o), "w2": _who(r, s, b)}


def _lost(r, s, b):
    o = V.thing(r, s)
    return {"o": o, "ao": V.an(o), "p": V.town(r, s)}


def _tool(r, s, b):
    o = V.one(r, ("hammer", "knife", "axe", "sword", "spade", "broom", "walking stick", "needle", "pan", "oven", "cart", "rifle", "paintbrush", "lantern", "saw", "ladle", "typewriter", "plough", "wrench", "fishing rod"))
    n = V.pet_name(r, s)
    return {"o": o, "ao": V.an(o), "n": n}


def _time(r, s):
    while True:
        h, m = 3 + int(r() * 8), V.one(r, ("", "half past ", "a quarter to ", "a quarter past "))
        v = m + V.spelled(h) if m else V.spelled(h) + " o'clock"
        if r() < 0.3:
            v = str(h) + ":" + V.one(r, ("15", "30", "45", "10", "20", "05"))
        if V.held(v) == bool(s):
            return v


def _birthday(r, s):
    d = 1 + int(r() * 28)
    m = V.pick(r, V.MONTH, s)
    x = r()
    if x < 0.5:
        return m + " " + str(d)
    end = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(d, "th")
    return "the " + str(d) + end + " of " + m if x < 0.8 else str(d) + " " + m


def _hide(r, s):
    return V.one(r, ("an old ", "a ", "the old ", "a broken ", "the ", "an empty ")) + V.pick(r, V.INSIDE, s)


def _night(r, s, b):
    act, obj = V.pick(r, GERUND, s), V.pick(r, V.GERUND_OBJ, s)
    return {"v": act + " " + obj}


def _fill(two):
    def make(r, s, b):
        t = V.pick(r, two, 0)
        while "{" not in t:
            t = V.pick(r, two, 0)
        return {"v": t.replace("{n}", V.given(r, s)).replace("{p}", V.town(r, s)).replace("{o}", V.pick(r, V.GERUND_OBJ, s))}
    return make


def _quest(r, s, b):
    x = r()
    if x < 0.4:
        return {"v": "the " + V.pick(r, V.ADJ, s) + " " + V.pick(r, V.WORD, s) + V.one(r, ("", " of " + V.town(r, s)))}
    if x < 0.7:
        return {"v": V.one(r, ("a lost ", "the last ", "the legendary ", "the stolen ")) + V.pick(r, V.OBJECT, s) + " of " + V.made_name(r, s)}
    return {"v": V.one(r, ("a missing brother, ", "a lost sister, ", "an old friend, ", "a runaway cousin, ")) + V.given(r, s)}


def _count(r, s, b):
    n = V.number(r, s, 3, 140)
    c = V.pick(r, V.GERUND_OBJ, 0)
    return {"v": str(n) if r() < 0.6 else V.spelled(n), "n_": n, "c": c}


def _ritual(r, s, b):
    v = V.pick(r, RITUAL, s)
    return {"v": v}


def _number(low, high):
    def make(r, s, b):
        n = V.number(r, s, low, high)
        return {"v": str(n) if r() < 0.6 else V.spelled(n), "n_": n}
    return make


def _debt(r, s, b):
    n = V.number(r, s, 3, 900)
    return {"m": (str(n) if r() < 0.6 else V.spelled(n)) + " " + V.one(r, ("crowns", "silver coins", "pounds", "dollars", "gold coins", "shillings", "marks", "copper pennies", "florins", "euros")), "w2": _who(r, s, b), "n_": n}


def _allergy(r, s):
    return V.pick(r, V.one(r, (V.FOOD_WITH, V.PLANT, V.DISH)), s) if r() < 0.7 else V.one(r, ("cat", "dog", "horse", "rabbit", "goose")) + " " + V.one(r, ("hair", "fur")) + " and " + V.pick(r, V.PLANT, s)


def _god(r, s):
    return V.one(r, ("the ", "Saint ", "the old ", "the Lady of the ", "the Lord of the ", "Mother ")) + V.pick(r, V.GOD_WORD, s) if r() < 0.5 else V.one(r, ("Saint ", "the goddess ", "the god ", "")) + V.made_name(r, s)


def _club(r, s):
    x = r()
    if x < 0.5:
        return "the " + V.one(r, ("Guild", "Society", "Order", "Brotherhood", "League", "Union", "Circle")) + " of the " + (V.pick(r, V.ADJ, s) + " " + V.pick(r, V.WORD, s)).title()
    return "the " + V.town(r, s) + " " + V.pick(r, V.GERUND_OBJ, s).capitalize() + " " + V.one(r, ("Club", "Society", "Association"))


def _nick(r, s, b):
    x = r()
    if x < 0.35:
        v = V.pick(r, V.ADJ, s).capitalize() + " " + V.made_name(r, s)
    elif x < 0.65:
        v = "the " + V.word(r, s, b).capitalize()
    elif x < 0.85:
        v = V.word(r, s, b).capitalize()
    else:
        v = V.one(r, ("Old ", "Little ", "Big ", "Lucky ", "Grandma ", "Captain ")) + V.word(r, s, b).capitalize()
    return {"v": v}


def _password(r, s, b):
    v = V.word(r, s, b)
    return {"v": v if r() < 0.6 else v + " " + V.word(r, s, b)}


def _garment(r, s):
    g = V.pick(r, V.GARMENT, s)
    if g.startswith("pair of"):
        return "pair of " + V.pick(r, V.COLOUR, s) + g[7:]
    return V.one(r, ("", V.one(r, ("old ", "patched ", "long ", "tall "))))  + V.pick(r, V.COLOUR, s) + " " + g


MAKE = {
    "name": lambda r, s, b: {"v": V.given(r, s) + (" " + V.surname(r, s) if r() < 0.3 else "")},
    "age": _number(12, 98), "home": _v(V.town), "birthplace": _v(V.town), "trade": _av(V.trade), "work": _v(V.shop),
    "nickname": _nick, "birthday": _v(_birthday), "mother": _kin("she"), "father": _kin("he"),
    "sister": lambda r, s, b: {"n": V.given(r, s, "she"), "p": V.town(r, s)}, "brother": _kin("he"),
    "spouse": lambda r, s, b: {"v": _who(r, s, b) if r() < 0.3 else V.given(r, s)}, "child": lambda r, s, b: {"v": V.given(r, s)},
    "siblings": lambda r, s, b: {"v": V.spelled(V.number(r, s, 2, 19))},
    "teacher": lambda r, s, b: {"v": _who(r, s, b)}, "friend": lambda r, s, b: {"v": _who(r, s, b)},
    "rival": lambda r, s, b: {"v": _who(r, s, b)}, "boss": lambda r, s, b: {"v": _who(r, s, b)},
    "apprentice": lambda r, s, b: {"v": V.given(r, s)}, "pet": _pet, "craft": _v(V.shop),
    "food": _v(V.food), "hated_food": _v(V.food), "drink": _v(lambda r, s: V.pick(r, V.DRINK, s)), "colour": _v(V.colour),
    "hobby": _hobby, "book": lambda r, s, b: {"v": V.title(r, s, b)}, "song": lambda r, s, b: {"v": V.title(r, s, b)},
    "instrument": _av(lambda r, s: V.pick(r, V.INSTRUMENT, s)), "fear": _fear, "peeve": _v(lambda r, s: V.pick(r, RUDE, s)),
    "theft": _theft, "dream": _fill(DREAM), "regret": _fill(REGRET), "treasure": _thing_from, "tool": _tool, "hiding": _v(_hide),
    "charm": _av(V.thing), "wake": _v(_time), "dayoff": _v(lambda r, s: V.pick(r, V.WEEKDAY, s)), "tavern": _v(V.shop),
    "night": _night, "former": _av(V.trade), "scar": _v(lambda r, s: V.pick(r, HURT, s)), "voyage": _v(V.far_land), "lost": _lost,
    "subject": _v(lambda r, s: V.pick(r, V.SUBJECT, s)), "years": _number(2, 60), "debt": _debt,
    "eyes": _v(lambda r, s: V.pick(r, V.EYES, s)), "garment": _av(_garment), "allergy": _v(_allergy),
    "language": _v(lambda r, s: V.pick(r, V.LANGUAGE, s)), "faith": _v(_god), "club": _v(_club), "door": _av(V.colour),
    "password": _password, "neighbour": _kin("any"), "collect": _v(lambda r, s: V.pick(r, V.GERUND_OBJ, s)),
    "season": _v(lambda r, s: V.pick(r, V.SEASON, s)), "breakfast": _v(V.food), "prize": _av(V.thing),
    "garden": _v(lambda r, s: V.pick(r, V.PLANT, s)), "quest": _quest, "fact_number": _count, "ritual": _ritual,
    "health": _v(lambda r, s: V.pick(r, BODY, s)),
}
