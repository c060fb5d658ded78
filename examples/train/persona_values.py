"""Values: the names, places, trades, foods, objects ... that cards and users mention.

Practically open sets, made from word lists and syllable grammars, so that a model has to copy a value and cannot know it.
Every content word belongs to one side: `held(word)` is a hash, so a word kept for the held-out set can never reach a training
sample, whichever list or grammar it comes from. `side` is 0 for training, 1 for the held-out set, in every function here.
`r` is a random.Random().random; all functions are deterministic in it.
"""
import zlib

HELD_SHARE = 8  # one word in eight is kept for the held-out set


def held(word):
    return word.lower() == "autumn" or zlib.crc32(b"kaiju:" + word.lower().encode()) % HELD_SHARE == 0


def split(words):
    """A word list as (training side, held-out side). A phrase is held when its last word is."""
    items = [w.strip() for w in (words.split(",") if "," in words else words.split()) if w.strip()]
    items = list(dict.fromkeys(items))
    two = ([w for w in items if not held(w.split()[-1])], [w for w in items if held(w.split()[-1])])
    assert two[1] and two[0], "a side is empty: " + words[:60]
    return two


def pick(r, two, side):
    words = two[side]
    return words[int(r() * len(words))]


def one(r, words):
    return words[int(r() * len(words))]


def an(phrase):
    return ("an " if phrase[0].lower() in "aeiou" and not phrase.startswith(("uni", "one", "eu", "use")) else "a ") + phrase


# ---------------------------------------------------------------- names
# Each style: onsets, vowels, middles, ends. A name is onset + vowel + (middle + vowel) + end.
STYLES = [[part.split() for part in style] for style in (
    ("B Br C D Dr F G Gr H J K L M N P R S T Th Tr V W", "a e i o u", "rr ll nd st mm ld rv nn lb rk d l n", "n r l th ck m ne lan win ric gar bert mond"),
    ("Al El Il Ar Er Or Is Es Am Em Yl Ul", "a e i o", "r l n m v d s ss nn l", "ra la na ria lia elle wen wyn dra sa the ne"),
    ("K Kh Z Sh T M N R H Y J S D", "a u i o aa ei", "r l m n sh k d h z b", "m r n k d sh ra ri mi ko ta no"),
    ("Sv Sk Th Bj H Gr Kn R V Fr St Hr Ulf Sig Arn", "a o i e y", "r l g n nd rg ld k", "n r dis hild ulf vald mund rik a unn steinn"),
    ("P T F M L B D C G V N S", "i o e u a", "bb tt dd pp zz mb ng nk ck gg", "le y in o et er kin ly us a"),
    ("Qu X Zy Vr Tz Ph Cth Ny Mor Ash Vel Tor Kel Bel Dal Fen Gil Hal Jor", "a e o i y u", "r v x l n d s", "x n s th r la is os ar en ax ius"),
    ("Ch Sh Wh Cl Fl Pl Bl Gl Sn St Sw Tw", "i e o a u ee oo", "mb nd ff ll pp st ckl", "er y ow in et le us o"),
    ("A O E I U Ma Ne Ka Lo Pa Ti Ro Sa Ye", "b d g k m n s t w z", "a e i o u", "le mi ba so ni ra tu ye fe wa ndo ngi"),
)]
GIVEN_F = split("Anna Mary Ruth Clara Ivy Nora Edith Rose Martha Lucy Grace Helen Alice June Sara Emma Olive Hazel Agnes Bess Della Fern Greta Hilda Ines Judith Kate Lena Mabel Nell Opal Petra Rita Sybil Tess Una Vera Wilma Zoe Amina Leila Yuki Mei Priya Anya Olga Ingrid Sofia Lucia Carmen Rosa Fatima Zara Noor Keiko Linh Asha Nadia Elif Maren Freya Astrid Saoirse Niamh Bronwyn Cora Dora Flora Thea Beatrice Winifred Harriet Josephine Eleanor Margaret Susan Linda Karen Laura Julia Maria Elena Irene Sylvia Pearl Ruby Violet Daisy Poppy Ellen Frances Gwen Heather Isobel Joan Kitty Lydia Maud Nancy Odette Paula Rachel Stella Tabitha Ursula Vivian Yvonne")
GIVEN_M = split("John Tom Will Jack Henry George Arthur Frank Walter Fred Albert Harry Sam Ben Joe Peter Paul Mark Luke Simon David Daniel Michael James Robert Edward Charles Hugo Oscar Felix Max Leo Otto Karl Hans Lars Sven Erik Olaf Ivan Boris Dmitri Pavel Marco Luca Pedro Diego Juan Carlos Omar Ali Hassan Yusuf Kenji Hiro Wei Arjun Ravi Kofi Kwame Tariq Amir Nils Gus Ned Abel Amos Silas Jonas Ezra Caleb Jasper Miles Rufus Cyril Basil Cedric Duncan Angus Rory Liam Finn Declan Owen Rhys Gareth Ewan Malcolm Stanley Ralph Percy Horace Edgar Victor Vincent Stefan Anton Emil Bruno Klaus Matthias Tobias Gideon Barnaby Quentin Roland Theodore Wesley Alec Bertram Clive Derek Elliot")
SUR_A = split("Ash Black White Green Grey Red Stone Wood Hill Marsh Moor Thorn Hart Fox Wolf Crow Raven Swift Bright Strong Long Short Sharp Winter Summer Frost Snow Storm Rain Mill Bell Copper Iron Silver Gold Penny Good Merry Quick Still Hollow Deep High Low North West East Under Over Holl Pem Wether Harring Wads Dun Thack Gold Birk Ravens Lang Wick Hazel Elder Alder Oak Elm Rush Reed Fern Briar Bram Kettle Candle Button Cobble Pepper Barley Hop Honey")
SUR_B = split("wood well field ford ham ton ley worth by shaw water bridge bourne stone hurst dale man smith wright more ridge brook low croft land burn side bank thorpe wick combe mere foot bottom gate house berry bee whistle sworth ings er kin son")


