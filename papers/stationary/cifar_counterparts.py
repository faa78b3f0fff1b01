"""Which classes of TinyImageNet and miniImageNet look like a class of CIFAR-10 or CIFAR-100, and which do not.

Judged generously, by what the pictures show rather than by the word: clothes show people, dishes show plates and bowls,
and every small animal goes with its nearest. What is left can test a model trained on CIFAR-100 on classes of which it
has seen nothing alike.
"""

COUNTERPARTS: dict[str, str] = {
    "n07768694": "apple",  # pomegranate
    "n01443537": "aquarium_fish",  # goldfish
    "n09256479": "aquarium_fish",  # coral reef
    "n03670208": "automobile",  # limousine
    "n04285008": "automobile",  # sports car
    "n02814533": "automobile",  # beach wagon
    "n03100240": "automobile",  # convertible
    "n03444034": "automobile",  # go-kart
    "n02132136": "bear",  # brown bear
    "n01882714": "bear",  # koala
    "n04399382": "bear",  # teddy
    "n02206856": "bee",  # bee
    "n02268443": "bee",  # dragonfly
    "n02190166": "bee",  # fly
    "n02165456": "beetle",  # ladybug
    "n03599486": "bicycle",  # jinrikisha
    "n02058221": "bird",  # albatross
    "n02056570": "bird",  # king penguin
    "n01855672": "bird",  # goose
    "n02002724": "bird",  # black stork
    "n03983396": "bottle",  # pop bottle
    "n02823428": "bottle",  # beer bottle
    "n03937543": "bottle",  # pill bottle
    "n04560804": "bottle",  # water jug
    "n07614500": "bowl",  # ice cream
    "n07583066": "bowl",  # guacamole
    "n03400231": "bowl",  # frying pan
    "n04596742": "bowl",  # wok
    "n03992509": "bowl",  # potter's wheel
    "n03160309": "bridge",  # dam
    "n04366367": "bridge",  # suspension bridge
    "n04311004": "bridge",  # steel arch bridge
    "n04532670": "bridge",  # viaduct
    "n04146614": "bus",  # school bus
    "n04487081": "bus",  # trolleybus
    "n02279972": "butterfly",  # monarch
    "n02281406": "butterfly",  # sulphur butterfly
    "n02437312": "camel",  # Arabian camel
    "n02795169": "can",  # barrel
    "n04486054": "castle",  # triumphal arch
    "n03042490": "castle",  # cliff dwelling
    "n02124075": "cat",  # Egyptian cat
    "n02123045": "cat",  # tabby
    "n02123394": "cat",  # Persian cat
    "n02236044": "caterpillar",  # mantis
    "n02231487": "caterpillar",  # walking stick
    "n02395406": "cattle",  # hog
    "n02403003": "cattle",  # ox
    "n02410509": "cattle",  # bison
    "n04099969": "chair",  # rocking chair
    "n02791270": "chair",  # barbershop
    "n02486410": "chimpanzee",  # baboon
    "n02481823": "chimpanzee",  # chimpanzee
    "n02480495": "chimpanzee",  # orangutan
    "n03544143": "clock",  # hourglass
    "n04328186": "clock",  # stopwatch
    "n03706229": "clock",  # magnetic compass
    "n02233338": "cockroach",  # cockroach
    "n02226429": "cockroach",  # grasshopper
    "n01768244": "crab",  # trilobite
    "n01698640": "crocodile",  # American alligator
    "n07920052": "cup",  # espresso
    "n04398044": "cup",  # teapot
    "n02815834": "cup",  # beaker
    "n02909870": "cup",  # bucket
    "n02423022": "deer",  # gazelle
    "n02415577": "deer",  # bighorn
    "n02106662": "dog",  # German shepherd
    "n02099712": "dog",  # Labrador retriever
    "n02099601": "dog",  # golden retriever
    "n02094433": "dog",  # Yorkshire terrier
    "n02085620": "dog",  # Chihuahua
    "n02113799": "dog",  # standard poodle
    "n02504458": "elephant",  # African elephant
    "n01641577": "frog",  # bullfrog
    "n01644900": "frog",  # tailed frog
    "n02364673": "hamster",  # guinea pig
    "n02843684": "house",  # birdhouse
    "n02814860": "house",  # beacon
    "n03930313": "house",  # picket fence
    "n02793495": "house",  # barn
    "n04417672": "house",  # thatch
    "n03085013": "keyboard",  # computer keyboard
    "n03637318": "lamp",  # lampshade
    "n04456115": "lamp",  # torch
    "n02948072": "lamp",  # candle
    "n03649909": "lawn_mower",  # lawn mower
    "n02125311": "leopard",  # cougar
    "n02129165": "lion",  # lion
    "n01629819": "lizard",  # European fire salamander
    "n01984695": "lobster",  # spiny lobster
    "n01983481": "lobster",  # American lobster
    "n02669723": "man",  # academic gown
    "n03814639": "man",  # neck brace
    "n04259630": "man",  # sombrero
    "n03424325": "man",  # gasmask
    "n04023962": "man",  # punching bag
    "n04532106": "man",  # vestment
    "n04251144": "man",  # snorkel
    "n04371430": "man",  # swimming trunks
    "n02883205": "man",  # bow tie
    "n03763968": "man",  # military uniform
    "n09246464": "mountain",  # cliff
    "n09193705": "mountain",  # alp
    "n07734744": "mushroom",  # mushroom
    "n12267677": "oak_tree",  # acorn
    "n07749582": "orange",  # lemon
    "n07747607": "orange",  # orange
    "n07753592": "pear",  # banana
    "n07873807": "plate",  # pizza
    "n07875152": "plate",  # potpie
    "n07579787": "plate",  # plate
    "n07711569": "plate",  # mashed potato
    "n07871810": "plate",  # meat loaf
    "n02509815": "raccoon",  # lesser panda
    "n04008634": "rocket",  # projectile
    "n09428293": "sea",  # seashore
    "n09332890": "sea",  # lakeside
    "n02074367": "seal",  # dugong
    "n03447447": "ship",  # gondola
    "n03662601": "ship",  # lifeboat
    "n04562935": "skyscraper",  # water tower
    "n03837869": "skyscraper",  # obelisk
    "n01944390": "snail",  # snail
    "n01945685": "snail",  # slug
    "n01950731": "snail",  # sea slug
    "n01742172": "snake",  # boa constrictor
    "n04275548": "spider",  # spider web
    "n01774750": "spider",  # tarantula
    "n01770393": "spider",  # scorpion
    "n01774384": "spider",  # black widow
    "n07720875": "sweet_pepper",  # bell pepper
    "n03201208": "table",  # dining table
    "n03179701": "table",  # desk
    "n02699494": "table",  # altar
    "n02950826": "tank",  # cannon
    "n04074963": "telephone",  # remote control
    "n03902125": "telephone",  # pay-phone
    "n03584254": "telephone",  # iPod
    "n02988304": "television",  # CD player
    "n04465501": "tractor",  # tractor
    "n03393912": "train",  # freight car
    "n02917067": "train",  # bullet train
    "n03796401": "truck",  # moving van
    "n03977966": "truck",  # police van
    "n03014705": "wardrobe",  # chest
    "n04070727": "wardrobe",  # refrigerator
    "n02963159": "woman",  # cardigan
    "n03404251": "woman",  # fur coat
    "n03770439": "woman",  # miniskirt
    "n04356056": "woman",  # sunglasses
    "n02730930": "woman",  # apron
    "n02837789": "woman",  # bikini
    "n03617480": "woman",  # kimono
    "n03980874": "woman",  # poncho
    "n02321529": "worm",  # sea cucumber
    "n01784675": "worm",  # centipede
}
"""Per wnid the class of CIFAR-10 or CIFAR-100 that it resembles most."""

