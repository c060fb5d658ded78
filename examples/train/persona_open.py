"""Open facts: relations put together from verbs, things, places, people and times, so that any sentence of a card can be asked for.

The question repeats one part of the fact and asks for the other ("what do you keep in the cellar?"). phrases/base_open.txt, in the line
format of persona_kinds.py. A form that begins with $ takes its text from a slot.
"""
import persona_values as V


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