def made_name(r, side):
    while True:
        onset, vowels, mids, ends = one(r, STYLES)
        name = one(r, onset) + one(r, vowels)
        if r() < 0.7:
            name += one(r, mids) + one(r, vowels)
        name += one(r, ends)
        if 4 <= len(name) <= 10 and held(name) == bool(side):
            return name


def surname(r, side):
    if r() < 0.5:
        return made_name(r, side)
    while True:
        a, b = one(r, SUR_A[0]), one(r, SUR_B[0])
        if held(a + b) == bool(side):
            return a + b


# Letters beyond ASCII, so that such names are copied whole. On the training side alone.
BEYOND_GIVEN = ("Zo\u00eb,Ren\u00e9e,Ren\u00e9,Andr\u00e9,Jos\u00e9,Mar\u00eda,In\u00e9s,Sof\u00eda,Chlo\u00e9,Bj\u00f6rn,S\u00f6ren,J\u00f6rg,J\u00fcrgen,M\u00e1ir\u00e9ad,Se\u00e1n,\u00c9ric,Fran\u00e7ois,\u0141ukasz,Stanis\u0142aw,Ma\u0142gorzata,\u017baneta,"
                "Ji\u0159\u00ed,Ond\u0159ej,\u0160\u00e1rka,Luk\u00e1\u0161,\u017deljko,Nata\u0161a,\u0110or\u0111e,\u00c5sa,H\u00e5kon,P\u00e5l,S\u00f8ren,J\u00f8rgen,Bj\u00f8rk,Gu\u00f0r\u00fan,\u00de\u00f3ra,Attila \u00c1rp\u00e1d,Zs\u00f3fia,\u00d6zlem,\u00c7a\u011flar,Ay\u015fe,Jo\u00e3o,Concei\u00e7\u00e3o,\u0218tefan,Ioan\u0103,\u00d1uno,Peque\u00f1a,L\u00fac\u00eda,\u0100rija,J\u0101nis,R\u016bta,\u0112rika,K\u00e4the,G\u00fcnther,T\u00f5nu").split(",")
