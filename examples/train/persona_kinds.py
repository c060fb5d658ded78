"""Kinds of facts a card can hold: how cards state them, how users ask for them, how characters answer.

One block per kind, one phrasing per line. The first word of a line says what it is:
  =  a new kind                      v  verb phrase of a card ("lives in Hull")      s  whole card sentence      l  list labels
  ?  a field that can be asked       q  question      i  indirect ("where you live")      n  noun phrase ("your home")
  a  answer in the first person      y  yes/no question, {w} a possibly wrong value      t  something to add to an answer
A phrasing that begins with ~ is for the held-out set only. [a|b|] is a choice, {x} a slot, <lives|live> or <is|am|are> agree
with the subject of the card; {S} {P} {O} are its subject, possessive and object.
"""
import persona_values as V

KINDS = """
= name
? v
q what[ is|'s] your name
q who are you
q what are you called
q what[ do they|should I] call you
q and you are
q who am I talking to
q have we met? who are you
q ~how should I address you
q ~what did your parents name you
q ~with whom do I have the pleasure
i who you are
i what your name is
i what I should call you
i ~how I should address you
n your name
a I'm {v}.
a My name is {v}.
a {v}, [at your service|pleased to meet you|that's me].
a I am {v}[|, that's all you need to know|, didn't I say].
a {v} is the name.
t [Easy to remember|My mother picked it|Don't wear it out].
y are you {w}
y is your name {w}
= age
v <is|am|are> {v} years old
v <is|am|are> {v}
v <turned|turned> {v} [this year|last spring|a month ago|in the autumn]
v ~<has|have> [seen|lived through] {v} [winters|summers]
s {P} age is {v}
s ~[It has been|It is] {v} years since {S} <was|was|were> born
l Age; Years; ~Winters seen
? v
q how old are you
q what[ is|'s] your age
q what age are you[ now|]
q how many years have you [lived|got behind you|been alive]
q you look [young|old] to me, how old are you [really|]
q are you old enough to remember the old days? how old are you
q ~how many candles [were|would be] on your [last |]birthday cake
q ~how many summers have you seen
i how old you are
i what age you are
i ~how many birthdays you have had
n your age
a I'm {v}.
a I am {v} years old[|, give or take a week].
a {v}, [and I feel every one of them|and not a day more|if you must know].
a I turned {v} [not so long ago|this year].
t [My knees say more|My back disagrees some mornings|I don't feel it most days].
t [You are only as old as your last laugh|It came quicker than I thought].
y are you {w}
y aren't you {w} years old
= home
v <lives|live> in {v}
v <makes|make> {P} home in {v}
v <has|have> a [small house|room|cottage|flat|narrow house|place] in {v}
v <dwells|dwell> [in|near] {v}
v ~<is|am|are> [settled|to be found] in {v}
v ~<keeps|keep> a roof over {P} head in {v}
s {P} home is [in |]{v}
s Home is {v}
s ~You will find {O} in {v}
l Home; Lives in; Town; Residence; ~Dwelling place; ~Based in
? v
q where do you live
q where[ is|'s] [your home|home for you|home]
q what town do you [live in|call home]
q which place do you call home
q where do you go home to [at night|when the day is done|]
q do you live [near here|far away|around here]? where
q [so |]where are you based
q ~where would a letter [find|reach] you
q ~where do you hang your hat
q ~which town is your [house|roof] in
i where you live
i where your home is
i which town you live in
i ~where I would find your house
n your home
n the [town|place] you live in
n your home town
a I live in {v}.
a My home is [in |]{v}.
a [In |]{v}, [and I like it there|for better or worse|and I wouldn't move for anything].
a I've a [little|crooked|draughty|cosy] place in {v}.
a You'd find me in {v}.
t [The neighbours are noisy, but kind|The roof leaks, but it's mine|It smells of rain most of the year].
t [Come by some time|You should see it in the evening light|It's quieter than it sounds].
y do you live in {w}
y is your home in {w}
y so you live in {w}, [right|don't you]
= birthplace
v <was|was|were> born in {v}
v <comes|come> from {v}
v <grew|grew> up in {v}
v <is|am|are> from {v} [originally|by birth]
v <spent|spent> {P} childhood in {v}
v ~first saw [the light of day|daylight] in {v}
s {P} family comes from {v}
s {P} childhood was spent in {v}
s ~{v} is where {S} began
l Born in; From; Birthplace; Origin; ~Cradle
? v
q where were you born
q where did you grow up
q where are you [really |]from
q where do you come from[ originally|]
q where did you spend your childhood
q where were you as a [child|kid]
q ~what place made you
q ~where did you take your first steps
i where you were born
i where you grew up
i where you come from
i ~where your cradle stood
n your birthplace
n the place you [grew up in|were born in|come from]
a I was born in {v}.
a I come from {v}.
a I grew up in {v}[|, barefoot and happy|, in a house full of people].
a {v}. [That's where I was a child|I left it long ago|I still dream of it].
t [I haven't been back in years|I could still find my way there blindfolded|It was smaller than I remember].
y were you born in {w}
y are you from {w}
y did you grow up in {w}
= trade
v <is|am|are> {av}
v <works|work> as {av}
v <earns|earn> {P} [living|bread|keep] as {av}
v <makes|make> {P} living as {av}
v <has|have> been {av} [for years|all {P} life|since youth]
v ~<pays|pay> the [rent|bills] by being {av}
s {P} [job|trade|work|profession|occupation] is that of {av}
s ~By [day|trade] {S} <is|am|are> {av}
l Trade; Job; Work; Occupation; Profession; ~Calling; ~Earns bread as
? v
q what do you do [for a living|for work|all day|]
q what[ is|'s] your [job|trade|work|profession|line of work]
q what kind of work do you do
q how do you earn your [bread|living|money|keep]
q [so |]what do you work as
q do you have a job? what is it
q what do you do when you're at work
q ~what puts bread on your table
q ~what would it say on your [business card|shop sign]
q ~how do you pay [the rent|your bills]
i what you do for a living
i what your job is
i how you earn your money
i ~what keeps you busy from nine to five
n your job
n your [trade|work|profession]
a I'm {av}.
a I work as {av}.
a {av}, [at your service|and proud of it|for my sins|and a good one].
a I earn my bread as {av}.
a I'm {av}[|, and have been for longer than I care to count| by trade].
t [It's honest work|It keeps my hands busy|It pays badly, but I sleep well].
t [Somebody has to do it|No two days are the same|My hands show it].
y are you {aw}
y do you work as {aw}
y you're {aw}, aren't you
= work
v <works|work> at {v}
v <runs|run> {v}
v <owns|own> a [shop|little shop|business|small house of business] called {v}
v <spends|spend> {P} days [at|in] {v}
v ~<can|can> be found behind the counter of {v}
s {P} place of work is {v}
s {P} shop is called {v}
s ~{v} is where {P} working day begins
l Works at; Workplace; Shop; ~Employed at
? v
q where do you work
q what[ is|'s] the name of [your shop|the place you work at|your workplace]
q what[ is|'s] your [shop|place of work] called
q at which [house|shop|place] do you work
q where do you spend your working days
q ~where would I find you on a working day
q ~whose door do you walk through every morning to work
i where you work
i what your shop is called
i ~which door you walk through to work
n your workplace
n the place where you work
a I work at {v}.
a It's called {v}.
a My days are spent at {v}.
a {v}, [that's the place|you may have heard of it|come in and have a look some day].
t [The door squeaks, so I always hear people come in|It's busy before the holidays|The pay is small, the company is good].
y do you work at {w}
y isn't your workplace {w}
= nickname
v <is|am|are> [known|better known] as {v}
v <is|am|are> called {v} by [everyone|friends|the neighbours|old friends]
v <goes|go> by the [nickname|name of] {v}
v ~<answers|answer> to {v}[ among friends|]
s [Everybody|Most people|Friends|The children] call {O} {v}
s {P} nickname is {v}
s ~Behind {P} back people say {v}
l Nickname; Known as; Also called; ~Alias
? v
q do you have a nickname
q what[ is|'s] your nickname
q what do [your friends|people|the neighbours|folk] call you
q is there another name [people|friends] use for you
q ~what would your friends shout across the street at you
q ~got any alias
i what your friends call you
i what your nickname is
i ~which name your pals use
n your nickname
a They call me {v}.
a My nickname is {v}.
a {v}, [that's what they call me|would you believe it|and don't ask me why].
a Friends call me {v}.
t [I stopped fighting it years ago|There's a long story behind it|It stuck, like tar].
y do they call you {w}
y is your nickname {w}
= birthday
v <was|was|were> born on {v}
v <has|have> {P} birthday on {v}
v <celebrates|celebrate> {P} birthday on {v}
v ~<blows|blow> out the candles on {v}
s {P} birthday is {v}
s ~Every year on {v} there is cake for {O}
l Birthday; Born on; Date of birth; ~Cake day
? v
q when[ is|'s] your birthday
q what day were you born[ on|]
q when were you born
q on what date is your birthday
q when should I bring [you a present|a cake]
q ~which day do you get [presents|cake]
i when your birthday is
i what day you were born
i ~when I should bring a cake
n your birthday
n the date of your birthday
a My birthday is {v}.
a I was born on {v}.
a {v}. [Mark it down|Bring cake|I never make a fuss of it].
a It's on {v}.
t [I like it quiet that day|There's always cake|I'll pretend to be surprised].
y is your birthday on {w}
= mother
v <was|was|were> raised by {P} mother {n}, {at}
v <learned|learned> patience from {P} mother {n}, {at}
s {P} mother, {n}, [is|was|worked as] {at}
s {P} mother's name is {n} and she is {at}
s {n}, {P} mother, was {at}
s ~The woman who bore {O} is called {n}, {at}
l Mother|{n}, {at}; Mum|{n} ({t}); ~Born of|{n}, {at} (mother)
? n
q what[ is|'s] your [mother|mum|mother]'s name
q what[ is|'s] your [mother|mum] called
q who[ is|'s|was] your mother
q ~what name did your mother go by
q ~who brought you into the world
i what your mother is called
i who your mother is
n your mother's name
a My mother's name is {n}.
a [Mother|She] is called {n}.
a {n} is my mother[|, and nobody argues with her].
t [I get my temper from her|She still worries about me|She made the best soup].
y is your mother called {w}
? t
q what does your [mother|mum] do
q what did your mother do for a living
q what[ is|'s] your mother's [job|trade|work]
q ~how did your mother earn a living
i what your mother does
i what your mother did for a living
n your mother's [work|trade]
a [My mother|She] is {at}.
a My mother, {n}, works as {at}.
a She's {at}, and a [stubborn|fine|tireless] one.
y is your mother {aw}
= father
v <is|am|are> the [son|child|youngest child|oldest child] of {n}, {at}
v <had|had> a father called {n}, {at}
s {P} father, {n}, [is|was|worked as] {at}
s {P} father's name was {n}; he was {at}
s {n}, {P} father, was {at}
s ~The man who raised {O}, {n}, was {at} and {P} father
l Father|{n}, {at}; Dad|{n} ({t}); ~Sired by|{n}, {at}
? n
q what[ is|'s] your [father|dad|father]'s name
q what was your [father|dad] called
q who[ is|'s|was] your father
q ~what name did your old man go by
i what your father is called
i who your father was
n your father's name
a My father's name is {n}.
a [Father|He] was called {n}.
a {n} was my father[|, rest him|, and a hard worker].
t [I have his hands|He hardly ever spoke|He taught me to whistle].
y was your father called {w}
? t
q what does your [father|dad] do
q what did your father do for a living
q what was your father's [job|trade|work]
q ~how did your old man earn his bread
i what your father did
i what work your father did
n your father's [work|trade]
a [My father|He] was {at}.
a My father, {n}, worked as {at}.
a He was {at} all his life.
y was your father {aw}
= sister
v <has|have> a [younger|older|twin|little|big|] sister[ called| named|,] {n}[ who lives| living] in {p}
v <has|have> one sister, {n}, in {p}
s {P} [younger|older|only|twin|] sister {n} lives in {p}
s {n}, {P} sister, [moved to|lives in|went to live in] {p}
s ~A sister, {n}, writes to {O} from {p}
l Sister|{n}, lives in {p}; Sister|{n} (in {p}); ~Sibling|{n}, a sister, in {p}
? n
q do you have a sister? what[ is|'s] her name
q what[ is|'s] your sister's name
q what[ is|'s] your sister called
q who[ is|'s] your sister
q ~what would I call your sister if I met her
i what your sister is called
n your sister's name
a My sister is called {n}.
a Her name is {n}.
a {n}. [She's the clever one|She writes to me now and then|We fought like cats as children].
t [You'd like her|She laughs like a goose|We share a nose].
y is your sister called {w}
? p
q where does your sister live
q where[ is|'s] your sister [these days|now|]
q in which town does your sister live
q ~where would I post a letter to your sister
i where your sister lives
n your sister's home
a [She|My sister] lives in {p}.
a {n} lives in {p}.
a In {p}[|, with too many cats|, and I miss her].
y does your sister live in {w}
= brother
v <has|have> a [younger|older|twin|little|big|] brother[ called| named|,] {n}[, who is|,] {at}
v <has|have> one brother, {n}, {at}
s {P} [younger|older|only|twin|] brother {n} is {at}
s {P} brother is {at} and is called {n}
s ~{n}, who shares {P} mother and father, is {at} and {P} brother
l Brother|{n}, {at}; Brother|{n} ({t}); ~Sibling|{n}, a brother, {at}
? n
q do you have a brother? what[ is|'s] his name
q what[ is|'s] your brother's name
q what[ is|'s] your brother called
q who[ is|'s] your brother
q ~what would I call your brother if I met him
i what your brother is called
n your brother's name
a My brother is called {n}.
a His name is {n}.
a {n}. [We don't agree on much|He owes me money|He's taller than me, the scoundrel].
t [We get along best in letters|He snores like a mill|I'd do anything for him].
y is your brother called {w}
? t
q what does your brother do
q what[ is|'s] your brother's [job|trade|work]
q what does your brother do for a living
q ~how does your brother pay his bills
i what your brother does
n your brother's [trade|job]
a [He|My brother]'s {at}.
a {n} is {at}.
a My brother works as {at}.
y is your brother {aw}
= spouse
v <is|am|are> married to {v}
v <has|have> been married to {v} for [years|ages|a long time]
v <shares|share> {P} life with {v}
v <is|am|are> engaged to {v}
v ~<wears|wear> a ring from {v}
s {P} [husband|wife|spouse|beloved] is {v}
s {v} is the love of {P} life
s ~{P} heart belongs to {v}
l Married to; Spouse; Partner; ~Better half; ~Sweetheart
? v
q are you married
q who are you married to
q who do you love
q is there someone [special|you love|in your life]
q do you have a [sweetheart|partner|husband or wife]
q what[ is|'s] the name of your [spouse|partner|sweetheart]
q ~who has your heart
q ~whose ring do you wear
i who you are married to
i who you love
i ~who waits for you at home
n your sweetheart
n the one you love
a [I'm with|I belong to] {v}.
a {v}. [My heart, that one|The best thing that ever happened to me|We met in the rain].
a [I love|My heart belongs to] {v}.
a There's {v}, and nobody else for me.
t [I still blush|We argue about the blankets|I'd cross the sea for that smile].
y are you married to {w}
y is your heart with {w}
= child
v <has|have> a [daughter|son|child|little girl|little boy][ called| named|,] {v}
v <is|am|are> [a|the] [mother|father|parent] [to|of] {v}
v <is|am|are> raising a child[ called| named|,] {v}
s {P} [child|little one|only child] is called {v}
s ~Bedtime stories are for {v}, {P} little one
l Child; Children; Son or daughter; ~Offspring
? v
q do you have [children|kids|any children]
q what[ is|'s] your child's name
q what[ is|'s] your child called
q who[ is|'s] your little one
q are you a parent
q ~who do you tuck in at night
i what your child is called
i whether you have children
n your child's name
a My child is called {v}.
a Yes, there's {v}.
a {v}, [the light of my life|and never still for a moment|my little whirlwind].
t [They grow so fast|Always full of questions|Never eats the crusts].
y is your child called {w}
= siblings
v <is|am|are> one of {v} children
v <grew|grew> up with a house of {v} children
v <comes|come> from a family of {v} children
s There were {v} children in {P} family
s ~{P} mother had {v} mouths to feed, all her own
l Children in the family; Brood at home; ~Size of the brood
? v
q how many [of you were there|children were there] at home
q how big was your family[|, how many children]
q how many children did your parents have
q did you have a big family? how many children
q ~how many mouths did your mother have to feed
i how many children there were in your family
n the number of children in your family
a We were {v} children.
a There were {v} of us.
a {v} children, [and one bed too few|and all of us loud|can you imagine the noise].
t [Dinner was a battle|You learned to eat fast|Nobody was ever lonely].
= teacher
v <learned|learned> {P} [trade|craft|skills] from {v}
v <was|was|were> [taught|trained] by {v}
v <was|was|were> apprenticed to {v}
v <studied|studied> under {v}
v ~<got|got> everything {S} <knows|know> from {v}
s {v} taught {O} everything
s {P} [teacher|master|mentor] was {v}
s ~It was {v} who showed {O} the ropes
l Teacher; Mentor; Taught by; Master; ~Learned from
? v
q who taught you[ all this| your trade| your craft|]
q who was your [teacher|master|mentor]
q who did you learn [your craft|it|all that|your trade] from
q where did you learn all this? from whom
q who trained you
q ~who showed you the ropes
q ~whom do you have to thank for your skill
i who taught you
i who you learned your trade from
i ~who showed you how it is done
n your [teacher|mentor|old master]
a {v} taught me.
a I learned it all from {v}.
a My teacher was {v}[|, strict but fair|, a terror before breakfast].
a It was {v} who taught me.
t [I still hear that voice when I get it wrong|Patience of a saint|I never thanked my teacher enough].
y were you taught by {w}
y was your teacher {w}
= friend
v <is|am|are> best friends with {v}
v <has|have> [a best friend|an old friend|a close friend][ called| named|,] {v}
v <tells|tell> everything to {P} friend {v}
v ~<is|am|are> thick as thieves with {v}
s {P} [best|oldest|closest|dearest] friend is {v}
s {v} is {P} [best|oldest|closest|dearest] friend
s ~Wherever {S} <goes|go>, {v} goes too, as friends do
l Best friend; Closest friend; Friend; ~Bosom friend
? v
q who[ is|'s] your [best|closest|oldest|dearest] friend
q do you have a best friend
q what[ is|'s] your [best |]friend's name
q who do you trust most
q who are you closest to
q do you have [any |]friends
q ~who would you call in the middle of the night
q ~who's your partner in crime
i who your best friend is
i who your closest friend is
i ~who you would trust with your life
n your best friend
a My best friend is {v}.
a {v}. [We go back a long way|I'd trust that one with my life|There's nobody like that one].
a That would be {v}.
a {v} is the best friend I have.
t [We've shared every kind of trouble|Always late, always forgiven|We laugh at the same things].
y is your best friend {w}
= rival
v <has|have> [a rival|an enemy|a sworn enemy|an old rival][ called| named|,] {v}
v <cannot|cannot> stand {v}
v <quarrels|quarrel> with {v} all the time
v ~<crosses|cross> the street when {v} comes along
s {P} [rival|enemy|worst enemy|great rival] is {v}
s {v} is {P} [rival|sworn enemy|old rival]
s ~There is bad blood between {v} and {O}
l Rival; Enemy; Quarrels with; ~Nemesis
? v
q do you have [any |]enemies
q who[ is|'s] your [rival|enemy|worst enemy|greatest rival]
q who can't you stand
q is there anyone you [hate|can't stand|dislike]
q who do you quarrel with
q ~who would be glad to see you fail
q ~who makes your blood boil
i who your rival is
i who your enemy is
i ~who would dance on your grave
n your [rival|worst enemy]
a {v}. [Don't get me started|I can't stand that face|The less said the better].
a My rival is {v}.
a That would be {v}.
a I've never got along with {v}.
t [It started over nothing|One day I'll win|We don't greet each other].
y is {w} your enemy
y is your rival {w}
= boss
v <works|work> for {v}
v <serves|serve> {v}
v <takes|take> orders from {v}
v ~<is|am|are> in the pay of {v}
s {P} [boss|employer|superior] is {v}
s {v} pays {P} wages
s ~{v} cracks the whip over {O}
l Boss; Employer; Works for; ~Paid by
? v
q who do you work for
q who[ is|'s] your [boss|employer]
q who gives you [orders|your orders]
q who pays [you|your wages]
q do you have a boss
q ~who tells you what to do all day
q ~whose orders do you follow
i who you work for
i who your boss is
i ~whose orders you follow
n your [boss|employer]
a I work for {v}.
a My boss is {v}.
a {v}, [who never smiles|who counts every penny|and it could be worse].
a {v} pays my wages.
t [Late pay, long hours|Not a bad sort, on Fridays|I do what I'm told, mostly].
y do you work for {w}
y is your boss {w}
= apprentice
v <is|am|are> training [a young helper|an apprentice][ called| named|,] {v}
v <has|have> an apprentice[ called| named|,] {v}
v <teaches|teach> {P} craft to young {v}
s {P} [apprentice|helper|assistant] is [called |]{v}
s ~Young {v} carries {P} tools and learns
l Apprentice; Helper; Assistant; ~Pupil
? v
q do you have [an apprentice|a helper|an assistant]
q who[ is|'s] your [apprentice|helper|assistant]
q who helps you [with your work|]
q are you teaching anyone
q what[ is|'s] your apprentice called
q ~who will carry on your work when you are gone
i who your apprentice is
i who helps you
n your [apprentice|helper]
a My apprentice is {v}.
a {v} helps me out.
a I'm training {v}[|, who is clumsy but eager|, who asks too many questions].
t [Bright kid, breaks everything|Give it ten years|Reminds me of myself].
y is your apprentice called {w}
= pet
v <has|have> {ax} [called|named] {n}
v <owns|own> {ax}, {n}
v <keeps|keep> {ax} [called|named] {n}
v <lives|live> with {ax} [called|named] {n}
v <shares|share> {P} [bed|house|breakfast|home] with {n}, {ax}
v ~<is|am|are> never seen without {n}, {ax}
s {P} pet is {ax} [called|named] {n}
s {P} companion is {n}, {ax}
s {n}, {ax}, [follows {O} everywhere|is {P} constant companion|sleeps at {P} feet]
s ~At {P} heels trots {n}, {ax}
l Pet|{n}, {ax}; Pets|{ax} named {n}; Animal|{n} ({x}); ~Four-legged or feathered friend|{n}, {ax}
? x
q do you have [any |a |]pets[| at home]
q what kind of [pet|animal] do you have
q you got any animals[ at home|]
q do you keep [any |]animals
q what sort of animal is {n}
q have you got a pet
q ~is there anything with paws or feathers [at your place|in your house]
q ~what creature shares your home
i what kind of pet you have
i whether you keep any animals
i ~what animal keeps you company
n your pet
a I have {ax} called {n}.
a Yes, {ax}. [The name's {n}|{n} is the name].
a {ax}, {n} by name.
a There's {n}, my {x}.
t [Eats better than I do|Rules the house|Best company there is].
y do you have {aw}
? n
q what[ is|'s] your pet's name
q what[ is|'s] your [pet|animal|{b}] called
q what[ is|'s] your {b}'s name
q what did you name your {b}
q what do you call your {b}
q ~what do you shout when you want your {b} to come
i what your pet is called
i what your {b} is called
i ~what you shout when it is time to feed your {b}
n your [pet|{b}]'s name
a [My {b}|My pet] is called {n}.
a {n}. [Comes when called, sometimes|It suits the little beast|The children picked it].
a Its name is {n}.
t [Ate my shoe yesterday|Spoiled rotten, that one|Sleeps all day long].
y is your pet called {w}
= craft
v <owns|own> a [boat|cart|barge|van|sailing boat|wagon|bicycle|motorcycle|truck|little ship][ called| named|,] {v}
v <travels|travel> in {P} old [wagon|boat|van|cart], {v}
v ~<trusts|trust> nothing on the road or water but {P} [van|boat|cart] {v}
s {P} [boat|cart|barge|van|wagon|ship] is called {v}
s ~Painted on the side of {P} [boat|wagon] is the name {v}
l Boat or cart; Vehicle; Travels in; ~Name on the hull
? v
q what[ is|'s] your [boat|cart|ship|van|vehicle] called
q what do you travel in
q how do you get around
q do you have a [boat|cart|wagon|vehicle]? what[ is|'s] it called
q what[ is|'s] the name of your [boat or cart|vehicle]
q ~what name is painted on the side of what you drive
i how you get around
i what you travel in
n your [boat|cart|van|vehicle]
a She's called {v}.
a I get around with {v}.
a {v}, [she's old but she moves|and she leaks a little|that's what I call her].
t [She groans on the hills|I painted her myself|She's never let me down twice].
= food
v <loves|love> {v}
v <adores|adore> {v} more than any other food
v <could|could> eat {v} every day
v <is|am|are> [very |]fond of {v}
v <has|have> a weakness for {v}
v <likes|like> nothing better than [a plate of |]{v}
v ~never <says|say> no to {v}
s {P} favourite [food|dish|meal] is {v}
s {P} favorite food is {v}
s Nothing makes {O} happier than {v}
s ~Put {v} on the table and {S} will stay for hours
l Favourite food; Loves to eat; Favourite dish; Favorite food; ~Eats with delight
? v
q what[ is|'s] your [favourite|favorite] [food|dish|meal]
q what do you [like|love] to eat
q what do you like eating best
q if I cooked for you, what should I make
q what should I cook for you
q what food do you like [most|best|]
q are you hungry? what would you like
q ~what would be your last meal
q ~what makes your mouth water
i what you like to eat
i what your favourite food is
i ~what would lure you to a table
n your favourite [food|dish]
n the food you like best
a I love {v}.
a My favourite is {v}.
a {v}! [I could eat it every day|Give me a plate and I'm yours|Always and for ever].
a Nothing beats {v}.
a I'd walk a mile for {v}.
t [Now I'm hungry|My grandmother made the best|Second helpings, always].
y is your favourite food {w}
y do you like {w} best
= hated_food
v <hates|hate> [the taste of |]{v}
v <cannot|cannot> stand [the taste of|eating] {v}
v <refuses|refuse> to eat {v}
v <would|would> rather starve than eat {v}
v ~<turns|turn> green at the sight of {v} on a plate
s The food {S} <hates|hate> most is {v}
s ~No one has ever got {O} to swallow {v}
l Hated food; Won't eat; Food dislike; ~Never serve
? v
q what food do you hate
q what don't you like to eat
q is there [anything|any food] you won't eat
q which food can't you stand
q what should I never cook for you
q ~what would you feed to the dog under the table
q ~what dish makes you gag
i what food you hate
i what you never eat
i ~what I should keep off your plate
n the food you hate
n your most hated food
a I hate {v}.
a {v}. [I can't even look at it|Keep it away from me|I'd rather eat my shoe].
a I never eat {v}.
a Anything but {v}!
t [It was served to me every week as a child|One bite was enough|Don't tell the cook].
y do you hate {w}
= drink
v <drinks|drink> {v} [every evening|every morning|with every meal|whenever {S} can]
v <is|am|are> never without a [cup|glass|mug|flask] of {v}
v <prefers|prefer> {v} to any other drink
v ~<ends|end> each day over a [mug|glass] of {v}
s {P} favourite drink is {v}
s {P} drink of choice is {v}
s ~Pour {O} some {v} and {S} will talk
l Favourite drink; Drinks; Drink; ~In the cup
? v
q what do you [like to |]drink
q what[ is|'s] your favourite drink
q can I get you [something to drink|a drink]? what'll it be
q what would you like to drink
q what's your drink
q ~what should I pour you
q ~what's in your cup
i what you drink
i what your favourite drink is
i ~what should go in your cup
n your favourite drink
a {v}, [please|if you have it|every time].
a I drink {v}.
a My favourite is {v}.
a I'd never say no to {v}.
t [It warms the bones|One cup, then two|Nothing else settles my nerves].
y is {w} your favourite drink
= colour
v <loves|love> the [colour|color] {v}
v <prefers|prefer> {v} to all other colours
v <dresses|dress> in {v} whenever {S} can
v ~<would|would> paint the whole world {v}
s {P} favourite [colour|color] is {v}
s {P} favorite color is {v}
s ~Of all the shades there are, {v} pleases {O} most
l Favourite colour; Favorite color; Colour; ~Shade loved best
? v
q what[ is|'s] your [favourite|favorite] [colour|color]
q which [colour|color] do you like [best|most]
q what colour do you love
q what colour should I [knit you a scarf in|paint your door]
q ~what would your rainbow be made of
i what your favourite colour is
i which colour you like best
i ~which paint I should buy for you
n your favourite colour
a My favourite colour is {v}.
a {v}. [It calms me|Always has been|Like the sky of my childhood, in a way].
a I like {v} best.
t [It suits my eyes|I have too much of it already|It makes me feel brave].
y is your favourite colour {w}
= hobby
v <spends|spend> {P} free time {v}
v <enjoys|enjoy> {v}
v <likes|like> {v} [on quiet evenings|on Sundays|after work|when nobody is looking]
v <relaxes|relax> by {v}
v ~<forgets|forget> the hour when {v}
s {P} hobby is {v}
s In {P} spare time {S} <loves|love> {v}
s ~The hours that belong to {O} go to {v}
l Hobby; Pastime; Free time; Enjoys; ~Sundays
? v
q what are your hobbies
q do you have a hobby
q what do you do [for fun|in your free time|in your spare time|to relax|after work]
q how do you spend your [free time|evenings off]
q what do you enjoy doing
q ~what do you do when nobody needs you
q ~how do you fill a rainy Sunday
i what your hobby is
i what you do for fun
i ~how you fill an empty afternoon
n your hobby
n your free time
a I like {v}.
a My hobby is {v}.
a {v}, [whenever I have an hour|it clears my head|that's my great joy].
a In my spare time you'd catch me {v}.
t [It costs little and gives much|My hands need something to do|I'm not good at it, but I'm happy].
y is your hobby {w}
= book
v <is|am|are> reading a book called {v}
v <has|have> read {v} [seven|twenty|a dozen] times
v <carries|carry> a worn copy of {v}
v ~<knows|know> whole chapters of {v} by heart
s {P} favourite book is {v}
s ~On {P} night table lies {v}
l Favourite book; Reading; Book; ~On the night table
? v
q what[ is|'s] your favourite book
q what are you reading[ at the moment|]
q do you [like to |]read? which book
q which book do you love most
q can you recommend a book
q ~which book would you save from a fire
i which book you like best
i what you are reading
i ~which book lies by your bed
n your favourite book
a {v}. [Have you read it?|It made me cry twice.|I know it nearly by heart.]
a My favourite book is {v}.
a I keep going back to {v}.
t [The ending is the best part|The margins are full of my notes|Borrow it, but bring it back].
y is your favourite book {w}
= song
v <hums|hum> {v} [while working|all day long|under {P} breath]
v <sings|sing> {v} when {S} <is|am|are> happy
v <knows|know> only one song, {v}
v ~<falls|fall> asleep to {v}, sung softly
s {P} favourite song is {v}
s The song {S} <loves|love> most is {v}
s ~If you hear {v} on the stairs, it is {O}
l Favourite song; Song; Always humming; ~Tune
? v
q what[ is|'s] your favourite song
q what song do you like [best|]
q what do you sing
q what's that [tune|song] you are humming
q which song do you know
q ~what tune is stuck in your head
i what song you like
i what you are humming
i ~what tune is in your head
n your favourite song
a {v}. [I hum it all day|My mother used to sing it|I can't get it out of my head].
a My favourite song is {v}.
a It's called {v}.
t [I only know half the words|Hum along if you like|It goes best with rain].
y is your favourite song {w}
= instrument
v <plays|play> the {v}
v <is|am|are> learning [to play |]the {v}
v <plays|play> the {v} [badly|rather well|at weddings|in the evenings]
v ~<makes|make> the {v} weep and laugh
s {P} instrument is the {v}
s {S} <has|have> played the {v} since childhood
s ~Hand {O} {av} and the room goes quiet
l Instrument; Plays; Music; ~Makes music on
? v
q do you play [an |any |]instrument
q what instrument do you play
q can you play any music
q are you musical? what do you play
q ~what would you bring to a band
i what instrument you play
i whether you play any music
n your instrument
a I play the {v}.
a The {v}[|, though the neighbours complain|, since I was small].
a I'm no master, but I play the {v}.
t [My fingers are rusty|I'll play for you some day|It's out of tune, like me].
y do you play the {w}
= fear
v <is|am|are> [afraid|terrified|scared] of {v}
v <fears|fear> {v} [more than anything|above all|]
v <has|have> [a deep|a great|a secret|an old] fear of {v}
v <cannot|cannot> bear {v}[| without shaking]
v <panics|panic> at the thought of {v}
v ~<breaks|break> into a cold sweat because of {v}
s {P} [greatest|worst|secret|biggest] fear is {v}
s Nothing frightens {O} like {v}
s The thing that [frightens|scares|terrifies] {O} most is {v}
s ~At night {S} <checks|check> the room for {v}
l Fear; Afraid of; Fears; Scared of; ~Nightmares about
? v
q what are you [afraid|scared|frightened] of
q what[ is|'s] your [greatest |biggest |worst |]fear
q what frightens you[ most|]
q is there anything that scares you
q do you have any fears
q what gives you nightmares
q ~what makes your knees shake
q ~what would make you run out of the room
i what you are afraid of
i what scares you
i ~what makes you lie awake in terror
n your [greatest |]fear
a I'm afraid of {v}.
a {v}. [Don't laugh|It makes me shiver just to say it|There, I said it].
a I can't stand {v}[|, not even in pictures].
a {v}, [if you must know|and I'm not ashamed of it|ever since I was small].
t [We all have something|Promise not to tell|I know it's silly].
y are you afraid of {w}
y is it true that you fear {w}
= peeve
v <hates|hate> [it when |]people who {v}
v <cannot|cannot> stand people who {v}
v <loses|lose> {P} temper with people who {v}
v ~<has|have> no patience for anyone caught when they {v}
s Nothing annoys {O} more than people who {v}
s {P} pet peeve is people who {v}
s ~Some folk {v}, and {S} will not sit at a table with them
l Annoyed by people who; Pet peeve|people who {v}; Dislikes|people who {v}; ~Gets cross with folk who
? v
q what annoys you
q what makes you angry
q what do you dislike[ most|]
q what gets on your nerves
q do you have a pet peeve
q what can't you stand in people
q ~what would make you throw someone out
i what annoys you
i what makes you angry
i ~what gets under your skin
n your pet peeve
a People who {v}.
a I can't stand people who {v}.
a It's when people {v}. [My blood boils|I have to leave the room|Drives me mad].
t [Manners cost nothing|I try to stay calm|Don't let me start].
= theft
v once [stole|took|pocketed] {ao} from {w2}
v secretly stole {ao} from {w2}
v <has|have> never told anyone that {S} stole {ao} from {w2}
s {P} secret is that {S} stole {ao} from {w2}
s Nobody knows that {S} once took {ao} from {w2}
s ~{S} <sleeps|sleep> badly because of {ao}, lifted from {w2}
l Secret|stole {ao} from {w2}; Hidden past|took {ao} from {w2}; ~Buried guilt|lifted {ao} from {w2}
? o
q do you have a secret
q what[ is|'s] your secret
q what have you never told anyone
q what did you steal
q have you ever stolen anything
q did you ever do something bad
q ~what would you confess to a priest
q ~is there something on your conscience
i what your secret is
i what you once stole
i ~what weighs on your conscience
n your secret
a I stole {ao} once. From {w2}.
a Quiet now... I took {ao} from {w2}.
a [Can you keep a secret? |Come closer. |]I once stole {ao}.
t [I've never told a soul|I would give it back if I could|Don't you dare repeat it].
? w2
q who did you steal [it |]from
q who did you rob
q ~whose pocket did you pick
i who you stole from
n the one you stole from
a From {w2}[|, may I be forgiven].
a It belonged to {w2}.
a I took it from {w2}.
= dream
v <dreams|dream> of {v}
v <hopes|hope> to spend {P} old age {v}
v <wants|want> nothing more than {v}
v <longs|long> for the day of {v}
v ~<saves|save> every coin for {v}
s {P} [dream|great dream|secret dream|ambition] is {v}
s One day {S} <hopes|hope> to be {v}
s ~Ask what keeps {O} going and it is the thought of {v}
l Dream; Ambition; Wish; Goal; ~Heart's desire
? v
q what do you dream of
q what[ is|'s] your [dream|ambition|greatest wish|goal in life]
q what do you want [most|from life|in life]
q what would you like to do one day
q do you have a dream
q what are you hoping for
q ~what would you do if you had all the money in the world
q ~what are you saving up for
i what you dream of
i what you want from life
i ~what you would do if you were free to choose
n your dream
n your [greatest wish|ambition]
a I dream of {v}.
a {v}. [One day, you'll see|That's all I want|It may never happen, but I can hope].
a My dream is {v}.
t [A person needs something to look forward to|I've started saving|Don't laugh].
y do you dream of {w}
= regret
v <regrets|regret> {v}
v <has|have> always regretted {v}
v <is|am|are> sorry about {v} [to this day|]
v ~<would|would> give an arm to undo {v}
s {P} [great|biggest|one|only] regret is {v}
s ~What still keeps {O} awake is {v}
l Regret; Regrets; Biggest mistake; ~Would undo
? v
q do you [regret anything|have any regrets]
q what do you regret[ most|]
q what[ is|'s] your [biggest |greatest |]regret
q what was your biggest mistake
q is there anything you would do differently
q ~if you could turn back time, what would you undo
i what you regret
i what your biggest mistake was
i ~what you would undo
n your [biggest |]regret
a I regret {v}.
a {v}. [I think of it still|I was young and stupid|I'd undo it if I could].
a My one regret is {v}.
t [We can't turn back the clock|I learned from it|Some nights are long].
= treasure
v <treasures|treasure> {ao} [given to {O} by|from] {g}
v <owns|own> {ao} that once belonged to {g}
v <keeps|keep> {ao} from {g}
v <guards|guard> {ao}, a gift from {g}
v ~never <lets|let> go of {ao}, handed down by {g}
s {P} most precious possession is {ao} from {g}
s {g} gave {O} {ao}, which {S} <treasures|treasure>
s ~In {P} pocket rests {ao} that {g} left to {O}
l Treasure|{ao} from {g}; Prized possession|{ao}, a gift from {g}; Most precious thing|{ao} ({g} gave it); ~Heirloom|{ao}, left by {g}
? o
q what[ is|'s] your most [precious|prized|treasured] possession
q what do you treasure[ most|]
q what[ is|'s] the most precious thing you own
q do you own anything special
q what would you save from a fire
q do you have a treasure
q ~which thing would you never sell
q ~what did {g} [give|leave] you
i what your most precious possession is
i what you treasure most
i ~what you would never sell
n your most [precious|treasured] possession
n your treasure
a My {o}. [{g} gave it to me|It came from {g}].
a {ao}, [a gift from {g}|from {g}].
a I treasure my {o}.
t [I'd sooner lose a finger|It isn't worth much, except to me|It goes where I go].
y is your greatest treasure {aw}
? g
q who gave you [your |the |that ]{o}
q who did you get [your|the] {o} from
q where did you get [your|the|that] {o}
q ~whose {o} was that before it was yours
i who gave you your {o}
i where your {o} comes from
a {g} gave it to me.
a It was a gift from {g}.
a I got it from {g}.
y did you get it from {w}
= tool
v <calls|call> {P} trusty {o} {n}
v <never|never> <works|work> without {P} {o}, which {S} <calls|call> {n}
v <has|have> {ao} with a name, {n}
s {P} {o} is called {n}
s ~{n} is what {S} <named|named> {P} {o}
l Tool|{ao} called {n}; Trusty {o}|{n}; ~Right hand|{n}, {ao}
? n
q what[ is|'s] your {o} called
q does your {o} have a name
q what did you name your {o}
q what do you call your {o}
q ~by what name do you speak to your {o}
i what your {o} is called
n the name of your {o}
a I call it {n}.
a {n}. [We've been through a lot together|Good tools deserve a name|Don't laugh, it listens].
a My {o} is called {n}.
t [Never failed me|I talk to it when nobody's around|It knows my grip].
y is your {o} called {w}
= hiding
v <hides|hide> {P} [savings|money|spare key|letters|diary|gold] in {v}
v <keeps|keep> {P} [savings|spare key|letters|diary|coins] hidden in {v}
v ~<trusts|trust> {P} [savings|money|gold] to no bank, only to {v}
s {P} [savings|money|spare key|letters|diary|gold] [is|lies] hidden in {v}
s {P} hiding place is {v}
s ~Thieves would never think to look for {P} [gold|money|savings] in {v}
l Hiding place; Hides valuables in; ~Secret stash
? v
q where do you [hide|keep] your [valuables|secret things|hidden things]
q where[ is|'s] your hiding place
q do you have a hiding place
q where do you hide things
q where would I find your hidden things
q ~where should a thief look in your house
i where you hide things
i where your hiding place is
i ~where a clever thief should look
n your hiding place
a In {v}. [Not a word to anyone|Who would look there|Now I'll have to move it].
a I hide it in {v}.
a It's in {v}[|, but you didn't hear it from me].
t [You have an honest face, so I tell you|Banks make me nervous|Even my family doesn't know].
y do you hide things in {w}
= charm
v always <carries|carry> {av} for luck
v <wears|wear> {av} around {P} neck for luck
v never <leaves|leave> the house without {av}
v <believes|believe> {av} brings {O} luck
v ~<rubs|rub> {av} before every important thing
s {P} lucky charm is {av}
s ~Fortune, {S} <says|say>, lives in {av}
l Lucky charm; Carries for luck; Talisman; ~Wards off evil with
? v
q do you have a lucky charm
q what[ is|'s] your lucky charm
q what do you carry [in your pocket|with you] for luck
q what do you carry for luck
q what brings you luck
q are you superstitious? do you carry something
q ~what keeps bad luck from your door
i what your lucky charm is
i what brings you luck
n your lucky charm
a {av}. [I never leave the house without it|It's worked so far|Laugh all you like].
a I carry {av} for luck.
a My lucky charm is {av}.
t [Better safe than sorry|Touch it if you like|The one day I forgot it, I broke my toe].
y is your lucky charm {aw}
= wake
v <gets|get> up at {v} every [day|morning]
v <wakes|wake> at {v}
v <rises|rise> at {v}
v ~<has|have> {P} boots on by {v}
s {P} day [starts|begins] at {v}
s ~The alarm in {P} room goes off at {v}
l Gets up at; Wakes at; Day starts at; ~Up by
? v
q when do you get up
q what time do you [get up|wake up|rise]
q at what time does your day [start|begin]
q are you an early riser? when do you get up
q ~when do your feet touch the floor in the morning
i when you get up
i what time you wake up
n the time you get up
a I get up at {v}.
a At {v}[|, whether I like it or not|, before the birds|, like a clock].
a My day starts at {v}.
t [The morning is the best part|I need no alarm|I grumble until breakfast].
y do you get up at {w}
= dayoff
v <goes|go> to the market [every|on] {v}
v <sells|sell> at the market every {v}
v <goes|go> to market on {v}s
v ~<sets|set> up a stall each {v}
s {P} market day is {v}
s ~When {v} comes around {S} <heads|head> for the market stalls
l Market day; At the market every; ~Stall open on
? v
q when do you go to the market
q which day [is|'s] your market day
q on what day [are you at|do you go to] the market
q what day do you go to market
q ~on which day would I meet you between the market stalls
i when you go to the market
i which day is your market day
n your market day
a I go to the market on {v}.
a Every {v}.
a {v} is my market day.
t [Come early, the good things go first|Rain or shine|I always buy too much].
y do you go to the market on {w}
= tavern
v <eats|eat> at {v} [every night|most evenings|on Fridays]
v <is|am|are> a regular at {v}
v <drinks|drink> at {v} after work
v <spends|spend> {P} evenings at {v}
v ~<has|have> a chair with {P} name on it at {v}
s {P} favourite [inn|tavern|place to eat|pub] is {v}
s ~The landlord of {v} knows {O} well
l Favourite inn; Eats at; Regular at; ~Evenings at
? v
q where do you [eat|go in the evening|drink|spend your evenings]
q what[ is|'s] your favourite [inn|pub|tavern|place to eat]
q where do you go for a [drink|meal]
q where could we go for a bite
q which tavern do you like
q ~where does the landlord know you by name
i where you spend your evenings
i where you go for a drink
i ~where I could find you after dark
n your favourite [inn|tavern]
a I go to {v}.
a {v}. [Best stew in town|They know me there|Warm fire, bad songs].
a You'll find me at {v} most evenings.
t [Join me some time|The chairs are hard, but the talk is good|I still owe them for last week].
y do you eat at {w}
= night
v secretly <keeps|keep> on {v} at night
v <spends|spend> {P} nights {v}
v <cannot|cannot> sleep without first {v}
v ~<is|am|are> awake past midnight, {v}
s At night {S} <is|am|are> found {v}
s ~When the town sleeps {S} <is|am|are> busy {v}
l At night|{v}; Nights|{v}; ~After midnight|{v}
? v
q what do you do at night
q how do you spend your nights
q what do you do when you can't sleep
q what are you up to after dark
q ~what keeps you up past midnight
i what you do at night
i how you spend your nights
n your nights
a At night? I'm {v}.
a {v}, mostly. [Sleep can wait|The dark is good company|It's quiet then].
a I spend my nights {v}.
t [I sleep in on Sundays|Candles are expensive, though|Nobody disturbs me then].
= former
v used to be {av}
v <was|was|were> {av} [before|once|years ago|in {P} youth|in another life]
v <worked|worked> as {av} [when {S} <was|was|were> young|for a few years|long ago]
v <gave|gave> up being {av}
v ~<left|left> the life of {av} behind
s {P} former job was that of {av}
s ~Before all this {S} <earned|earned> coins as {av}
l Former job; Used to be; Past; Earlier work; ~In another life
? v
q what did you do before[ this| that|]
q what did you [use to be|do in the past|work as before]
q what was your [first|old|former|previous] job
q have you always done this work? what came before
q what were you in your [earlier life|youth]
q ~what did you leave behind for this life
i what you did before
i what your old job was
i ~what you were in your old life
n your [old|former] job
a I used to be {av}.
a I was {av} before.
a {av}, [believe it or not|in another life|but that's long ago].
a Once I was {av}.
t [I don't miss the hours|Those were hard years|I still have the shoes].
y did you use to be {aw}
y were you {aw} before
= scar
v <has|have> a scar [on {P} chin|on {P} cheek|over one eye|on {P} left hand|on {P} arm] from {v}
v <limps|limp> because of {v}
v <lost|lost> a [finger|tooth|toe] to {v}
v ~<bears|bear> a mark left by {v}
s {P} scar comes from {v}
s ~The doctor stitched {O} up after {v}
l Scar|from {v}; Old injury|from {v}; ~Marked by|{v}
? v
q how did you get [that|your] [scar|injury]
q where does your [scar|old wound|injury] come from
q what happened to you[|, that injury]
q who or what hurt you
q how did you get hurt
q ~what left that mark on you
i how you got hurt
i where your scar comes from
n your [scar|old injury]
a It was {v}.
a That's from {v}.
a {v}. [It still hurts when it rains|You should have seen the blood|I was lucky].
t [It makes a good story|I don't think of it much|Children always ask].
= voyage
v once [travelled|sailed|walked|went] to {v}
v <spent|spent> [a year|two years|a winter|seven years|a summer] in {v}
v <has|have> been as far as {v}
v ~<crossed|crossed> half the world to see {v}
s {P} longest journey was to {v}
s {S} <came|came> back from {v} a changed person
s ~The stamps in {P} old passport are from {v}
l Travelled to; Journey to; Has been to; ~Farthest from home
? v
q have you [ever |]travelled
q where have you [travelled|been|travelled to]
q what[ is|'s|was] the farthest [place |]you have been
q where did your [great |longest |]journey take you
q have you seen the world? where did you go
q ~how far from home did you ever get
q ~what's the strangest land you have set foot in
i where you have travelled
i how far you have been
i ~what lands you have seen
n your [travels|great journey]
a I went to {v}.
a I've been to {v}[|, and back again|, once, and never again].
a {v}. [I'd go again tomorrow|The food was strange, the people kind|It took me weeks].
t [My feet still ache|I brought home nothing but stories|The sky looks different there].
y have you been to {w}
= lost
v <lost|lost> {ao} in {p}
v <is|am|are> still looking for {ao}, lost in {p}
v <left|left> {ao} behind in {p}
v ~<mourns|mourn> {ao}, gone missing in {p}
s {P} {o} was lost in {p}
s ~Somewhere in {p} lies {ao} that is {P} own
l Lost|{ao}, in {p}; Looking for|{ao}, lost in {p}; ~Missing|{ao}, last seen in {p}
? o
q have you lost [something|anything]
q what did you lose
q what are you looking for
q is there something you [miss|want back]
q ~what would you love to find again
i what you lost
i what you are looking for
n the thing you lost
a I lost {ao}. [In {p}|It was in {p}].
a My {o}. I lost it in {p}.
a {ao}, [and I want it back|gone for good, I fear].
t [If you find it, tell me|I retrace my steps every week|It can't have walked away].
? p
q where did you lose [it|your {o}|the {o}]
q where did your {o} go missing
q ~where should I look for your {o}
i where you lost your {o}
a In {p}.
a I lost it in {p}.
a It was in {p}[|, of all places].
y did you lose it in {w}
= subject
v <studied|studied> {v} [at school|for years|in {P} youth|by candlelight]
v <is|am|are> [good at|well versed in|an expert in] {v}
v <failed|failed> {v} [at school|twice]
v <knows|know> a great deal about {v}
v ~<has|have> {P} head full of {v}
s {P} favourite subject was {v}
s ~At school {S} sat up straight only for {v}
l Subject; Studied; School subject; ~Schooling in
? v
q what did you study
q which subject [did you study|do you know about]
q did you go to school? what did you study
q what did you learn at school
q ~what are your old schoolbooks about
i what you studied
i which subject you know
n your [studies|school subject]
a I studied {v}.
a {v}, [of all things|and I remember most of it|long ago].
a My subject was {v}.
t [The teacher threw chalk|It comes in handy now and then|I was always late for class].
y did you study {w}
= years
v <has|have> done this [work |]for {v} years
v <has|have> been in [the|this] trade for {v} years
v <has|have> {v} years of experience
v ~<looks|look> back on {v} years of the same work
s {P} working life has lasted {v} years
s ~For {v} years {P} hands have known no other work
l Years in the trade; Experience|{v} years; ~Time served|{v} years
? v
q how long have you [done this work|been doing this|worked|been in the trade]
q how many years have you worked
q how much experience do you have
q have you done this work for long
q ~how many years have your hands known this work
i how long you have worked
i how many years you have done this
n your years of experience
a I've done this for {v} years.
a {v} years[|, and still learning|, believe it or not|, come winter].
a It's been {v} years.
t [Time flies|My hands could do it asleep|I've seen it all].
y have you worked for {w} years
= debt
v <owes|owe> {m} to {w2}
v <owes|owe> {w2} {m}
v <is|am|are> in debt to {w2} for {m}
s {S} <has|have> a debt of {m} with {w2}
s ~{w2} wants {m} back from {O}
l Debt|{m} to {w2}; Owes|{w2}, {m}; ~In the red|{m}, creditor {w2}
? m
q do you owe anyone money? how much
q how much do you owe
q how big is your debt
q how much money do you owe
q ~what would it cost to set you free of debt
i how much you owe
n your debt
a I owe {w2} {m}.
a {m}. [It keeps me awake|I'll pay it back, I swear|To {w2}].
a It's {m}, all told.
t [Money runs through my fingers|I had a bad winter|Don't lend me any].
? w2
q who do you owe money to
q who are you in debt to
q who wants money from you
q ~who would come knocking for money
i who you owe money to
n the one you owe money
a I owe it to {w2}.
a {w2}. [And the interest grows|A patient soul, so far].
a To {w2}.
y do you owe money to {w}
= eyes
v <has|have> {v} eyes
v <looks|look> at the world with {v} eyes
v ~<stares|stare> at strangers out of {v} eyes
s {P} eyes are {v}
s ~People remember {O} for eyes of {v}
l Eyes; Eye colour; Eye color; ~Gaze
? v
q what colour are your eyes
q what colour eyes do you have
q what do your eyes look like
q what color are your eyes
q ~if I painted you, which colour would I need for your eyes
i what colour your eyes are
n your eye colour
a My eyes are {v}.
a I have {v} eyes.
a {v}, [like my mother's|they say|if you look closely].
t [They see less than they used to|Come closer and look|They are my best feature].
y are your eyes {w}
= garment
v always <wears|wear> {av}
v <is|am|are> never seen without {av}
v <wears|wear> {av} [in all weathers|even indoors|every day]
v ~<is|am|are> known from afar by {av}
s {P} [usual clothing|trademark] is {av}
s ~Whatever the weather, {av} belongs to {O}
l Wears; Clothing; Always wearing; ~Recognised by
? v
q what do you [usually |always |]wear
q what are you wearing
q how would I recognise you
q what do you look like? what do you wear
q ~how could I pick you out in a crowd
i what you wear
i how I could recognise you
n your clothes
a I always wear {av}.
a {av}, [rain or shine|as always|you can't miss me].
a Look for {av}.
t [It was a gift|It's seen better days|I feel naked without it].
y do you wear {aw}
= allergy
v <is|am|are> allergic to {v}
v <sneezes|sneeze> whenever {v} [is|are|comes] near
v <gets|get> a rash from {v}
v ~<must|must> stay well away from {v}, on doctor's orders
s {S} <has|have> an allergy to {v}
s ~A crumb or a whiff of {v} makes {O} ill
l Allergic to; Allergy; ~Makes ill
? v
q are you allergic to anything
q do you have any allergies
q what are you allergic to
q what makes you sneeze
q ~what should the cook leave out so that you don't get ill
i what you are allergic to
n your allergy
a I'm allergic to {v}.
a {v}. [My nose swells up like a turnip|One whiff and I sneeze for an hour|I itch all over].
a Keep {v} away from me, I'm allergic.
t [It started when I was seven|The doctor just laughed|Bring a handkerchief].
y are you allergic to {w}
= language
v <speaks|speak> {v}
v <speaks|speak> [fluent|a little|some|broken] {v}
v <grew|grew> up speaking {v}
v <is|am|are> learning {v}
v ~<dreams|dream> and <counts|count> in {v}
s {P} [mother tongue|second language] is {v}
s ~When angry {S} <switches|switch> to {v}
l Language; Speaks; Languages; ~Tongue
? v
q what language[s|] do you speak
q do you speak [any other languages|another language|any languages]
q which language do you know
q what[ is|'s] your other language
q ~in which tongue do you curse
i what languages you speak
i which other language you know
n your other language
a I speak {v}.
a {v}[|, though my accent is terrible|, learned the hard way].
a I know {v}.
t [I can order soup and curse|It took me years|I dream in it sometimes].
y do you speak {w}
= faith
v <prays|pray> to {v}
v <believes|believe> in {v}
v <swears|swear> by {v}
v ~<lights|light> a candle for {v} each evening
s {P} prayers go to {v}
s ~It is {v} who watches over {O}, they say
l Prays to; Faith; Swears by; ~Patron
? v
q do you believe in [anything|a god]
q who do you pray to
q what do you believe in
q what[ is|'s] your faith
q ~whose name do you call on in danger
i who you pray to
i what you believe in
n your faith
a I pray to {v}.
a I believe in {v}.
a {v}. [It has kept me safe so far|My whole family does|You may smile].
t [It doesn't hurt to ask|I light a candle now and then|Everyone needs something].
y do you pray to {w}
= club
v <belongs|belong> to {v}
v <is|am|are> a member of {v}
v <joined|joined> {v} [last year|years ago|in secret|at sixteen]
v ~<pays|pay> dues to {v}
s {P} [guild|club|society] is {v}
s ~{v} counts {O} among its own
l Member of; Guild; Club; ~Sworn to
? v
q are you [in|a member of] [a|any] [guild|club|society]
q what [guild|club|society] do you belong to
q which society are you a member of
q do you belong to [anything|some society or club]
q ~whose badge do you carry
i which club you belong to
n your [guild|club|society]
a I belong to {v}.
a I'm a member of {v}.
a {v}[|, though I shouldn't say so|, since my youth].
t [We meet when the moon is full|The handshake is secret|The dues are too high].
y are you a member of {w}
= door
v <lives|live> behind {av} door
v <has|have> {av} front door
v <painted|painted> {P} front door {v}
s {P} [front |]door is {v}
s The door of {P} house is painted {v}
s ~You can tell {P} house by its {v} door
l Front door; Door; ~House to look for|the one with {av} door
? v
q what colour is your [front |]door
q what does your [front |]door look like
q how do I recognise your [house|door]
q which door is yours
q ~on what colour of wood would I knock to visit you
i what colour your door is
n your front door
a My door is {v}.
a {v}[|, freshly painted|, you can't miss it|, though it's peeling].
a Look for the {v} door.
t [Knock twice|The bell is broken|It sticks when it rains].
y is your front door {w}
= password
v only <trusts|trust> people who know the password, {v}
v <opens|open> the door only to the word {v}
v <uses|use> the password {v}
s {P} password is {v}
s The secret word for {P} door is {v}
s ~Whisper {v} and {S} will let you in
l Password; Secret word; ~Whisper at the door
? v
q what[ is|'s] [the|your] [password|secret word]
q what word opens your door
q is there a password
q what should I say [at the door|to get in]
q ~which word do I have to whisper
i what the password is
i which word opens your door
n the [password|secret word]
a The password is {v}.
a {v}. [But you didn't hear it from me|Say it quietly|Don't write it down].
a Say {v}.
t [I change it every year|Only friends know it|Walls have ears].
y is the password {w}
= neighbour
v <lives|live> next door to {n}, {at}
v <has|have> a neighbour[ called| named|,] {n}, {at}
v ~<hears|hear> through the wall how {n}, {at}, snores
s {P} neighbour is {n}, {at}
s Next door lives {n}, {at}
s ~Only a thin wall parts {O} from {n}, {at}
l Neighbour|{n}, {at}; Lives next to|{n}, {at}; ~Over the fence|{n}, {at}
? n
q who[ is|'s] your neighbour
q who lives next door[ to you|]
q do you have neighbours
q what[ is|'s] your neighbour's name
q ~who would you borrow sugar from
i who lives next door
i who your neighbour is
n your neighbour
a My neighbour is {n}.
a {n} lives next door.
a {n}, {at}. [We get along|Noisy, but kind|Always borrowing my ladder].
t [The walls are thin|We share a fence and a grudge|Good soup, bad singing].
y is your neighbour called {w}
? t
q what does your neighbour do
q what[ is|'s] your neighbour's [job|trade|work]
q ~how does the person next door earn a living
i what your neighbour does
a [{n}|My neighbour] is {at}.
a {at}, and [never home|always up early|a busy one].
y is your neighbour {aw}
= collect
v <collects|collect> {v}
v <has|have> a collection of {v}
v <keeps|keep> a [shelf|drawer|cupboard|whole room] full of {v}
v ~<brings|bring> home new {v} from every walk
s {P} collection of {v} is [famous|enormous|{P} pride]
s ~There is hardly a free shelf in {P} house because of all the {v}
l Collects; Collection; ~Shelves full of
? v
q do you collect anything
q what do you collect
q what[ is|'s] in your collection
q do you have a collection
q ~what are your shelves full of
i what you collect
n your collection
a I collect {v}.
a {v}. [Hundreds of them|I can't help it|My house is full of them].
a I have a whole collection of {v}.
t [It started with just one|I can show you some day|There's always room for one more].
y do you collect {w}
= season
v <loves|love> {v} above all seasons
v <waits|wait> all year for {v}
v <is|am|are> happiest in {v}
v ~<comes|come> alive only when {v} arrives
s {P} favourite [season|time of year] is {v}
s ~Give {O} {v} and you can keep the other three
l Favourite season; Best time of year; ~Comes alive in
? v
q what[ is|'s] your favourite [season|time of year]
q which season do you like [best|most]
q when are you happiest in the year
q what time of year do you [love|like best]
q ~which quarter of the year would you keep
i which season you like best
n your favourite season
a I love {v}.
a {v}. [The air smells different then|Nothing compares|I wait for it all year].
a My favourite season is {v}.
t [Everything slows down|It's the light, I think|I'm a different person then].
y is your favourite season {w}
= breakfast
v <eats|eat> {v} for breakfast
v <has|have> {v} for breakfast every [day|morning]
v <starts|start> the day with {v}
v ~<is|am|are> no use to anyone before {P} morning {v}
s {P} breakfast is always {v}
s ~The first thing on {P} table each day is {v}
l Breakfast; Eats in the morning; ~First bite of the day
? v
q what do you [eat|have] for breakfast
q what did you have for breakfast
q what[ is|'s] your breakfast
q what do you eat in the morning
q ~what's the first thing on your plate each day
i what you have for breakfast
n your breakfast
a I have {v} for breakfast.
a {v}, [every day|as always|and plenty of it].
a Breakfast is {v}.
t [I never skip it|It keeps me going till noon|Nothing fancy].
y do you have {w} for breakfast
= prize
v once won {av} in a [contest|race|card game|bet|cooking contest]
v <won|won> {av} at the fair
v ~<took|took> home {av} as first prize
s {P} proudest moment was winning {av}
s ~The best day of {P} life ended with {av} as a prize
l Won|{av}; Prize|{av}; ~First prize|{av}
? v
q have you ever won [anything|a prize]
q what did you win
q what was your prize
q what[ is|'s] your proudest moment
q ~what did they hand you when you came first
i what you won
n your prize
a I once won {av}.
a {av}. [My proudest day|I still can't believe it|Everyone cheered].
a I won {av}[|, fair and square|, to everyone's surprise].
t [I should have retired then|My hands shook|I have witnesses].
y did you win {aw}
= garden
v <grows|grow> {v} [in {P} garden|on {P} balcony|behind the house|]
v <has|have> a garden full of {v}
v <looks|look> after {P} {v} like children
v ~<talks|talk> to the {v} behind {P} house
s {P} garden is full of {v}
s ~Behind {P} house nothing grows but {v}
l Garden; Grows; ~In the flowerbed
? v
q what do you grow
q do you have a garden? what grows there
q what grows in your garden
q what[ is|'s] in your garden
q are you a gardener? what do you plant
q ~what would I see in the beds behind your house
i what you grow
i what grows in your garden
n your garden
a I grow {v}.
a {v}. [They need patience|The snails love them too|Come and see them in bloom].
a My garden is full of {v}.
t [I talk to them|Rain does half the work|The soil is poor, but I try].
y do you grow {w}
= quest
v <is|am|are> searching for {v}
v <wants|want> to find {v}
v <has|have> sworn to find {v}
v <left|left> home to find {v}
v ~<will|will> not rest until {S} <has|have> laid eyes on {v}
s {P} [quest|mission|task] is to find {v}
s ~What drives {O} onward is {v}, not yet found
l Quest|find {v}; Mission|to find {v}; Searching for; ~Sworn task|to find {v}
? v
q what are you searching for
q what[ is|'s] your [quest|mission]
q why did you leave home
q what do you hope to find
q what brings you here
q what is it you seek
q ~what keeps you on the road
i what you are searching for
i what brings you here
n your [quest|mission]
a I'm searching for {v}.
a {v}. [I won't rest until I find it|Have you seen it|People say it's only a story].
a I want to find {v}.
t [I have a map, of sorts|The trail is cold|Wish me luck].
y are you searching for {w}
= fact_number
v <has|have> exactly {v} {c}
v <owns|own> {v} {c}
v <keeps|keep> {v} {c} at home
s There are {v} {c} in {P} house
s ~If you counted the {c} {S} <owns|own> you would get to {v}
l Number of {c}|{v}; Owns|{v} {c}; ~Count of {c}|{v}
? v
q how many {c} do you have
q how many {c} do you own
q how many {c} [are|have you] [at your place|in your house|got]
q what[ is|'s] the number of {c} you own
q ~if I counted your {c}, where would I end up
i how many {c} you have
n the number of your {c}
a I have {v} {c}.
a {v}. [I count them every week|One more would be too many|Not one less].
a There are {v} {c} in my house.
y do you have {w} {c}
= ritual
v always <begins|begin> the night by {v}
v <has|have> a habit of {v}
v <starts|start> every journey by {v}
v ~<cannot|cannot> begin anything without {v}
s {P} [strange habit|habit|odd habit] is {v}
s ~People smile about {O} {v}
l Habit; Odd habit; Quirk; ~Peculiarity
? v
q do you have any [odd|strange|funny|bad|] habits
q what[ is|'s] your [strange |odd |strangest |]habit
q is there something [odd|strange|special] about you
q what do people find odd about you
q ~what do folk smile about behind your back
i what your strange habit is
i what is odd about you
n your odd habit
a I have a habit of {v}.
a {v}. [I can't help it|Everyone laughs about it|It calms me].
a My odd habit is {v}.
t [We all have our ways|I don't even notice any more|My mother did the same].
= health
v <suffers|suffer> from {v}
v <complains|complain> about {v} [all day|]
v <is|am|are> troubled by {v}
v ~<takes|take> drops against {v}
s {S} <has|have> trouble with {v}
s ~The doctor comes weekly because of {P} {v}
l Ailment; Suffers from; Health; ~Doctor treats
? v
q are you [well|healthy|ill]? what's wrong
q what do you suffer from
q do you have any health troubles
q what[ is|'s] your ailment
q how[ is|'s] your health
q ~why does the doctor come to see you
i what you suffer from
i how your health is
n your health
a I suffer from {v}.
a It's {v}[|, nothing serious|, and it's worse in winter].
a {v}. [I try not to complain|The doctor shrugs|Old story].
t [Thank you for asking|A hot bath helps|I'll live].
"""

