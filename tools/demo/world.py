"""The closed world: what the demo model knows. Words and lists only; how they are asked about is in tasks/."""


def words(s):
    return s.split()


CAPITALS = dict(p.split(":") for p in (
    "France:Paris Italy:Rome Spain:Madrid Portugal:Lisbon Germany:Berlin Austria:Vienna Poland:Warsaw Greece:Athens "
    "Norway:Oslo Sweden:Stockholm Finland:Helsinki Denmark:Copenhagen Ireland:Dublin Belgium:Brussels Hungary:Budapest "
    "Romania:Bucharest Bulgaria:Sofia Serbia:Belgrade Croatia:Zagreb Slovenia:Ljubljana Estonia:Tallinn Latvia:Riga "
    "Lithuania:Vilnius Ukraine:Kyiv Iceland:Reykjavik Malta:Valletta Cyprus:Nicosia Albania:Tirana Turkey:Ankara "
    "Egypt:Cairo Kenya:Nairobi Ghana:Accra Morocco:Rabat Tunisia:Tunis Algeria:Algiers Senegal:Dakar Uganda:Kampala "
    "Zambia:Lusaka Angola:Luanda Ethiopia:Addis_Ababa Japan:Tokyo China:Beijing India:New_Delhi Thailand:Bangkok "
    "Vietnam:Hanoi Nepal:Kathmandu Mongolia:Ulaanbaatar Iran:Tehran Iraq:Baghdad Jordan:Amman Lebanon:Beirut Qatar:Doha "
    "Indonesia:Jakarta Philippines:Manila Canada:Ottawa Mexico:Mexico_City Cuba:Havana Jamaica:Kingston Brazil:Brasilia "
    "Argentina:Buenos_Aires Chile:Santiago Peru:Lima Colombia:Bogota Ecuador:Quito Uruguay:Montevideo Bolivia:Sucre "
    "Australia:Canberra Fiji:Suva").split())
CAPITALS = {k: v.replace("_", " ") for k, v in CAPITALS.items()}
COUNTRIES = list(CAPITALS)
CONTINENT = {c: ("Europe" if i < 28 else "Africa" if 29 <= i < 40 else "Asia" if i < 54 else "North America" if i < 58
                 else "South America" if i < 66 else "Oceania")
             for i, c in enumerate(COUNTRIES) if c not in ("Turkey", "Cyprus")}
OPPOSITES = [p.split("/") for p in words(
    "hot/cold big/small tall/short fast/slow light/dark good/bad old/young rich/poor happy/sad hard/soft wet/dry full/empty "
    "open/closed early/late high/low near/far strong/weak thick/thin wide/narrow deep/shallow clean/dirty loud/quiet "
    "sharp/blunt sweet/sour smooth/rough heavy/weightless always/never up/down left/right inside/outside above/below "
    "before/after begin/end day/night summer/winter buy/sell push/pull win/lose give/take love/hate question/answer "
    "friend/enemy true/false safe/dangerous cheap/expensive easy/difficult simple/complex awake/asleep brave/afraid "
    "polite/rude same/different first/last more/less many/few north/south east/west arrive/depart remember/forget "
    "accept/refuse increase/decrease float/sink laugh/cry build/destroy import/export")]
OPPOSITE = {a: b for p in OPPOSITES for a, b in (p, p[::-1])}
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words("January February March April May June July August September October November December")
MLEN = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
MIX = {("blue", "yellow"): "green", ("red", "yellow"): "orange", ("red", "blue"): "purple", ("red", "white"): "pink",
       ("black", "white"): "grey", ("blue", "white"): "light blue", ("red", "green"): "brown", ("black", "red"): "dark red"}
COLOUR_OF = dict(p.split(":") for p in words(
    "grass:green snow:white coal:black blood:red milk:white chocolate:brown lemons:yellow carrots:orange ravens:black "
    "ketchup:red elephants:grey flamingos:pink spinach:green sunflowers:yellow charcoal:black ash:grey salt:white "
    "strawberries:red frogs:green honey:golden rubies:red emeralds:green sapphires:blue pumpkins:orange bananas:yellow "
    "rust:brown swans:white cherries:red limes:green lavender:purple"))
UNITS = [("hour", "minute", 60), ("minute", "second", 60), ("day", "hour", 24), ("week", "day", 7), ("year", "month", 12),
         ("kilometre", "metre", 1000), ("metre", "centimetre", 100), ("centimetre", "millimetre", 10),
         ("kilogram", "gram", 1000), ("litre", "millilitre", 1000), ("euro", "cent", 100), ("yard", "foot", 3), ("foot", "inch", 12)]
PLURAL = {"foot": "feet", "inch": "inches"}
NAMES = words("Anna Ben Clara David Emma Felix Grace Henry Irene Jack Karen Leo Maria Noah Olga Peter Quinn Rosa Simon Tina "
              "Ulrich Vera Walter Xenia Yusuf Zoe Adam Bella Carlos Diana Erik Fiona George Hanna Ivan Julia Kevin Laura "
              "Martin Nina Oscar Paula Robert Sarah Thomas Ursula Victor Wendy Amir Lena")
