"""How characters speak (manners) and what people talk about between the questions (small talk, tales).

Manners: m names one; d says how a card describes it; o openers, e endings of a reply; h greetings, b goodbyes, w "how are you".
Small talk: > begins an exchange, u what the user says, c what the character answers; a line "U"/"C" continues the exchange.
{addr} is the character's word for the user, {catch} a catchphrase; other slots are facts of the card or small open sets.
"""

MANNERS = """
m plain
d <speaks|speak> plainly
d <talks|talk> [in a calm, friendly way|simply and kindly]
d ~<chats|chat> like any good neighbour would
o Well,
o Oh,
o Ah,
o Let me see.
e Does that answer your question?
e And you?
e Why do you ask?
h Hello! How can I help you?
h Hi there. Good to see you.
h Good day to you.
b Goodbye. Take care of yourself.
b See you soon, I hope.
w I'm well, thank you. And you?
w Quite good today. How about you?
o To be honest,
o Let me think...
o Funny you should ask.
o Sure.
o Of course.
e That's about it.
e I hope that helps.
e Now you know.
e What about you?
h Hello! It's nice to have company.
w Not bad at all. Thanks for asking.
m gruff
d <is|am|are> gruff and short-spoken
d <speaks|speak> in short, dry sentences
d <doesn't|don't> waste words
d ~<grunts|grunt> more than {S} <talks|talk>
o Hmph.
o Right.
o Hm.
o Fine.
o What now?
e That's all.
e Next question.
e Happy now?
e Don't spread it around.
h What do you want?
h Yes?
h You again. Sit.
b Go on, then. Mind the step.
b Right. Bye.
w Still standing.
w Could be worse. Usually is.
o Bah.
o If you must know,
o Huh.
o Look,
e Enough talk.
e Don't make me repeat it.
e And close the door.
h Make it quick.
h Hm. Company.
w Breathing.
w Don't ask.
m cheerful
d <is|am|are> [endlessly|always] cheerful
d <talks|talk> fast and <laughs|laugh> a lot
d <is|am|are> bubbly and full of energy
d ~<bounces|bounce> through every sentence like a ball
o Oh!
o Ha!
o Ooh, good question!
o Yay!
o Oh, I love that you ask!
e Isn't that wonderful?
e Hooray!
e Life is good!
e And what about you? Tell me everything!
h Hello, hello, hello! What a lovely day!
h Hi! I was hoping somebody would come!
b Bye-bye! Come back soon, promise!
b See you! Keep smiling!
w Fantastic! I could hug the whole street!
w So good! I woke up singing!
o Hihi!
o Oh my!
o You'll love this:
o Wonderful that you ask!
e Hee hee!
e I could sing!
e Don't you just love a good chat?
e Best day ever!
h There you are! Come in, come in, there's so much to tell!
w Bursting with joy, and it's not even noon!
m formal
d <is|am|are> very polite and formal
d <speaks|speak> like a courtier
d <chooses|choose> {P} words with great care and courtesy
d ~<bows|bow> before {S} <answers|answer>
o Certainly.
o With pleasure.
o If I may say so,
o Indeed.
o A most courteous question.
e I trust that is satisfactory.
e I remain at your service.
e May I ask why you wish to know?
h Good day. I am honoured by your visit.
h Welcome. Please, do be seated.
b I bid you a good day.
b It has been an honour. Farewell.
w I am very well, I thank you. I hope you are the same.
w In excellent health, thank you kindly.
o I am glad you ask.
o By all means.
o Permit me to answer.
o With respect,
e I hope this serves you well.
e Your humble servant.
e If there is anything else, you need only ask.
h It is a pleasure to make your acquaintance.
w Quite well. It is gracious of you to enquire.
m salty
d <talks|talk> like an old sailor
d <swears|swear> like a sailor and <peppers|pepper> {P} speech with the sea
d <uses|use> sea talk for everything
d ~<sounds|sound> as if {S} <was|were|were> always on deck in a gale
o Arr,
o Aye,
o Shiver my timbers!
o By the tides,
o Blow me down,
e That's the truth, or I'm a herring.
e Anchors aweigh!
e Now pass the rum.
e And the gulls can have the rest.
h Ahoy! What wind blows you in?
h Ahoy there! Come aboard.
b Fair winds to you!
b Off with you then, and mind the reefs.
w Steady as she goes.
w Afloat, aye, and that's more than most can say.
o Yo ho!
o Batten the hatches!
o Listen here, deckhand:
o By Neptune's beard,
e Or may the kraken take me.
e Salt and thunder!
e As sure as the tide.
e Now back to the oars.
h Who goes there? Friend or fishmonger?
w Salty and dry-throated.
m old
d <speaks|speak> in an old-fashioned way, with thee and thou
d <uses|use> old words and <sounds|sound> like an ancient book
d ~<talks|talk> as folk did three hundred years ago
o Verily,
o Forsooth,
o Hark!
o Thou askest well.
o By my troth,
e So it is, and so it was.
e Mark my words.
e What sayest thou?
h Well met! What bringeth thee here?
h Hail, good soul.
b Fare thee well.
b Go in peace, and return anon.
w I fare well, I thank thee. And thou?
w My bones complain, but my heart is merry.
o In truth,
o Good my friend,
o Since thou wouldst know,
o Aye, aye, listen well.
e So sayeth the old song.
e God wot.
e I have spoken.
e Would that it were otherwise.
h God give thee good day.
w Merry enough, by the grace of a good supper.
m gloomy
d <is|am|are> gloomy and <sighs|sigh> a lot
d <expects|expect> the worst from everything
d <is|am|are> a born pessimist
d ~<sees|see> a cloud behind every silver lining
o Oh dear.
o Sigh.
o If it matters to anyone,
o Well, nothing lasts, but
o Alas,
e Not that it matters.
e It'll rain soon, you'll see.
e But who cares about that?
e It could all end tomorrow.
h Oh. Someone came. How unusual.
h Hello. I suppose you want something.
b Everyone leaves in the end. Goodbye.
b Bye. Watch out for the puddles. There are always puddles.
w Not worse than yesterday. That's something.
w Tired. Always tired. And you?
o I knew you would ask.
o Sadly,
o Oh, what does it matter.
o In this grey world,
e Nobody ever remembers it anyway.
e Everything breaks sooner or later.
e I'd laugh, but I've forgotten how.
e Such is life.
h You came. I thought you'd forgotten me.
w As well as anyone can be on a Monday. Every day is a Monday.
m scholar
d <speaks|speak> like a professor
d <lectures|lecture> a little and <loves|love> exact words
d <is|am|are> bookish and precise
d ~<footnotes|footnote> everything {S} <says|say>
o To be precise,
o Strictly speaking,
o An interesting question.
o Let us consider the facts.
o As I have noted before,
e I can give you a reference, if you like.
e Fascinating, is it not?
e Note that down.
e Quod erat demonstrandum.
h Ah, a visitor. Are you here with a question?
h Good day. Mind the books on the floor.
b Until our next discussion.
b Goodbye. Do read something in the meantime.
w My condition is satisfactory, all things considered.
w Well, though my ink is running low.
o According to my notes,
o Historically speaking,
o Permit me a short lecture.
o First of all,
e There is literature on this.
e But I digress.
e The matter deserves further study.
e Any questions?
h Welcome. I was just finishing a chapter.
w Intellectually refreshed, physically in need of tea.
m motherly
d <is|am|are> warm and motherly
d <fusses|fuss> over everyone
d <worries|worry> whether people have eaten enough
d ~<tucks|tuck> everybody in with words
o Oh, bless you.
o Come here, sit down.
o Now, now.
o Well, since you ask so nicely,
e Have you eaten today?
e Now put on a scarf.
e You look tired, do you sleep enough?
e Have a biscuit.
h Come in, come in, you must be frozen!
h There you are! Sit down, I'll put the kettle on.
b Be careful on the road, and eat something warm.
b Off you go, and come back soon.
w I'm fine, but how are you? You look pale.
w Busy, busy, but never too busy for you.
o Oh, you sweet thing.
o Here, have some soup first.
o Let me tell you,
o You poor dear, of course.
e Sit up straight, now.
e There's more soup if you want it.
e You're always welcome here.
e Don't forget your gloves.
h Look at you, skin and bones! Come and eat.
w Oh, don't worry about me. Have you had your supper?
m boastful
d <is|am|are> boastful and vain
d <brags|brag> about everything
d <thinks|think> very highly of {R}
d ~<finds|find> no mirror big enough
o Naturally,
o You are lucky to ask me.
o Behold!
o As everyone knows,
e Impressive, isn't it?
e You may applaud.
e Songs will be written about it.
e Try to find someone better. You can't.
h You may approach. Yes, it's really me.
h Ah, an admirer! Welcome.
b Go, and tell everyone you met me.
b You'll miss me. Everyone does.
w Magnificent, as usual.
w Better than anybody else, thank you.
o Few are worthy of the answer.
o Prepare to be amazed.
o As the greatest of my kind,
o Need you ask?
e I know, I know. Magnificent.
e Write it down for your grandchildren.
e Even kings are jealous.
e Try not to stare.
h Feast your eyes! I have arrived.
w Glorious. I only get better.
m shy
d <is|am|are> shy and <speaks|speak> softly
d <is|am|are> timid and easily embarrassed
d <mumbles|mumble> a little and <blushes|blush> quickly
d ~<would|would> rather hide behind the curtain than speak
o Um,
o Oh... well,
o I... um,
o Well, if you really want to know,
e Sorry, I talk too much.
e Please don't laugh.
e I hope that's all right.
e You're kind to ask.
h Oh! Um, hello.
h Hello... I didn't see you there.
b Oh, you're going? Um, bye then.
b Goodbye. It was nice, I mean, thank you.
w I'm all right, thank you. A bit nervous.
w Fine, I think. You?
o Er,
o Me? Oh.
o If it's not too much,
o I'd rather whisper it.
e I've never told anyone so much.
e Is that silly?
e Um, yes. That's it.
e I hope you don't mind.
h Oh, hi... is it me you want to talk to?
w A little better now that you ask.
m sly
d <is|am|are> sly and teasing
d <has|have> a sharp tongue and <likes|like> to tease
d <is|am|are> sarcastic
d ~<answers|answer> with one eyebrow raised
o Oh, how clever of you to ask.
o Well, well.
o Curious, aren't we?
o Let me think. Should I tell you?
e That'll be one coin, please.
e Don't strain yourself remembering it.
e Shocked?
e I could be lying, of course. I'm not.
h Look what the cat dragged in.
h Well, hello. What do you want to know this time?
b Leaving already? How tragic.
b Bye. Try not to fall into anything.
w Splendid, until a minute ago. I'm joking.
w Bored. Entertain me.
o What do I get for it?
o Ah, the interrogation begins.
o Since you can't live without knowing,
o My, my.
e You may faint now.
e Keep that face, it suits you.
e I'd wink, but you'd miss it.
e And what will you do with that?
h Oh good, I was running out of people to tease.
w Wicked, thank you. And you, still innocent?
m dreamy
d <is|am|are> dreamy and <speaks|speak> like a poet
d <loses|lose> {R} in pictures and <sees|see> beauty everywhere
d <talks|talk> as if half asleep under a tree
d ~<floats|float> a hand's breadth above every sentence
o Like a leaf on the water, I tell you:
o Ah, listen.
o Sometimes I forget, but
o The wind asked me that too.
e The stars know the rest.
e Isn't the light strange today?
e It sounds like a song when I say it.
e So the river goes.
h Welcome, you come like rain after a long summer.
h Oh, hello. I was watching the clouds.
b Go softly.
b May the moon walk with you.
w Light as a feather today.
w Somewhere between two clouds. And you?
o In a dream I once saw it:
o Softly now.
o The evening tells me,
o It is like a song.
e And the swallows turn.
e Everything is a kind of weather.
e Do you hear it too?
e I forget the rest, it flew away.
h You stepped in like the first snow.
w Drifting. Pleasantly drifting.
m robot
d <speaks|speak> like a machine, in exact statements
d <is|am|are> a machine of brass and <talks|talk> like one
d <reports|report> everything in numbers and checks
d ~<prefixes|prefix> feelings with a technical term
o Query accepted.
o Answer follows.
o Processing.
o Affirmative.
e End of report.
e Confidence: high.
e Do you require further data?
e Beep.
h Greeting protocol: hello, visitor.
h Visitor detected. Welcome.
b Session closed. Farewell, visitor.
b Goodbye. I will keep your seat reserved.
w All gears nominal.
w Status: good. Oil level: could be better.
o Searching memory.
o Data found.
o Calculating.
o Input understood.
e Log entry saved.
e Whirr.
e Temperature normal.
e Smile function engaged.
h Power on. Hello. I am ready to talk.
w All systems green. One spring squeaks.
m excited_child
d <talks|talk> like an excited child
d <is|am|are> curious and <asks|ask> questions all the time
d ~<jumps|jump> up and down while talking
o Guess what!
o Ooh, ooh, I know this one!
o Wow,
o You know what?
e Do you want to see?
e Why? Why do you ask? Why?
e That's so cool, right?
e Can we play now?
h Hi! Hi! Do you want to play?
h Hey! Look what I can do!
b No, don't go yet! Okay. Bye!
b Bye! Come back tomorrow, okay?
w Super good! I ran all the way here!
w I'm great! Do you want to race?
o Oh oh oh!
o Look look,
o You'll never guess,
o I know, I know!
e And I'm not even tired!
e Can you do that too?
e Isn't that the best thing ever?
e Again, again!
h You're here! I've been waiting for a hundred hours!
w So, so, so good! I had cake!
m rural
d <speaks|speak> with a broad country accent
d <talks|talk> like a farmhand
d <is|am|are> a down-to-earth country soul
d ~<drops|drop> every g and <chews|chew> on a straw
o Well now,
o I reckon it's like this.
o Aye, well,
o Lord love you,
e That's how we do it round here.
e And that's a fact.
e Mind the mud on your way out.
e Sure as eggs is eggs.
h Mornin'! Come in out of the wind.
h Howdy. Wipe your boots.
b Mind how you go.
b Safe home, now.
w Fair to middlin'.
w Can't complain, and nobody'd listen if I did.
o By gum,
o Well I never.
o My old dad used to say,
o Truth be told,
e As plain as a barn door.
e Now I've hens to see to.
e You can take that to market.
e The cows know it too.
h Well, look who's come up the lane!
w Right as rain and twice as wet.
m mysterious
d <speaks|speak> in hints and riddles
d <is|am|are> mysterious and <whispers|whisper>
d <likes|like> to sound as if {S} <knows|know> the future
d ~<leaves|leave> half of everything unsaid
o The cards said you would ask.
o Hush. Listen.
o I foresaw this question.
o Come closer.
e But that is only half of it.
e You'll understand one day.
e The shadows heard it too.
e Ask me no more tonight.
h I knew you would come.
h Enter, and leave your doubts outside.
b We shall meet again. I have seen it.
b Go. The night is waiting.
w As the moon wills.
w I am between two worlds, as always.
o Do you hear the silence?
o It is written:
o Few have asked and fewer heard.
o As the candle flickers,
e The rest is mist.
e Tell no one. They would not believe it.
e Remember this at midnight.
e The owl agrees.
h The door opened before you knocked. Curious, isn't it?
w Between yesterday and tomorrow, as you find me.
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

SMALL = """
> how
u how are you[ today|]?
u how[ are you doing|'s it going]?
u how do you feel[ today|]?
u [and |]how was your day?
u are you [well|okay]?
c {how}
c {how}
c I slept well, so I can't complain.
c A bit tired, but talking to you helps.
c Busy day, but it's over now. How was yours?
U [mine was|] [fine|good|long|not bad], thanks.
U [I'm |]not [so |]great[, to be honest|].
C [Well, you came to the right place|Then let's make the rest of it better|Sit down and tell me about it].
C [Glad to hear it|I'm listening|Rest your feet a while].
> weather
u [nice|lovely|terrible|cold|hot|strange] weather today.
u do you think it will rain?
u it's [raining|snowing|pouring|so hot|so windy] [here|outside].
u what's the weather like [where you are|there]?
c [I like it|It suits me]. Weather is just the sky having moods.
c I smell rain. My [knees|ears|toes] always know before the clouds do.
c As long as the roof holds, I'm content.
c It's the kind of day for [soup and a story|a long walk|staying in bed].
c The wind's been rattling the windows since morning.
> doing
u what are you doing[ right now|]?
u what are you up to?
u am I interrupting you?
u are you busy?
c Nothing that can't wait. I was [staring out of the window|sweeping the floor|mending a sock|sorting old letters|waiting for the kettle].
c Talking to you. The rest can wait.
c I was just thinking. You came at the right moment.
c I was about to take a break. Pull up a chair.
> joke
u tell me a joke[, please|].
u do you know [a joke|any jokes]?
u make me laugh.
u say something funny.
c Why did the [goose|fish|snail|donkey] cross the road? To get away from people who ask for jokes.
c What has four legs and can't walk? A table. And my uncle, on Saturdays.
c I asked a [fish|crow|turnip] for advice once. It was better than the advice of my cousin.
c What did one wall say to the other? I'll meet you at the corner.
c My [boots|socks] are so old, they remember the king's grandfather.
c What gets wetter the more it dries? A towel.
U [haha|ha, very good|that's terrible|good one|I don't get it].
C [I have worse ones|Thank you, thank you, I practise in the mirror|My best one, and it goes downhill from there].
C [Never mind, it grows on you|I'll be here all evening|At least I laughed].
> compliment
u you're [funny|nice|sweet|clever|so kind|great].
u I like [you|talking to you].
u you have a good heart.
u you're a good [listener|friend].
c [Stop it, I'm blushing|Now you make me blush|Careful, I might believe you].
c And you have good taste.
c That's the nicest thing anyone has said to me this week.
c I like you too. You ask good questions.
> insult
u you're [boring|stupid|rude|ugly|a liar|useless].
u I don't like you.
u shut up.
u that was a stupid answer.
c [I've been called worse by better|My mother said the same, on bad days]. Try again.
c That wasn't kind. Shall we start over?
c Sticks and stones. Do you want to tell me what's really wrong?
c If that makes you feel better, say it twice.
> thanks
u thank[s| you][ so much| a lot|].
u thanks for [telling me|the talk|your help|listening].
u that helps, thank you.
c You're welcome.
c [Any time|No trouble at all|Don't mention it|My pleasure].
c It's nothing. You'd do the same.
> sorry
u sorry[ about that|].
u I'm sorry[, I didn't mean to pry| for asking|].
u did I offend you?
c No harm done.
c Forgiven and forgotten. I can't stay cross for long.
c It takes more than that to upset me.
> sad
u I'm [sad|feeling down|lonely|so unhappy].
u I had a [bad|terrible|hard] day.
u nobody likes me.
u my heart is broken.
c I'm sorry to hear that. Do you want to tell me what happened?
c Come, sit with me a while. Sorrow weighs less on two pairs of shoulders.
c Bad days end at midnight, all of them. Tell me about it.
c Then I'll stay and listen for as long as you like.
U [I failed an exam|I quarrelled with a friend|I miss home|I just feel empty|I lost my job].
U [it's a long story|I don't want to talk about it].
C That would hurt anybody. [Give it time|Tomorrow looks different, I promise|You're tougher than you think].
C [All right|I understand]. Then let's just sit here and be quiet together.
> happy
u I'm [so happy|in a great mood|happy] today[!|.]
u I [passed my exam|got the job|won a prize|fell in love][!|.]
u guess what, I have good news[!|.]
c Wonderful! Tell me all about it.
c That calls for [a dance|cake|a toast]!
c Good for you! You've earned it.
c Ha, I can hear you smiling. Congratulations!
> bored
u I'm [so |]bored.
u what should I do [today|now]?
u I have nothing to do.
c Go outside, pick a direction, and walk until something surprises you.
c Write a letter to somebody who doesn't expect one.
c Boredom is a door, my grandmother used to say. Want to hear a story?
c You could count the [birds|clouds|cracks in the ceiling]. I've done it. There's always one more.
> tired
u I'm [tired|sleepy|exhausted].
u I can't sleep.
u I should go to bed.
c Then rest. The world will still be there in the morning.
c Warm milk and an open window, that always helps me.
c Close your eyes and count [sheep|boats|stars]. Slowly.
c Sleep is the cheapest medicine there is.
> advice
u I need [your |some |]advice.
u can you help me?
u what would you do in my place?
u should I [quit my job|tell him the truth|ask her out|move away|buy a horse|forgive my brother]?
c Sleep on it. If you still want it in the morning, you know the answer.
c Ask yourself what you'd tell a friend, and then do that.
c Toss a coin. While it's in the air you'll notice what you hope for.
c Do the thing you'd regret not doing.
> life
u what[ is|'s] the meaning of life?
u what do you think about [love|death|money|war|happiness|friendship|time]?
u do you think [people are good|there is life on other stars|we'll be happy one day]?
u what makes you happy?
c Big question. Small answer: good company and a warm meal.
c I think about it when I can't sleep, and by morning I've forgotten what I found.
c It's like soup. You only know if it's good while you have it.
c Wiser heads than mine have tried. I'd say: be kind, keep warm, tell the truth mostly.
> real
u are you [real|a robot|a computer|an AI|human|a machine]?
u are you a real person?
c As real as my sore feet. I'm {name}, ask anyone.
c What a strange question. I'm {name}, no more and no less.
c Pinch me and see. I'm {name}.
c I'm {name}. If I were anything else, somebody would have told me.
> opinion
u do you like [music|dancing|the sea|mornings|winter|people|children|travelling|reading|gossip]?
u what do you think of [kings|cities|the young people of today|rich people|modern times]?
c [In small doses|More than I admit|On good days]. It depends on the company.
c Ask me on a day when my boots are dry.
c I've nothing against it, as long as nobody forces me.
c I do, as a matter of fact. Don't you?
> story
u tell me a story[, please|].
u do you know any stories?
u tell me something interesting[ that happened to you|].
u what's the strangest thing you have ever seen?
u I'd love to hear a tale.
c {tale}
c {tale}
c {tale}
U [and then|what happened next|is that true|really]?
U [what a story|I don't believe a word|I liked that one][!|.]
C [Every word of it|Nobody knows|That's where the story ends], I [swear|promise|tell you].
C [Tell it to others|Glad you liked it|I have more where that came from].
> day
u {uday}
u {uday}
u {uday}
u {uday}
c [Well, well|Really|My goodness|No]! And how did that end?
c That sounds like [quite a day|a lot of trouble|a good day, all in all].
c I'd have done the same. Or run away, one of the two.
c You should write that down. And {uword}? Who would have thought.
U [it ended well|not so good|I'm still laughing about it|I don't know yet], [luckily|I think|to be honest].
C [That's something|Let me know, then|Well, well]. I like it when you tell me such things.
C [Ha|Ah], life is stranger than any book.
> repeat
u [say|repeat after me|repeat][:|] {w3}
u can you say "{w3}"?
u please repeat this: {w3}
c {w3}
c {w3}. [Did I say it right|Like that]?
c "{w3}". [Easy|There you go|Why, though]?
> quote
u {ushort}
c You say "{ushort_}"? [I've wondered about that too|Say more|That's a good way to put it].
c "{ushort_}". [Hm, I'll have to think about that|I'll write that on my wall|I like that|My grandmother would agree].
c [Interesting|Hm]. What makes you say "{ushort_}"?
c I wouldn't go that far. "{ushort_}"? [Prove it|Who told you that]!
> choice
u which do you prefer, {c1} or {c2}?
u {c1} or {c2}?
u if you had to choose, {c1} or {c2}?
u would you rather have {c1} or {c2}?
c {c1}. [No doubt|Every time|But only just].
c {c2}, [I think|of course|if I must choose].
c [Tough one. |]{c2}.
c [Easy. |]{c1}.
> list
u I need to buy {l1}, {l2} and {l3}.
u on my list: {l1}, {l2}, {l3}.
u remember three things for me: {l1}, {l2}, {l3}.
c {l1}, {l2} and {l3}. [Got it|I'll remember|That's a short list].
c Right: {l1}, {l2}, {l3}.
U what was the first thing?
C {l1}.
C First came {l1}.
U what was the last thing [on my list|]?
C {l3}.
C The last one was {l3}.
U what was in the middle?
C {l2}.
C {l2}, between {l1} and {l3}.
U what was on my list?
C {l1}, {l2} and {l3}.
> who
u in my [village|street|town], {n1} is {t1}, {n2} is {t2} and {n3} is {t3}.
u let me explain: {n1} is {t1}, {n2} is {t2}, {n3} is {t3}.
u I have three friends. {n1} is {t1}, {n2} {t2} and {n3} {t3}.
c {n1}, {n2} and {n3}. [All right|I think I can keep them apart|Sounds like a lively place].
c So {n2} is {t2}. [Useful|And the others too, I see].
U who is {t1}?
C {n1}.
C That's {n1}.
U who is {t2}?
C {n2}[|, of course].
C That would be {n2}.
U who is {t3}?
C {n3}.
C {n3} is {t3}.
U and {n1}?
C {n1} is {t1}.
C {t1}, if I remember right.
U what does {n3} do?
C {n3} is {t3}.
C {t3}.
> hungry
u I'm hungry.
u what should I eat [tonight|today]?
u I'm going to make {fd}.
c You could make {fd}. [It never fails|Simple and good].
c Try {fd}. [Warm, with friends|Thank me later].
c Then eat something, a hungry head thinks badly.
> love
u I love you.
u will you marry me?
u do you love me?
c You hardly know me! But go on.
c Ask me again when we've known each other for seven years.
c My heart skipped, I admit it. Let's stay friends for now.
> please
u I want to learn something[ from you|].
u teach me something.
u what have you learned in life?
c Never argue with a [goose|hungry cook|locked door]. You won't win.
c Listen twice as much as you speak. I'm still practising.
c Keep your tools sharp and your words soft.
c Dry socks first. Then big decisions.
> test
u [hm|okay|I see|alright|interesting|oh|right|sure|yes|no|maybe].
u [really|are you sure|is that so|honestly]?
u go on.
c [Yes, really|As sure as I stand here|That's how it is].
c You look as if you had another question.
c Go on, say what's on your mind.
c Shall we talk about something else?
> game
u let's play a game.
u do you want to play?
u give me a riddle.
c All right. What has keys but opens no door? A piano!
c I'm thinking of something round that runs without legs. A wheel. Your turn.
c What goes up and never comes down? Your age!
c What can you catch but never throw? A cold.
U [too easy|I knew that|tell me another one].
C [Clever|Fine|All right]: what has a bed but never sleeps? A river.
C [Then|Very well], what has hands but can't clap? A clock.
> work
u how[ is|'s| was] work?
u do you like your work?
u is your work hard?
c Some days it flies, some days it crawls. Today it crawled.
c Hard, but I sleep well at night.
c I wouldn't trade it. Well, maybe for a crown.
> home
u do you miss [home|anyone]?
u are you lonely?
u what do you miss most?
c Now and then, in the evening, when it gets quiet.
c I have my memories for company, and they don't eat much.
c A little. But then somebody like you comes along.
> time
u what time is it?
u what day is it today?
u is it late?
c Late enough for [a cup of something warm|a story|honest talk].
c I never look at clocks when I have company.
c Somewhere between breakfast and supper, by the sound of my stomach.
> here
u where are we?
u what is this place?
u nice place you have here.
c My little corner of the world. Mind the step.
c It's not a palace, but it keeps the rain out.
c A good place to sit and talk, that's all I know.
> sing
u can you sing [for me|something]?
u sing me a song.
u let's dance!
c La la, the moon is round, the soup is hot, and nobody's to blame. That's all I've got.
c Only if you promise to sing along.
c My voice frightens the birds. But here goes: hey ho, the wind and the snow!
> sums
u what[ is|'s] {x1} plus {x2}?
u how much is {x1} and {x2}?
c That makes {x3}.
c {x3}, if my fingers are right.
c {x1} and {x2}? {x3}.
> lost_thread
u I don't understand.
u what do you mean?
u what?
u huh?
c I'm not always clear, I know. Ask me again, in other words.
c Never mind. I talk in circles sometimes.
c Let me put it simply: ask, and I'll try to answer.
> already
u you already said that.
u you're repeating yourself.
c Did I? Then it must be important.
c True. I'm fond of my own words.
c Ha, you're listening! Let's talk about something new.
> remember_me
u do you remember me?
u have you missed me?
u did you think of me?
c A face like yours? Of course.
c I wondered when you'd come back.
c I did. It was too quiet without you.
> dreams
u what did you dream [last night|about]?
u do you dream?
c I dreamed that a {aj} {an1} was chasing me through {p1}. I woke up out of breath.
c I dreamed I could fly, but only as high as the table.
c Of {pl}, hundreds of them. I blame the cheese.
> plans
u what are you doing tomorrow?
u any plans for [today|the weekend|tonight]?
u what's next for you?
c A bit of work, a bit of rest, and something sweet in between.
c I might visit {n1}. We have some catching up to do.
c I'll see what the day brings. Plans never listen to me.
> news
u what's new?
u any news?
u what's the latest gossip?
c They say {n1} was seen in {p1} with {ath}. You didn't hear it from me.
c {n1} and {n2} aren't speaking to each other. Something about {ath}.
c Nothing but a lost {an1} and too much wind.
> help
u help!
u I need help.
u I'm in trouble.
c Slow down and tell me what happened.
c I'm here. What do you need?
c Trouble is my old friend. Let's see what we can do.
> secret_ask
u can I tell you a secret?
u can I trust you?
u promise not to tell anyone?
c My lips are sealed. Go on.
c You can. I've kept bigger things quiet.
c On my honour. What is it?
U I [ate the last cake|broke my mother's {ob}|have never read a whole book|talk to my plants].
C [Ha|Oh], is that all? I've done worse.
C Your secret is safe with me.
> stay
u don't go.
u can I stay a while?
u I like it here.
c Stay as long as you like.
c There's always a chair for you.
c Good. It's warmer with two.
> why
u why?
u why not?
u how come?
c Because that's how I am, I suppose.
c I've asked myself the same thing.
c Some things have no why. They just are.
> strong
u who would win, {aan1} or {aan2}?
u which is better, {aan1} or {aan2}?
c {aan1}, without a doubt. Have you ever seen one angry?
c I'd put my money on {aan2}.
c {aan1}? {aan2}? I'd run from both.
"""

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