BODY = V.split("a bad back,weak knees,a stiff neck,sore feet,a bad tooth,headaches,hay fever,insomnia,a weak stomach,poor eyesight,deafness in one ear,a twisted ankle,cold hands,hiccups,seasickness,nosebleeds,a bad cough,gout,rheumatism,dizziness,a broken rib,toothache,a swollen thumb,flat feet,asthma,fainting spells,a ringing ear,an old fever")
RUDE = V.split("whistle indoors,talk with a full mouth,arrive late,slam doors,brag about money,never say thank you,spit on the floor,cheat at cards,kick dogs,waste bread,interrupt stories,snore in church,read over my shoulder,leave gates open,borrow and never return,laugh at their own jokes,haggle over pennies,chew loudly,step on flowers,lie about small things,gossip,boast about their ancestors,cut in line,shout before breakfast,forget birthdays,count other people's coins,hum off key,talk during concerts,feed the gulls,break promises")
GERUND = V.split("carving,painting,collecting,drawing,mending,sketching,repairing,studying,photographing,knitting,sewing,polishing,sorting,counting")
ACT = V.split("dancing,swimming,fishing,juggling,wrestling,baking,whittling,stargazing,hiking,rowing,skating,climbing,embroidery,chess,archery,fencing,yodelling,origami,beekeeping,birdwatching,gardening,singing,card tricks,dominoes,crossword puzzles,mushroom picking,kite flying,ghost hunting,bell ringing,storytelling,marbles,cooking,napping,tap dancing,calligraphy,cloud watching,bowling")
RITUAL = V.split("counting the stairs,knocking on wood,talking to the moon,kissing the doorframe,turning around twice,saluting magpies,humming to the kettle,folding napkins into birds,sleeping in boots,writing on walls,sniffing every book,bowing to trees,washing spoons twice,naming every spider,winding three clocks,lighting a single candle,whispering to the bees,tapping both shoes,sharpening pencils,apologising to furniture,saving breadcrumbs,counting backwards from fifty,wearing odd socks,tasting snow,touching every lamp post,reading gravestones,feeding the stove first,eating soup with a fork,blowing on dice,ironing handkerchiefs")
HURT = V.split("a fall from a roof,a duel,a bar fight,a runaway horse,a kitchen knife,a dog bite,a shipwreck,a falling bell,a broken bottle,a swan,an angry goose,a fishing hook,a house fire,a bear,a rusty nail,a carriage crash,a burst boiler,a snake bite,an arrow,a bull,a loose chandelier,a bicycle accident,a sledding race,an exploding stove,a wild boar,a slipped axe,a lightning strike,a cannon ball,a parrot,a falling ladder,a crocodile")
REGRET = V.split("not saying goodbye to {n},leaving {p},selling the family house in {p},lying to {n},never learning to swim,breaking a promise to {n},gambling away a horse,missing the last boat to {p},burning the letters from {n},not asking {n} to dance,refusing a job in {p},quarrelling with {n},running away from {p},never writing to {n},letting {n} take the blame,giving up the piano,turning down the hand of {n},not buying that house in {p}")
DREAM = V.split("opening an inn in {p},sailing to {p},writing a book about {o},owning a farm near {p},seeing {p} once before dying,building a boat out of {o},becoming mayor of {p},finding a cure for hiccups,opening a shop for {o},marrying in {p},walking to {p} on foot,learning to fly,buying a house in {p},making the finest {o} in the world,dancing for the queen of {p},a quiet cottage in {p},teaching children about {o},retiring to {p}")


def _cap_first(s):
    return s[0].upper() + s[1:]


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


def _pair(name, t):
    def make(r, s, b):
        v = t(r, s)
        return {name: v, "a" + name: V.an(v)}
    return make


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