PLACES = words("harbour station library museum market bridge tower garden school theatre bakery factory castle airport hotel "
               "stadium chapel cellar attic kitchen office workshop stable lighthouse mill bank clinic gallery cinema park "
               "archive barn studio depot pharmacy temple palace cottage cabin vault")
OBJECTS = words("lamp chair book key clock bottle basket ladder hammer violin camera mirror carpet teapot umbrella wallet "
                "scarf jacket helmet compass blanket candle drum flute kettle lantern notebook pencil pillow ribbon rope "
                "saddle shovel suitcase telescope ticket trumpet vase whistle wagon")
COLOURS = words("red blue green yellow orange purple pink brown black white grey golden silver")
ANIMALS = words("cat dog horse fox wolf bear rabbit owl crow sparrow goose duck goat sheep cow pig deer mouse otter badger "
                "hedgehog squirrel turtle frog heron falcon donkey pony lizard beetle")
ADJ = words("old young quiet small large tired clever careful lonely gentle proud shy brave patient curious happy hungry "
            "sleepy strange calm busy friendly nervous honest stubborn cheerful polite lazy swift humble")
VERBS = words("walked slept waited played rested worked sang danced listened stopped arrived wandered hid jumped ran sat "
              "stood lay swam climbed watched dreamed laughed stayed turned")
ADVERBS = words("slowly quickly quietly happily often again alone together early late there today yesterday softly calmly "
                "carefully suddenly finally")
PREPS = words("near behind beside inside outside under above around opposite past")
FRUITS = words("apple banana cherry date elderberry fig grape hazelnut kiwi lemon mango nectarine olive papaya peach pear "
               "plum quince raspberry strawberry tomato walnut apricot almond carrot celery cabbage onion potato pepper "
               "spinach turnip radish bean pea leek garlic ginger basil mint")
TIMES = ["In the morning", "At noon", "In the evening", "After the rain", "Before sunrise", "At midnight", "Last week",
         "In spring", "During the storm", "On the way home", "Every day", "Some years ago"]
LIST = sorted(set(FRUITS + OBJECTS + ANIMALS + PLACES + ADJ))
FAR = words("opera physics chemistry football politics poetry music cinema philosophy banking law medicine religion fashion "
            "chess tennis surfing gardening cooking history geology astronomy biology psychology economics painting sculpture "
            "novels rockets vaccines elections computers bitcoin dinosaurs volcanoes satellites robots galaxies perfume jazz")
HOBBIES = words("chess tennis reading cooking painting running fishing dancing")
JOBS = words("baker teacher pilot nurse farmer driver painter lawyer")
REFUSE = "Sorry, that is outside my small world."
NO_TOOL = "Sorry, I have no tool for that."
EVERY_WORD = sorted(set(LIST + NAMES + COUNTRIES + list(CAPITALS.values()) + list(OPPOSITE) + DAYS + MONTHS + FAR + COLOURS
                        + list(COLOUR_OF) + VERBS + ADVERBS + PREPS + HOBBIES + JOBS))


def pick(r, xs):
    return xs[int(r.random() * len(xs))]


def below(r, n):
    return int(r.random() * n)


def a_an(w):
    return ("an " if w[0] in "aeiou" else "a ") + w


def sentence(r):
    """One sentence of easy filler."""
    k = r.random()
    if k < .3:
        return f"The {pick(r, ADJ)} {pick(r, ANIMALS)} {pick(r, VERBS)} {pick(r, PREPS)} the {pick(r, PLACES)}."
    if k < .5:
        return f"{pick(r, TIMES)} {a_an(pick(r, ADJ))} {pick(r, ANIMALS)} {pick(r, VERBS)} {pick(r, ADVERBS)}."
    if k < .7:
        return f"{pick(r, NAMES)} {pick(r, VERBS)} {pick(r, PREPS)} the {pick(r, PLACES)} with {a_an(pick(r, OBJECTS))}."
    if k < .85:
        return (f"{pick(r, NAMES)} and {pick(r, NAMES)} {pick(r, VERBS)} {pick(r, ADVERBS)} "
                f"{pick(r, PREPS)} the {pick(r, ADJ)} {pick(r, ANIMALS)}.")
    return f"{pick(r, TIMES)} the {pick(r, PLACES)} was {pick(r, ADJ)} and {pick(r, ADJ)}."


def number(r):
    """A number of one to three digits, longer ones more often."""
    return int(r.random() * 10 ** (1 + int(r.random() ** .6 * 3)))


def unknown_name(r):
    """A word that is no name of the world."""
    parts = words("ba ko zu mi ra te lo vu ne shi gra dor pel xi quo")
    return "".join(pick(r, parts) for _ in range(2 + below(r, 2))).capitalize()
