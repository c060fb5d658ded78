"""More phrasings for the kinds of persona_kinds.py and persona_told.py: plain and indirect ones for both sides.

The same line format; a block adds to the kind of that name, "? field" picks the field.
"""

MORE = """
= name
? v
q may I know your name
q who do I have in front of me
q I don't think I caught your name
q tell me your name
q ~could I get your name
q ~do you have a name
q ~what name do you go by
q ~who might you be
= age
v <is|am|are> in {P} [later|best|younger|] years, {v} to be exact
v ~<is|am|are> aged {v}
v ~<has|have> just had a birthday and <is|am|are> now {v}
s ~At {v}, {S} <has|have> seen a lot
? v
q what year of your life is this, how old
q would you tell me how many years you have on you
q how many birthdays have you had
q ~what's your age, if I may ask
q ~may I ask your age
q ~how old would you be
q ~you can't be that old, can you? how many years
= home
v <lives|live> and <works|work> in {v}
v <rents|rent> a room in {v}
v <has|have> lived in {v} for [years|as long as anyone remembers]
v ~<resides|reside> in {v}
v ~<is|am|are> a resident of {v}
s ~{v} is where {S} <lives|live>
? v
q where do you stay
q where do you sleep at night, in what town
q what's your address
q where can I visit you
q in which town is your home
q where are you living [now|these days]
q ~where is it you live, exactly
q ~in what place do you live
q ~what part of the world do you live in
q ~which town do you live in
= birthplace
v <was|was|were> born and raised in {v}
v <left|left> {v} as a child
v ~<hails|hail> from {v}
v ~<was|was|were> a child in {v}
? v
q where does your family come from
q where did you live as a [child|kid]
q in which town were you born
q what's your home town by birth
q ~where do you hail from
q ~what is your birthplace
q ~in what place did you grow up
= trade
v <is|am|are> {av} by trade
v <works|work> day and night as {av}
v <took|took> up the work of {av}
v ~<is|am|are> employed as {av}
v ~<is|am|are> {av} by profession
s ~{P} bread is earned as {av}
? v
q what do you do
q what's your occupation
q what are you by profession
q how do you spend your working days
q what do you do to make money
q what is it you do here
q what keeps you busy
q ~what line of work are you in
q ~what profession do you have
q ~what sort of job do you have
q ~tell me, what's your trade
= work
v ~<is|am|are> employed at {v}
v ~<earns|earn> {P} wages at {v}
? v
q where is your work
q where do you go to work
q ~what place do you work at
q ~which business are you with
= nickname
v ~<has|have> the nickname {v}
s ~{S} <is|am|are> {v} to {P} friends
? v
q do people call you anything else
q does anyone call you something else
q ~do you go by any other name
q ~what other name do you have
= birthday
v ~<came|came> into the world on {v}
s ~{P} birthday falls on {v}
? v
q on which day do you celebrate
q what's your date of birth
q ~what date is your birthday
q ~when do you turn a year older
= mother
s ~{P} mother is {at} called {n}
? n
q tell me the name of your mother
q do you remember your mother's name
q ~what was your mother's name
? t
q what was your mother
q what kind of work did your mother do
q ~what was your mother's occupation
= father
s ~{P} father is {at} called {n}
? n
q tell me the name of your father
q do you remember your father's name
q ~what is the name of your father
? t
q what was your father
q what kind of work did your father do
q ~what was your father's occupation
= sister
v ~<has|have> a sister who lives in {p} and is called {n}
? n
q do you have any sisters
q tell me your sister's name
q ~what is the name of your sister
? p
q where did your sister move to
q ~what town is your sister in
= brother
v ~<has|have> a brother who is {at} and is called {n}
? n
q do you have any brothers
q tell me your brother's name
q ~what is the name of your brother
? t
q what kind of work does your brother do
q ~what is your brother's occupation
= spouse
v <is|am|are> in love with {v}
v <lives|live> with {P} [beloved|husband|wife|partner] {v}
v ~<got|got> married to {v}
s ~{v} is {P} [husband|wife]
? v
q who is your [wife|husband|partner|lover]
q are you in love
q are you single
q ~do you have a wife or husband
q ~who is the love of your life
q ~are you with anyone
= child
v ~<has|have> one child, {v}
v <is|am|are> bringing up little {v}
? v
q what is the name of your [son|daughter|child|boy|girl]
q ~have you got kids
q ~do you have a son or daughter
= siblings
s ~There were {v} of {O} at home, all children
? v
q how many kids were in your family
q ~how many of you were there growing up
q ~with how many children did you grow up at home
= teacher
v <owes|owe> {P} skill to {v}
v ~<was|was|were> a student of {v}
s ~{v} was {P} teacher
? v
q so who taught you all this
q whose student were you
q where did you learn your trade, and from whom
q who showed you how to do it
q ~who was it that taught you
q ~from whom did you learn your craft
q ~what was your teacher's name
= friend
v <is|am|are> close to {v}, {P} best friend
v <goes|go> everywhere with {P} best friend {v}
v ~<has|have> no better friend than {v}
s ~{P} best friend in the world is {v}
? v
q who's your buddy
q who do you tell everything
q who do you spend your time with, any good friend
q what's the name of your friend
q ~who is your dearest companion
q ~which of your friends is the closest
q ~what is your best friend called
= rival
v ~<has|have> a long quarrel with {v}
v <hates|hate> {v}
? v
q who is your nemesis
q who do you hate
q is anyone out to get you
q ~which person do you dislike most
q ~do you have a sworn enemy
= boss
v <is|am|are> employed by {v}
v ~<has|have> a boss called {v}
? v
q whom do you serve
q who employs you
q who is in charge of you
q ~who's the boss where you work
q ~what's your boss's name
= apprentice
v ~<has|have> a helper called {v}
? v
q who are you teaching
q what's the name of your helper
q ~who gives you a hand with the work
q ~does anyone help you with your work
= pet
v <is|am|are> the owner of {ax} [called|named] {n}
v <feeds|feed> and <spoils|spoil> {n}, {ax}
v <takes|take> {ax} named {n} everywhere
v ~<has|have> a pet, {ax} with the name {n}
v ~<looks|look> after {ax} called {n}
s ~There is {ax} at {P} side, {n}
? x
q what pet do you have
q is there an animal in your house
q who lives with you, any animals
q do you like animals? do you have one
q tell me about your [pet|animal]
q ~do you own a pet
q ~any pets
q ~do you have an animal companion
? n
q does your {b} have a name
q does your pet have a name
q tell me your {b}'s name
q ~what's the name of your {b}
q ~what name did you give your {b}
= food
v <eats|eat> {v} whenever {S} can
v <would|would> do anything for {v}
v <enjoys|enjoy> {v} most of all food
v ~<likes|like> to eat {v}
v ~<is|am|are> crazy about {v}
s ~{P} favourite thing to eat is {v}
? v
q what dish do you love
q what do you like to have for dinner
q what's your favourite thing to eat
q what can I offer you to eat
q what tastes best to you
q ~which food do you enjoy most
q ~what meal do you like best
q ~what food makes you happiest
= hated_food
v <dislikes|dislike> {v}
v ~<will|will> not eat {v}
s ~{P} least favourite food is {v}
? v
q what food do you dislike
q what's your least favourite food
q is there something you never eat
q ~what would you refuse to eat
q ~which food do you dislike most
= drink
v <loves|love> a [good |]glass of {v}
v ~<likes|like> to drink {v}
? v
q what drink do you like
q what do you order at the bar
q are you thirsty? what would you like
q ~which drink do you prefer
q ~what's your favourite thing to drink
= colour
v ~<likes|like> the colour {v} best
v <is|am|are> fond of the colour {v}
? v
q tell me your favourite colour
q do you have a favourite colour
q ~what is the colour you like best
q ~which colour is your favourite
= hobby
v <loves|love> {v}
v <is|am|are> a great fan of {v}
v ~<does|do> some {v} in {P} free time
s ~What {S} <likes|like> to do is {v}
? v
q what do you like to do
q what's your favourite pastime
q what do you do on your days off
q do you have any interests
q how do you relax
q ~what do you like doing for fun
q ~what are you interested in
q ~what's your hobby
= book
v ~<loves|love> the book {v}
? v
q what book do you like
q what's a good book
q ~which book is your favourite
q ~do you have a favourite book
= song
v ~<loves|love> the song {v}
? v
q do you have a favourite song
q do you like to sing? what song
q ~which song is your favourite
q ~what do you like to sing
= instrument
v ~<can|can> play the {v}
? v
q which instrument can you play
q do you make music
q ~what do you play
q ~is there an instrument you can play
= fear
v <lives|live> in fear of {v}
v <runs|run> away from {v}
v <gets|get> nervous because of {v}
v ~<is|am|are> frightened of {v}
v ~<is|am|are> deeply scared of {v}
s ~{P} one big fear is {v}
? v
q what makes you afraid
q what do you fear
q what are you so scared of
q what makes you shiver
q is there something you're afraid of
q what would scare you most
q ~what scares you
q ~what do you fear most
q ~are you afraid of anything
= peeve
v <gets|get> angry with people who {v}
v ~<dislikes|dislike> people who {v}
? v
q what kind of people do you dislike
q what drives you mad
q what bothers you
q ~what makes you lose your temper
q ~which people annoy you
= theft
v ~<hides|hide> the fact that {S} stole {ao} from {w2}
? o
q what are you hiding from us
q what do you keep secret
q is there something nobody knows about you
q what did you take that wasn't yours
q ~what is the secret you keep
q ~tell me a secret, will you
? w2
q who owned the {o} you stole
q whose was the {o} you took
q ~who did the {o} belong to
= dream
v ~<wishes|wish> for {v}
v <thinks|think> every day of {v}
? v
q what are your plans for the future
q what's your greatest hope
q what would make you happy one day
q ~what is your dream in life
q ~what do you wish for
= regret
v ~<feels|feel> bad about {v}
? v
q what would you do differently
q what are you sorry for
q ~do you have a regret
q ~what do you wish you had done differently
= treasure
v <loves|love> {ao}, a present from {g}
v ~<holds|hold> dear {ao} that {g} gave to {O}
? o
q what thing do you love most
q what's your favourite possession
q what do you guard with your life
q ~which object means the most to you
q ~what do you hold dear
? g
q who did the {o} belong to before
q how did you come by your {o}
q ~from whom did you receive the {o}
= tool
v ~<gave|gave> {P} {o} the name {n}
? n
q did you give your {o} a name
q ~what's the name of your {o}
= hiding
v ~<stashes|stash> {P} [savings|gold|letters] in {v}
? v
q what's the best hiding place in your house
q where are your savings
q ~where do you stash your things
q ~what place hides your valuables
= charm
v ~<has|have> {av} as a lucky charm
? v
q what do you have for luck
q do you believe in luck? do you carry a charm
q ~which object brings you luck
q ~what's your talisman
= wake
v ~<is|am|are> up at {v} each morning
? v
q how early do you get up
q when does your day begin
q ~what time are you up in the morning
q ~at what hour do you wake
= dayoff
v ~<is|am|are> at the market each {v}
? v
q what day is market day for you
q ~which day of the week are you at the market
= tavern
v <has|have> dinner at {v} [most nights|every night]
v ~<likes|like> to sit at {v} in the evening
? v
q where do you like to eat
q where would you take me for dinner
q ~where do you have dinner
q ~which inn do you go to
= night
v ~<stays|stay> up at night {v}
? v
q how do you pass the night
q ~what are your nights like
q ~what do you do when everyone sleeps
= former
v ~<was|was|were> once employed as {av}
v <started|started> out as {av}
? v
q what were you before
q what did you work as in the past
q ~what did you do in the past for work
q ~which job did you have before
= scar
v ~<got|got> hurt in {v}
s {P} old wound is from {v}
? v
q what's the story of your scar
q what was it that hurt you
q ~where did you get that scar
q ~how were you hurt
= voyage
v ~<made|made> a journey to {v}
v <travelled|travelled> all the way to {v}
? v
q what was your longest journey
q what faraway places have you seen
q ~where did you go on your travels
q ~which faraway place have you visited
= lost
v ~<has|have> lost {ao} somewhere in {p}
? o
q what have you lost
q what went missing
q ~what is it that you lost
? p
q in what place did you lose the {o}
q ~where was your {o} lost
= subject
v ~<learned|learned> all about {v} at school
? v
q what were you taught at school
q ~what subject did you study
q ~what did they teach you
= years
v ~<has|have> worked for {v} years
? v
q since when do you do this, how many years
q ~for how many years have you been working
= debt
v ~<has|have> to pay {m} back to {w2}
? m
q what is the sum you owe
q ~how large is your debt
? w2
q who lent you money
q ~who do you have to pay back
= eyes
v ~<is|am|are> someone with {v} eyes
? v
q tell me your eye colour
q ~what is the colour of your eyes
= garment
v ~<dresses|dress> in {av}
? v
q what clothes do you wear
q what do you have on
q ~what are you dressed in
= allergy
v ~<reacts|react> badly to {v}
? v
q is there something you can't touch or eat because of an allergy
q ~which allergy do you have
= language
v ~<can|can> speak {v}
? v
q what do you speak besides this language
q ~which languages can you speak
= faith
v ~<trusts|trust> in {v}
? v
q are you religious
q which god do you pray to
q ~what religion are you
q ~who do you say your prayers to
= club
v ~<is|am|are> with {v}
? v
q which guild are you in
q ~what club are you a member of
= door
v ~<has|have> a door painted {v}
? v
q how do I find your house, what colour is the door
q ~what is the colour of your door
= password
v ~<lets|let> in only those who say {v}
? v
q tell me the password
q ~what must I say to be let in
= neighbour
v ~<is|am|are> neighbours with {n}, {at}
? n
q do you know who lives next to you
q ~what is the name of your neighbour
? t
q what kind of work does your neighbour do
q ~what is your neighbour's occupation
= collect
v ~<is|am|are> a collector of {v}
? v
q what kind of things do you collect
q ~which things do you collect
= season
v ~<likes|like> {v} best of all the seasons
? v
q do you prefer summer or winter, or what
q ~which season is your favourite
= breakfast
v ~<likes|like> {v} in the morning for breakfast
? v
q what's for breakfast at your place
q ~what did you eat this morning
= prize
v ~<came|came> first and got {av}
? v
q did you ever win something
q what did you get as a prize
q ~which prize did you win
= garden
v ~<plants|plant> {v}
? v
q what plants do you have
q ~which plants grow at your place
= quest
v ~<is|am|are> on a quest for {v}
? v
q what are you after
q where are you headed, what for
q ~what do you search for
q ~what is the goal of your journey
= fact_number
v ~<counts|count> {v} {c} as {P} own
? v
q how many {c} did you collect or keep, all in all
q ~how many {c} are yours
= ritual
v ~<is|am|are> known for {v}
? v
q what's your little quirk
q what do you always do
q ~what is peculiar about you
= health
v ~<has|have> {v}
? v
q what hurts
q is something wrong with your health
q ~what health problem do you have
"""