BEYOND_TOWN = ("Krak\u00f3w,\u0141\u00f3d\u017a,Gda\u0144sk,Wroc\u0142aw,Z\u00fcrich,M\u00fcnchen,K\u00f6ln,D\u00fcsseldorf,S\u00e3o Paulo,M\u00e1laga,C\u00e1diz,Le\u00f3n,Coru\u00f1a,N\u00eemes,Orl\u00e9ans,Besan\u00e7on,Malm\u00f6,G\u00f6teborg,\u00c5rhus,\u00d6rebro,Troms\u00f8,\u00c5lesund,Reykjav\u00edk,Akureyri,"
               "Plze\u0148,Brati\u0161ka,Ko\u0161ice,\u010cesk\u00fd Les,Ni\u0161,\u0160ibenik,\u0130zmir,Eski\u015fehir,Ia\u0219i,Gy\u0151r,P\u00e9cs,R\u0113zekne,\u0160iauliai,P\u00e4rnu,Jyv\u00e4skyl\u00e4,Bogot\u00e1,C\u00f3rdoba,Asunci\u00f3n,Qu\u00e9bec,Bel\u00e9m").split(",")
BEYOND_SHARE = 0.04


def given(r, side, sex="any"):
    """A given name; the ordinary names keep to their sex, the made ones fit all."""
    if not side and r() < BEYOND_SHARE:
        return one(r, BEYOND_GIVEN)
    if r() < 0.45:
        pool = GIVEN_F if sex == "she" or (sex != "he" and r() < 0.5) else GIVEN_M
        return pick(r, pool, side)
    return made_name(r, side)


# ---------------------------------------------------------------- places
TOWN_END = "ford mere bury wick haven port stead holm dale combe fell gate moor by ness firth ham mouth cross bridge ville burg hollow wold".split()
PLACE_WORD = split("Amber Ash Barrow Bell Birch Blackwater Bramble Briar Candle Cinder Clay Clover Cobalt Copper Coral Crane Crow Dagger Drift Dusk Eagle Ember Falcon Fern Fiddler Flint Fog Fox Glass Gorse Granite Gull Hazel Heather Heron Holly Honey Hornet Iron Ivory Juniper Kestrel Kettle Lantern Lark Ledger Linden Lily Lynx Magpie Maple Marble Marigold Mercy Mill Mirror Mist Moon Moss Mulberry Needle Nettle Oak Onyx Orchard Osprey Otter Owl Pearl Pepper Pilgrim Pine Plum Poppy Quarry Quill Raven Reed Rook Rowan Saffron Salt Sable Sand Shepherd Silver Slate Sparrow Spindle Starling Sugar Swan Tallow Tern Thistle Thorn Timber Tinker Velvet Vine Walnut Whale Wheat Widow Willow Winter Wolf Wren Yarrow")
PLACE_KIND = "Bay,Harbour,Cove,Point,Falls,Hill,Hollow,Crossing,Bridge,Creek,Lake,Valley,Island,Marsh,Ferry,Landing,Heath,Ridge,Springs,End,Green,Wharf,Corner,Rock,Reach".split(",")
CITY = split("Lisbon,Porto,Bergen,Oslo,Riga,Tallinn,Gdansk,Prague,Vienna,Trieste,Naples,Palermo,Genoa,Marseille,Lyon,Bruges,Ghent,Utrecht,Leiden,Cork,Galway,Belfast,Glasgow,Leeds,York,Bristol,Cardiff,Hull,Dover,Whitby,Cairo,Tunis,Fez,Accra,Lagos,Nairobi,Mombasa,Durban,Mumbai,Delhi,Kolkata,Hanoi,Osaka,Kyoto,Sapporo,Seoul,Busan,Manila,Sydney,Hobart,Perth,Auckland,Boston,Chicago,Memphis,Denver,Seattle,Portland,Austin,Dallas,Toronto,Montreal,Halifax,Lima,Quito,Bogota,Havana,Santiago,Salvador,Istanbul,Izmir,Athens,Sofia,Zagreb,Krakow,Budapest,Bern,Geneva,Basel,Hamburg,Bremen,Dresden,Leipzig,Cologne,Madrid,Seville,Granada,Valencia")
LAND = split("Scotland,Norway,Iceland,Egypt,Morocco,Brazil,Peru,Chile,Mexico,Cuba,India,Nepal,Japan,Korea,Vietnam,Turkey,Greece,Italy,Spain,Portugal,France,Belgium,Poland,Finland,Sweden,Denmark,Ireland,Wales,Canada,Kenya,Ghana,Ethiopia,Madagascar,Mongolia,Tibet,Siberia,Patagonia,Greenland,Lapland,Sicily,Malta,Cyprus,Crete,Sardinia,Corsica,Jamaica,Bermuda,Zanzibar,Java,Borneo,Sumatra,Alaska,Texas,Ohio,Kansas,Oregon,Montana,Vermont")


