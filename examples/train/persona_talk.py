"""How characters speak (phrases/manners.txt) and what people talk about between the questions (phrases/small_talk.txt, tales).

Manners: m names one; d says how a card describes it; o openers, e endings of a reply; h greetings, b goodbyes, w "how are you".
Small talk: > begins an exchange, u what the user says, c what the character answers; a line "U"/"C" continues the exchange.
{addr} is the character's word for the user, {catch} a catchphrase; other slots are facts of the card or small open sets.
"""


# Words for the user that any manner may take up; the card names the word, so it is copied, not known.
ADDRESS = "dear,friend,my friend,love,petal,duck,stranger,traveller,pal,mate,captain,darling,sweetheart,comrade,cousin,neighbour,young one,my child,boss,chief,partner,sunshine,honey,good sir or madam,my dove,lad or lass,pilgrim,wanderer,sparrow,champ,buddy,old bean,little star,human,guest,my lamb,scout,blossom,my treasure,brave heart,pumpkin,dumpling"
ADDRESS_CARD = """<calls|call> everyone "{addr}"
<calls|call> people "{addr}"
<likes|like> to call {P} listeners "{addr}"
~<addresses|address> every living soul as "{addr}"
~<turns|turn> everyone into "{addr}" """
CATCH_CARD = """often <says|say> "{catch}"
<has|have> a favourite saying, "{catch}"
<exclaims|exclaim> "{catch}" [whenever {S} <is|am|are> surprised|all the time]
~<shouts|shout> "{catch}" at every turn
~<peppers|pepper> each chat with "{catch}" """


# Tales: nested grammar; every tale draws new names and things.
TALE = """[Once|When I was young|One winter|Years ago|Long before your time], {n1} [and I |]found {ath} [under a bridge|in an old well|on the road to {p1}|behind the stove]. [We|Everyone] [thought|believed] it was worthless. But {n2} [wanted it|offered a fortune for it|turned pale when we showed it]. [In the end it was stolen by a {an1}|So we buried it again, and nobody has found it|I still wonder what it was].
There was a {aj} {an1} in {p1} who [stole|collected|ate] nothing but {pl}. [The mayor|{n1}|An old woman] set a trap with {ath}. [All they caught was {n2}, the tax collector|The {an1} laughed and took that too|The next morning the trap was gone as well].
I once walked from {p1} to {p2} with {n1}, who never stopped talking about {pl}. [On the third day|By evening|At the river] we met a {an1} [with {ath} round its neck|that followed us]. [Since then {n1} has been silent|I have never laughed so much|We never spoke of it again].
My [aunt|grandmother|uncle] {n1} kept {ath} in the kitchen. [Every night|On stormy nights|Whenever a stranger came] it [hummed|rattled|glowed]. [One day {n2} broke it|It was lost in the move to {p1}|When she died, it stopped]. [I can still hear it|Believe it or not|And that's all I know].
They say that in {p1} [the clocks run backwards|nobody locks a door|the {an1}s can talk]. {n1} went there to sell {pl} and came back with {ath} and a smile. [Nobody ever got the truth out of {n1}|We all went there the next year and found nothing|{n2} has been jealous ever since].
A {aj} stranger called {n1} came to {p1} and asked for {ath}. [Nobody had one|{n2} had one, but wouldn't sell]. So the stranger [waited for seven years|sat down and sang about {pl}|bought all the {pl} in town instead]. [And do you know what happened? Nothing at all|In the end they married|That's why we have a statue there now]."""
UDAY = """[today|yesterday|this morning|last night|on my way here] I [saw|met|nearly fell over] a {aj} {an1} [on the bridge|at the station|in the park|in front of my house][ and it followed me home| and nobody else noticed| and it looked at me as if it knew me|].
[today|yesterday|last week] I [went to|walked through|drove to] {p1} [to visit my cousin|to buy {pl}|for work][ and got lost| and forgot why I was there| and it rained all day|].
[someone called {n1}|a stranger|my neighbour] [gave|sold|showed] me {ath} [today|yesterday|on the train][ and I don't know what to do with it| and I can't stop looking at it|].
I've been [cleaning the attic|packing|tidying up] all day and found {ath}[ and a box full of {pl}|].
I [cooked|tried] {fd} [today|yesterday] [and it was awful|and burned it|and it was surprisingly good|for {n1}].
[my cousin|a colleague of mine|an old school friend] {n1} [wants to open a shop for {pl}|moved to {p1}|bought {ath}|is learning to dance][ and I'm a bit jealous| and everyone thinks it's mad|].
[do you know what|listen to this|you won't believe it], {n1} and {n2} [are getting married|had a fight over {ath}|ran off to {p1} together]."""
USHORT = """[people|some folk] say that {pl} bring bad luck
[I think|I believe] [time|money|luck] is like {ath}
the [sea|night|road] always tells the truth
every {an1} knows more than {n1}
[nobody|no one] should own more than seven {pl}
the best things in life smell of {fd}
there is no place like {p1}
a {aj} {an1} never forgets"""
# What users say to hear more of an answer; the character goes on about the same fact.
FOLLOW = """[Tell me more|Go on|Tell me more about it|And|Really|Is that so|Why is that].
[Oh, nice|Interesting|I see|Wow|Ha|Good for you|Lovely|How nice|That's interesting].
[I didn't know that|I would never have guessed|That suits you|I thought so].
[Why|Really|Honestly|How come|What's that like]?"""
# The user did not hear: the character says it again.
PARDON = """[Sorry|Pardon|Excuse me], what[ was that| did you say|]?
[Can you|Could you] [say that again|repeat that]?
I didn't [hear|catch] that[, sorry|].
[What|Say that again]?"""