WITHOUT_COUNTERPART: dict[str, str] = {
    "n01910747": "jellyfish",
    "n01917289": "brain coral",
    "n02666196": "abacus",
    "n02769748": "backpack",
    "n02788148": "bannister",
    "n02802426": "basketball",
    "n02808440": "bathtub",
    "n02841315": "binoculars",
    "n02892201": "brass",
    "n02906734": "broom",
    "n02927161": "butcher shop",
    "n02977058": "cash machine",
    "n02999410": "chain",
    "n03026506": "Christmas stocking",
    "n03089624": "confectionery",
    "n03126707": "crane",
    "n03250847": "drumstick",
    "n03255030": "dumbbell",
    "n03355925": "flagpole",
    "n03388043": "fountain",
    "n03733131": "maypole",
    "n03804744": "nail",
    "n03838899": "oboe",
    "n03854065": "organ",
    "n03891332": "parking meter",
    "n03970156": "plunger",
    "n03976657": "pole",
    "n04067472": "reel",
    "n04118538": "rugby ball",
    "n04133789": "sandal",
    "n04149813": "scoreboard",
    "n04179913": "sewing machine",
    "n04254777": "sock",
    "n04265275": "space heater",
    "n04376876": "syringe",
    "n04501370": "turnstile",
    "n04507155": "umbrella",
    "n04540053": "volleyball",
    "n04597913": "wooden spoon",
    "n06596364": "comic book",
    "n07615774": "ice lolly",
    "n07695742": "pretzel",
    "n07715103": "cauliflower",
}
"""The other classes, with their names."""

MINI_WITHOUT_COUNTERPART: dict[str, str] = {
    "n01910747": "jellyfish",
    "n02966193": "carousel",
    "n02971356": "carton",
    "n03017168": "chime",
    "n03047690": "clog",
    "n03075370": "combination lock",
    "n03127925": "crate",
    "n03146219": "cuirass",
    "n03207743": "dishrag",
    "n03272010": "electric guitar",
    "n03347037": "fire screen",
    "n03476684": "hair slide",
    "n03527444": "holster",
    "n03676483": "lipstick",
    "n03908618": "pencil box",
    "n03924679": "photocopier",
    "n03998194": "prayer rug",
    "n04243546": "slot machine",
    "n04258138": "solar dish",
    "n04296562": "stage",
    "n04418357": "theatre curtain",
    "n06794110": "street sign",
    "n13133613": "ear of maize",
}
"""Classes of miniImageNet that resemble no class of CIFAR-10 or CIFAR-100 and no validation class of TinyImageNet (an
upright piano resembles the organ, a tobacco shop the butcher shop). Each of its other 77 classes does."""