def town(r, side):
    if not side and r() < BEYOND_SHARE:
        return one(r, BEYOND_TOWN)
    x = r()
    if x < 0.30:
        while True:
            name = made_name(r, 0)
            name = name.rstrip("aeiouy")[:6] + one(r, TOWN_END)
            if held(name) == bool(side) and len(name) > 5:
                return name
    if x < 0.48:
        return made_name(r, side)
    if x < 0.66:
        return pick(r, PLACE_WORD, side) + " " + one(r, PLACE_KIND)
    if x < 0.74:
        return one(r, ("Port", "Saint", "Fort", "New", "Old", "Upper", "Lower", "Little", "Great", "Mount", "North")) + " " + made_name(r, side)
    if x < 0.9:
        return pick(r, CITY, side)
    return one(r, ("Lower ", "Upper ", "Old ", "New ", "East ", "")) + (pick(r, PLACE_WORD, side) + one(r, TOWN_END)).capitalize()


def far_land(r, side):
    x = r()
    if x < 0.45:
        return pick(r, LAND, side)
    if x < 0.75:
        return made_name(r, side)
    return "the " + pick(r, PLACE_WORD, side) + " " + one(r, ("Isles", "Islands", "Coast", "Mountains", "Desert", "Plains", "Steppe", "Provinces"))


# ---------------------------------------------------------------- things
COLOUR = split("red blue green yellow purple orange pink brown grey black white crimson scarlet violet indigo teal turquoise amber ochre lilac lavender maroon navy olive emerald jade ruby rust ivory cream silver gold copper bronze peach coral mint mustard plum charcoal rose mauve khaki tan magenta cyan aqua azure cobalt sapphire fawn russet sage lemon lime cherry chestnut hazel")
SHADE = "pale,dark,deep,dusty,bright,soft,faded,light,smoky,warm".split(",")
MATERIAL = split("wooden silver copper brass iron tin glass leather woollen silk clay stone bone ivory jade pewter bronze paper velvet linen wicker porcelain marble amber steel lead wax cork felt rope enamel ebony")
LOOK = "old,little,tiny,big,broken,cracked,battered,dented,painted,carved,rusty,dusty,crooked,folded,tarnished,polished,patched,heavy,odd,plain,half-burnt,three-legged,chipped,moth-eaten".split(",")
OBJECT = split("compass,watch,locket,key,bell,lantern,kettle,teapot,spoon,whistle,flute,thimble,mirror,comb,brooch,ring,button,coin,map,letter,dagger,telescope,music box,snuffbox,hourglass,candlestick,bottle,pipe,feather,shell,marble,acorn,medal,goblet,pocket knife,sewing box,chess piece,rabbit foot,horseshoe,notebook,typewriter,camera,radio,umbrella,walking stick,scarf,blanket,quilt,rocking horse,spinning top,doll,puppet,toy soldier,model ship,harmonica,magnifying glass,tea cup,ink pot,fountain pen,hat pin,coat button,door knob,fishing hook,anchor,barometer,sundial,weather vane,globe,ladle,rolling pin,cookbook,diary,photograph,postcard,ticket,domino,playing card,tooth,skull,crystal,pebble,fossil,pine cone,violin bow,drum,tambourine,bracelet,necklace,belt buckle,glove,slipper,boot,bonnet,apron,saddle,stirrup,cowbell,oil lamp,paperweight,chisel,hammer,trowel,sickle,anvil,bucket,basket,ladder,stool,crate")
ANIMAL = split("dog cat parrot goat donkey horse pony mule hen rooster duck goose pig sheep rabbit hare ferret weasel otter badger hedgehog squirrel mouse rat hamster tortoise turtle snake lizard gecko frog toad newt crow raven magpie jackdaw owl hawk falcon pigeon dove sparrow canary finch swan peacock turkey pheasant llama alpaca camel yak ox calf lamb foal monkey lemur mongoose fox wolf bear lynx ocelot crab lobster snail spider scorpion beetle cricket moth goldfish carp eel newfoundland spaniel terrier greyhound sheepdog poodle beagle mastiff whippet pug corgi")
PET_LOOK = "one-eyed,three-legged,lazy,fat,shaggy,tame,deaf,half-blind,spotted,black,white,ginger,grey,bad-tempered,greedy,gentle,ancient,young,noisy,clever,nervous,scruffy,enormous,tiny,talking,sleepy,stray,limping,piebald,silver".split(",")
PET_NAME = split("Biscuit Pickle Button Pepper Mustard Captain Duchess Admiral Socks Smoky Ginger Bandit Pudding Muffin Crumb Dumpling Noodle Radish Turnip Bramble Nettle Thistle Clover Acorn Pebble Flint Ember Soot Cinder Ash Misty Stormy Sunny Comet Rocket Patch Spot Rusty Copper Penny Sixpence Domino Checkers Marble Jasper Onyx Pearl Velvet Whiskers Barnacle Anchor Skipper Bosun Major Colonel Duke Baron Prince Princess Queenie Lady Mister Toffee Caramel Nutmeg Cinnamon Saffron Sesame Olive Basil Parsley Rosemary Juniper Willow Hazel Fern Moss Sprout Bean Peanut Cashew Walnut Truffle Morsel Waffle Bagel Crumpet Scone Custard Jelly Marmalade Honey Treacle Sugar Coco Mocha Cricket Beetle Bumble Dragon Goblin Pirate Bishop Parson Professor Doctor Sergeant")
FOOD_HEAD = split("stew,soup,pie,bread,dumplings,pancakes,noodles,porridge,cake,tart,sausages,rice,beans,stewed apples,broth,pudding,biscuits,pickles,curry,omelette,chowder,fritters,meatballs,ravioli,salad,sandwiches,waffles,kebabs,risotto,casserole,rolls,crumble,jam,cheese,ham,chutney,scones,gingerbread,doughnuts,flatbread,pasties,goulash,couscous,tacos,custard,marmalade,toast,crackers,jelly,hash")
FOOD_WITH = split("onion leek potato turnip carrot parsnip beetroot cabbage spinach mushroom pumpkin tomato pepper lentil barley oat corn chickpea walnut almond chestnut hazelnut apple pear plum cherry quince fig date raisin lemon orange apricot peach rhubarb gooseberry blackberry raspberry blueberry cranberry honey ginger cinnamon nutmeg garlic fennel mint rosemary mustard horseradish cheese goat lamb mutton beef rabbit duck chicken goose pheasant ham bacon trout salmon herring mackerel cod eel crab oyster mussel clam shrimp squid seaweed nettle acorn chocolate coconut banana mango")
FOOD_HOW = "smoked,roast,boiled,fried,pickled,baked,spiced,cold,creamed,salted,stuffed,burnt,sweet,sour".split(",")
DISH = split("pizza lasagne spaghetti sushi ramen paella porridge borscht haggis kimchi falafel hummus pierogi strudel tiramisu croissants popcorn chocolate olives anchovies oysters sardines liver tripe sauerkraut marzipan liquorice nougat fudge toffee asparagus artichokes aubergine broccoli celery cauliflower kale sprouts radishes cucumbers grapefruit pineapple watermelon strawberries raspberries figs dates prunes chestnuts peanuts honeycomb")
DRINK = split("tea,coffee,cocoa,milk,cider,ale,stout,mead,wine,rum,gin,brandy,whisky,lemonade,ginger beer,buttermilk,apple juice,birch sap,elderflower cordial,plum brandy,mint tea,nettle tea,hot chocolate,goat milk,barley water,rose water,cherry liqueur,black coffee,chamomile tea,sloe gin,root beer,tomato juice,rice wine,honey water,dandelion wine,rhubarb cordial,pear cider,iced tea,spring water,sherry,port,absinthe,kvass,kefir,espresso,sarsaparilla,mulled wine,blackberry wine,fig syrup,carrot juice")
INSTRUMENT = split("fiddle violin cello flute piccolo oboe clarinet bassoon trumpet trombone tuba horn bugle drum tambourine harp lute lyre guitar banjo mandolin ukulele zither piano organ harpsichord accordion concertina harmonica whistle recorder xylophone saxophone sitar theremin dulcimer ocarina cornet")
PLANT = split("roses tulips lilies daisies poppies violets foxgloves bluebells snowdrops daffodils sunflowers marigolds lavender thistles nettles heather ivy ferns mosses orchids peonies irises asters dahlias pansies primroses cowslips hyacinths hollyhocks honeysuckle jasmine lilacs geraniums begonias cacti mushrooms tomatoes pumpkins cabbages leeks onions beans herbs apples pears plums")
FEAR_THING = split("spiders snakes heights thunder lightning ghosts clowns dolls needles bees wasps moths bats rats mice dogs horses geese crows owls mirrors doctors dentists crowds tunnels cellars caves wells lifts bridges boats storms fire ice fog darkness silence bells clocks scarecrows masks puppets frogs eels sharks jellyfish crabs feathers balloons fireworks trains ladders attics graveyards scissors cats pigeons swans cows bulls wolves bears worms leeches maggots mushrooms butterflies statues portraits")
PLACEBIT = split("cellar attic barn chapel mill forest river well harbour lighthouse tunnel graveyard garden bridge market school stable kitchen library theatre station quarry cave swamp orchard bakery brewery tower castle palace monastery shipyard tannery hospital museum greenhouse courtyard alley chimney staircase ballroom boathouse pantry nursery workshop observatory")
GERUND_OBJ = split("birds boats clocks maps stamps coins shells buttons bottles kites lanterns puppets ships carvings baskets quilts scarves socks poems letters riddles stories songs ballads recipes candles pots masks toys flutes bees pigeons orchids roses mushrooms beetles butterflies fossils stones stars keys locks spoons postcards matchboxes thimbles dolls trains feathers hats bells")
WORD = split("apple anchor autumn banner barrel basket beacon blanket blossom bottle branch breeze bucket butter cabin candle canyon carpet castle cedar chain chalk cloud clover cobweb comet copper cotton cradle crumb crystal curtain dagger dancer desert diamond dolphin dragon drum dust eagle echo ember engine fable falcon feather fiddle flame forest fountain garden giant glacier goblin granite hammer harbour harvest helmet hollow honey horizon island ivory jewel jungle kettle ladder lantern lemon lightning lizard lobster magnet mantle marble meadow mirror mitten monkey moonlight mountain needle nettle nutmeg ocean onion orchard oyster paddle palace parrot pebble pepper petal piano pigeon pillow planet plum pocket prairie puddle puzzle quarry quilt rabbit radish raven ribbon riddle river robin rocket saddle sailor sapling scarecrow shadow shepherd shovel silver sparrow spider spindle spoon stable sunset sugar tailor teapot thimble thistle thunder tiger timber tower trumpet tulip tunnel turnip turtle umbrella valley velvet violin walnut walrus whistle widow willow window winter wizard wolf yarrow zebra")
ADJ = split("golden silver crooked silent merry drunken broken sleepy hungry lucky laughing dancing wandering forgotten hidden frozen burning painted hollow gilded rusty thirsty lonely blind brave bitter crimson midnight restless salty singing sinking smiling stubborn tattered tipsy velvet weary whispering wicked winking wooden dusty flying lost jolly nervous noble patient proud quiet ragged shining speckled twisted humble idle jaded kindly limping mossy nimble")
INSIDE = split("teapot,clock,mattress,boot,chimney,flour jar,piano,hollow tree,beehive,hat box,cupboard,wardrobe,barrel,birdcage,well,oven,drawer,bookcase,trunk,saddlebag,kennel,haystack,coal bucket,watering can,umbrella stand,biscuit tin,violin case,flowerpot,doorstep,floorboard,picture frame,woodpile,manger,butter churn,bread bin,sugar bowl,lantern,pillow,rain barrel,sewing basket")
GARMENT = split("hat,cap,coat,scarf,waistcoat,cloak,apron,shawl,jacket,jumper,cardigan,bonnet,bow tie,necktie,pair of boots,pair of gloves,pair of spectacles,eye patch,sash,belt,kilt,robe,tunic,vest,turban,beret,top hat,bowler hat,straw hat,headscarf,raincoat,pair of mittens,pair of slippers,monocle,earring,overcoat,poncho,smock,ruff,cape")
LANGUAGE = split("Latin,Greek,Welsh,Gaelic,Norwegian,Danish,Swedish,Finnish,Polish,Russian,Czech,Hungarian,Turkish,Arabic,Persian,Hindi,Bengali,Tamil,Mandarin,Cantonese,Japanese,Korean,Thai,Swahili,Zulu,Yoruba,Portuguese,Spanish,Italian,French,Dutch,German,Basque,Catalan,Breton,Hebrew,Armenian,Georgian,Icelandic,Estonian,Maltese,Quechua")
TRADE = split("baker,butcher,brewer,smith,blacksmith,carpenter,cooper,tanner,weaver,tailor,cobbler,mason,miller,farmer,shepherd,fisherman,sailor,captain,soldier,knight,squire,monk,nun,priest,teacher,scribe,librarian,clerk,lawyer,judge,doctor,nurse,midwife,apothecary,herbalist,dentist,barber,innkeeper,bartender,cook,waiter,gardener,beekeeper,florist,forester,hunter,trapper,ranger,guide,ferryman,pilot,driver,mechanic,engineer,electrician,plumber,painter,sculptor,potter,glassblower,jeweller,watchmaker,locksmith,printer,bookbinder,journalist,photographer,actor,singer,dancer,juggler,clown,puppeteer,magician,fortune teller,violinist,drummer,poet,playwright,astronomer,chemist,biologist,botanist,geologist,cartographer,explorer,archaeologist,historian,detective,spy,thief,smuggler,pirate,bounty hunter,guard,watchman,executioner,gravedigger,undertaker,chimney sweep,lamplighter,postman,messenger,courier,coachman,stable hand,horse trainer,falconer,vet,zookeeper,lighthouse keeper,miner,quarryman,lumberjack,charcoal burner,salt merchant,spice trader,peddler,auctioneer,banker,accountant,tax collector,programmer,architect,surveyor,firefighter,paramedic,astronaut,robot repairer,welder,bus driver,train conductor,flight attendant,hairdresser,seamstress,milliner,perfumer,confectioner,cheesemaker,winemaker,farrier,wheelwright,rope maker,net mender,basket weaver,candle maker,ghost hunter,witch,alchemist,bard,diplomat,translator,tutor,nanny,butler,housekeeper,swineherd,gamekeeper,riddle master,toll keeper,clockmaker,ratcatcher,goatherd")
MAKER_OF = split("lantern,umbrella,violin,kite,saddle,harp,mirror,button,glove,whistle,puppet,toy,map,globe,compass,bell,drum,candle,soap,ink,paper,brush,broom,barrel,basket,carpet,curtain,quilt,hat,boot,belt,sail,anchor,net,cart,sled,clock,lens,lamp,stove,kettle,knife,sword,shield,arrow,piano,flute,organ,cheese,honey,mushroom,eel,oyster,salt,pepper,tea,coffee,tobacco,silk,wool,lace,pearl,coin,stamp,book,letter,bridge,tower,roof,chimney,well,canal,garden,orchid,pigeon,falcon,camel,ferret,snail")
MAKER = "maker,mender,seller,painter,dealer,collector,inspector,restorer,polisher,merchant,carver,tuner,keeper".split(",")
SUBJECT = split("history geography algebra geometry botany music Latin astronomy chemistry drawing poetry grammar medicine law physics navigation philosophy cooking carpentry fencing logic archery dancing sewing swimming")
MONTH = split("January February March April May June July August September October November December")
WEEKDAY = split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
SEASON = split("spring,summer,winter,early spring,late summer,midsummer,harvest time,midwinter,autumn,late autumn,early autumn")
EYES = split("blue green brown grey hazel amber black violet golden silver copper turquoise emerald olive")
GOD_WORD = split("moon sun tide storm river harvest hearth winter thunder star sea mountain ember lantern oak wolf raven serpent well loom anvil wind rain")
UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()


def spelled(n):
    if n < 20:
        return UNITS[n]
    if n < 100:
        return TENS[n // 10] + ("-" + UNITS[n % 10] if n % 10 else "")
    if n < 1000:
        return UNITS[n // 100] + " hundred" + (" and " + spelled(n % 100) if n % 100 else "")
    return str(n)


def number(r, side, low, high):
    """A number of this side; the whole number is hashed with its digits, so 47 is on one side only."""
    while True:
        n = low + int(r() * (high - low + 1))
        if held(str(n)) == bool(side):
            return n


def colour(r, side):
    c = pick(r, COLOUR, side)
    return one(r, SHADE) + " " + c if r() < 0.3 else c


def thing(r, side):
    o = pick(r, OBJECT, side)
    x = r()
    if x < 0.35:
        o = pick(r, MATERIAL, side) + " " + o
    elif x < 0.55:
        o = pick(r, COLOUR, side) + " " + o
    if r() < 0.45:
        o = one(r, LOOK) + " " + o
    return o


def food(r, side):
    x = r()
    if x < 0.25:
        return pick(r, DISH, side)
    if x < 0.65:
        f = pick(r, FOOD_WITH, side) + " " + pick(r, FOOD_HEAD, side)
        return one(r, FOOD_HOW) + " " + f if r() < 0.2 else f
    if x < 0.85:
        return one(r, FOOD_HOW) + " " + pick(r, FOOD_WITH, side)
    return pick(r, FOOD_HEAD, side) + " with " + pick(r, FOOD_WITH, side)


def trade(r, side):
    if r() < 0.62:
        return pick(r, TRADE, side)
    return pick(r, MAKER_OF, side) + " " + one(r, MAKER)


def pet_name(r, side):
    x = r()
    if x < 0.5:
        return pick(r, PET_NAME, side)
    if x < 0.6:
        return one(r, ("Mister ", "Lady ", "Captain ", "Old ", "Little ", "Sir ", "Madam ")) + made_name(r, side)
    if x < 0.7:
        return pick(r, WORD, side).capitalize()
    return given(r, side)


def shop(r, side):
    """The name of a shop, inn, ship or house."""
    x = r()
    if x < 0.45:
        return "the " + pick(r, ADJ, side).capitalize() + " " + one(r, (pick(r, ANIMAL, side), pick(r, WORD, side), pick(r, OBJECT, side))).title()
    if x < 0.65:
        return "the " + pick(r, WORD, side).capitalize() + " and " + pick(r, WORD, side).capitalize()
    if x < 0.8:
        return surname(r, side) + " & " + one(r, ("Sons", "Daughters", "Company", surname(r, side)))
    return "the " + surname(r, side) + one(r, (" Arms", " House", " Rooms", " Inn", " Works", " Hall"))


def word(r, side, bank=None):
    """Any plain word; with a bank, also from the vocabulary of the corpora."""
    if bank and not side and r() < 0.6:
        return one(r, bank)
    return pick(r, WORD, side)


def title(r, side, bank=None):
    """A song or book title."""
    x = r()
    a, b = word(r, side, bank).capitalize(), word(r, side, bank).capitalize()
    if x < 0.3:
        return "The " + pick(r, ADJ, side).capitalize() + " " + a
    if x < 0.5:
        return one(r, ("A ", "One ", "Seven ", "My ", "No ", "Goodbye, ", "Under the ", "Beyond the ")) + a
    if x < 0.75:
        return "The " + a + one(r, (" of ", " and the ", " in the ", " under the ")) + b
    return one(r, ("The Ballad of ", "Letters to ", "The Road to ", "Waiting for ", "The Last Days of ", "Dancing with ")) + made_name(r, side)
