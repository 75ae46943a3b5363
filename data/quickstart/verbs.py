"""The verbs: ``english forms = german forms | objects | adjuncts``.

English forms are base, past and participle, the last two only where irregular or doubling a
letter; ``~`` joins what follows the verb (``turn~on``; ``+`` if an object pronoun goes between).
German forms are infinitive, er-form and participle, the last two only if strong; ``|`` divides a
separable prefix (``_`` is a space), ``sich`` marks reflexives and ``!`` the perfect with sein.

Adjuncts are letters for those that sound natural with the verb. Places: h in a room,
b in a building, o in the open, c in a city, e where one eats, s where one does sport,
m where music is made.
Manner: Q quickly, V carefully, T thoroughly, P patiently, L loudly, G well, A alone.
S: a state, in the simple present and past alone. W: with somebody. D: lasts long
enough for "is ...ing" and "for three years".
"""

INTRANSITIVE = """
    work = arbeiten | | hbcAWD
    sleep slept = schlafen schläft geschlafen | | hoGAD
    laugh = lachen | | hmL
    dance = tanzen | | hmGWD
    sing sang sung = singen gesungen | | hmLGWD
    swim swam swum = schwimmen !geschwommen | | QAW
    wait = warten | | bPAWD
    cry = weinen | | hLD
    study = studieren | | cWD
    practise = üben | | hAWD
    chat chatted = plaudern | | heWD
    smoke = rauchen | | oD
    train = trainieren | | sAWD
    hike = wandern !gewandert | | oAW
    get~up got got = auf|stehen !aufgestanden | | Q
    wake~up woke woken = auf|wachen !aufgewacht | |
    fall~asleep fell fallen = ein|schlafen einschläft !eingeschlafen | | hQ
    arrive = an|kommen !angekommen | | cAW
    go~shopping went gone = ein|kaufen | | cAW
    watch~television = fern|sehen fernsieht ferngesehen | | hAWD
    go~for~a~walk went gone = spazieren_|gehen !spazieren_gegangen | | oAW
    come~back came come = zurück|kommen !zurückgekommen | |
    stay~at~home = zu_Hause_|bleiben !zu_Hause_geblieben | | A
    cycle = Rad_|fahren Rad_fährt !Rad_gefahren | | oQAWD
    rest = sich aus|ruhen | | hoD
    hurry = sich beeilen | |
    sit~down sat sat = sich hin|setzen | | Q
    get~dressed got got = sich an|ziehen angezogen | | Q
    lie~down lay lain = sich hin|legen | |
    shave = sich rasieren | | hQ
    relax = sich entspannen | | ho
    catch~a~cold caught caught = sich erkälten | |
    get~lost got got = sich verlaufen verläuft verlaufen | | oc
    get~bored got got = sich langweilen | | b
"""

TRANSITIVE = """
    read read = lesen liest gelesen | writing document | hbTD
    write wrote written = schreiben geschrieben | writing | hbQD
    translate = übersetzen | writing | QTD
    print = drucken | writing picture:photo picture:poster picture:calendar | b
    sign = unterschreiben unterschrieben | paper | Q
    fill~in = aus|füllen | paper:form | QTD
    pay paid = bezahlen | paper:bill | Q
    check = prüfen | paper device vehicle | TD
    buy bought bought = kaufen | vehicle furniture clothes device tool document
        instrument food drink
        fruit vegetable toy | c
    sell sold sold = verkaufen | vehicle furniture instrument device clothes plant | c
    eat ate eaten = essen isst gegessen | fruit vegetable dish pastry food | eQWD
    taste = probieren | dish pastry food drink |
    peel = schälen | fruit vegetable | hQVD
    cook = kochen | dish:soup dish:egg food:rice vegetable | D
    bake = backen backt gebacken | pastry food:bread dish:pizza | WD
    drink drank drunk = trinken getrunken | drink | eQWD
    order = bestellen | dish pastry drink document furniture |
    repair = reparieren | vehicle device furniture | QWD
    clean = putzen | room opening | QTWD
    wash = waschen wäscht gewaschen | clothes vehicle dishware | TWD
    wear wore worn = tragen trägt getragen | clothes | D
    iron = bügeln | clothes:shirt clothes:blouse clothes:dress clothes:skirt | hD
    sew sewed sewn = nähen | clothes:dress clothes:skirt clothes:blouse clothes:coat | hD
    try+on = an|probieren | clothes |
    put+on put put = an|ziehen angezogen | clothes | Q
    take+off took taken = aus|ziehen ausgezogen | clothes | Q
    tidy+up = auf|räumen | room opening:drawer | QWD
    visit = besuchen | person relative building | W
    invite = ein|laden einlädt eingeladen | person relative |
    call = an|rufen angerufen | person relative |
    pick+up = ab|holen | person relative goods:parcel |
    greet = begrüßen | person relative | L
    meet met met = treffen trifft getroffen | person relative | bc
    know knew known = kennen gekannt | person building landscape | GS
    see saw seen = sehen sieht gesehen | person relative animal building vehicle:car transport | c
    hear heard heard = hören | person relative animal |
    ask = fragen | person relative |
    understand understood understood = verstehen verstanden | topic writing | Q
    look~for = suchen | clothes tool goods animal paper | hD
    find found found = finden gefunden | clothes tool goods paper document | Q
    lose lost lost = verlieren verloren | clothes tool paper goods |
    forget forgot forgotten = vergessen vergisst vergessen | clothes tool goods event topic |
    need = brauchen | tool device clothes goods furniture food | S
    use = benutzen | tool device | VD
    open = öffnen | opening goods writing:letter | QV
    close = schließen geschlossen | opening goods:suitcase goods:bag goods:box | QV
    turn+on = ein|schalten | device furniture:lamp |
    turn+off = aus|schalten | device furniture:lamp |
    build built built = bauen | building:church building:house building:school building:museum
        landscape:bridge furniture | QD
    paint = malen | picture:picture | D
    draw drew drawn = zeichnen | animal plant building | D
    photograph = fotografieren | animal building plant landscape | D
    watch = beobachten | animal person | D
    take+along took taken = mit|nehmen mitnimmt mitgenommen | goods clothes tool document |
    bring+along brought brought = mit|bringen mitgebracht | dish pastry drink toy
        instrument:guitar instrument:flute |
    pack = ein|packen | clothes document tool toy | QD
    feed fed fed = füttern | animal | QD
    plant = pflanzen | plant | D
    water = gießen gegossen | plant | D
    rent = mieten | room:flat vehicle building:house |
    organise = organisieren | event | D
    cancel cancelled = ab|sagen | event |
    miss = verpassen | transport event |
    prepare = vor|bereiten | event | TD
    celebrate = feiern | event:wedding event:party | bD
    describe = beschreiben beschrieben | person topic picture | T
    solve = lösen | topic:problem topic:task | QD
    discuss = besprechen bespricht besprochen | topic | TWD
    answer = beantworten | topic:question writing:letter writing:e-mail | QD
    learn = lernen | topic:rule writing:poem | Q
    pass = bestehen bestanden | event:exam |
    correct = korrigieren | topic:mistake writing | QD
    push = schieben geschoben | vehicle:car vehicle:bicycle vehicle:motorbike furniture |
    pull = ziehen gezogen | goods vehicle:boat furniture | Q
    carry = tragen trägt getragen | goods furniture tool toy | VWD
    lift = heben gehoben | goods furniture toy | V
    throw+away threw thrown = weg|werfen wegwirft weggeworfen | document clothes goods dishware |
    catch caught caught = fangen fängt gefangen | toy:ball animal:mouse animal:rabbit animal:hen |
    break broke broken = zerbrechen zerbricht zerbrochen | dishware |
    hide hid hidden = verstecken | goods toy paper | QV
    steal stole stolen = stehlen stiehlt gestohlen | vehicle picture device | c
    change = ändern | topic:plan topic:rule topic:decision | Q
    choose chose chosen = aus|wählen | clothes picture document plant | QV
    collect = sammeln | toy picture dishware | D
    write+down wrote written = auf|schreiben aufgeschrieben | topic | Q
    accept = an|nehmen annimmt angenommen | topic:suggestion goods:present | Q
    reject = ab|lehnen | topic:suggestion topic:plan topic:idea | Q
"""

# Objects in the accusative after a person in the dative.
DITRANSITIVE = """
    give gave given = geben gibt gegeben | tool document goods toy plant:flower |
    show showed shown = zeigen | picture room document clothes device |
    send sent sent = schicken | writing goods:parcel goods:present |
    lend lent lent = leihen geliehen | tool vehicle document clothes instrument:guitar |
    explain~to = erklären | topic | P
    recommend~to = empfehlen empfiehlt empfohlen | document building dish |
    bring brought brought = bringen gebracht | drink food dish goods plant:flower |
    tell told told = erzählen | writing:story |
    offer = an|bieten angeboten | drink pastry dish |
    promise = versprechen verspricht versprochen | toy goods:present animal:dog animal:cat
        animal:horse |
    buy bought bought = kaufen | clothes toy plant:flower pastry |
    read~out~to read = vor|lesen vorliest vorgelesen | writing | L
"""

DATIVE = """
    help = helfen hilft geholfen | person relative | D
    thank = danken | person relative |
    follow = folgen !gefolgt | person relative animal | QV
    trust = vertrauen | person relative | S
    congratulate = gratulieren | person relative |
    listen~to = zu|hören | person relative | PD
    believe = glauben | person relative | S
"""

# The German preposition and its case stand before what it governs.
PREPOSITIONAL = """
    wait~for = warten | auf acc: person relative transport vehicle:bus | PAWD
    think~of thought thought = denken gedacht | an acc: person relative event |
    talk~about = sprechen spricht gesprochen | über acc: topic event person weather:rain | hbWD
    dream~of = träumen | von dat: event:journey vehicle:boat vehicle:motorbike landscape:beach
        landscape:island |
    laugh~about = lachen | über acc: writing:story topic:mistake topic:idea picture:photo | L
    ask~for = bitten gebeten | um acc: topic:answer drink paper:bill | L
    take~part~in took taken = teil|nehmen teilnimmt teilgenommen | an dat: event |
    look~forward~to = sich freuen | auf acc: event |
    remember = sich erinnern | an acc: person relative event building | G
    complain~about = sich beschweren | über acc: weather:noise person dish weather:traffic | L
    take~care~of took taken = sich kümmern | um acc: animal plant relative person:child | AGD
    get~used~to got got = sich gewöhnen | an acc: weather:noise topic:rule weather:heat room | Q
    apologise~to = sich entschuldigen | bei dat: person relative |
    apply~for = sich bewerben bewirbt beworben | um acc: room:flat topic:task |
    concentrate~on = sich konzentrieren | auf acc: topic:task document:book event:game | D
    prepare~for = sich vor|bereiten | auf acc: event | GD
    say~goodbye~to said said = sich verabschieden | von dat: person relative | Q
    get~annoyed~about got got = sich ärgern | über acc: topic:mistake person weather:rain |
    recover~from = sich erholen | von dat: event:journey weather:illness | Q
    fall~in~love~with fell fallen = sich verlieben | in acc: person:artist person:student |
    decide~on = sich entscheiden entschieden | für acc: clothes topic:suggestion dish |
"""

# With a goal: B for the station or the kitchen, C for Berlin.
MOTION = """
    go went gone = gehen !gegangen | | B
    walk = laufen läuft !gelaufen | | BQ
    come came come = kommen !gekommen | | B
    drive drove driven = fahren fährt !gefahren | | BCQ
    travel travelled = reisen !gereist | | C
    fly flew flown = fliegen !geflogen | | C
    move = um|ziehen !umgezogen | | C
    return = zurück|kehren !zurückgekehrt | | BC
"""

# Put things somewhere, in the accusative.
PLACING = """
    place = stellen | dishware goods plant:flower | QV
    lay laid laid = legen | document paper tool clothes toy:doll writing:letter | QV
    hang hung hung = hängen | picture |
"""

# Be somewhere, in the dative: who or what, and where.
POSTURE = """
    lie lay lain = liegen gelegen | document paper tool clothes toy:doll writing:letter |
    stand stood stood = stehen gestanden | dishware goods furniture:lamp furniture:chair |
    hang hung hung = hängen gehangen | picture |
    sit sat sat = sitzen gesessen | person relative animal:cat animal:dog |
    live = wohnen | person relative |
"""

# Before a dass or ob clause, and before zu with an infinitive.
SAYING = """
    say said said = sagen | |
    hope = hoffen | |
    think thought thought = denken gedacht | |
    know knew known = wissen weiß gewusst | |
    notice = merken | |
    hear heard heard = hören | |
"""
WONDERING = """
    ask = fragen | |
    know knew known = wissen weiß gewusst | |
    wonder = sich fragen | |
"""
TRYING = """
    try = versuchen | |
    forget forgot forgotten = vergessen vergisst vergessen | |
    promise = versprechen verspricht versprochen | |
    decide = beschließen beschlossen | |
    hope = hoffen | |
    plan planned = planen | |
    begin began begun = an|fangen anfängt angefangen | |
"""

SPORTS = """
    football: Fußball; tennis: Tennis; golf: Golf; basketball: Basketball; handball: Handball;
    hockey: Hockey
"""
PASTIMES = """
    chess: Schach; cards: Karten; hide-and-seek: Verstecken; the piano: Klavier;
    the guitar: Gitarre; the violin: Geige; the flute: Flöte; the trumpet: Trompete;
    the cello: Cello
"""

# English verbs for some of the patterns: how one comes by a thing, and what one does with it then;
ACQUIRING = "buy find order choose"
AFTERWARDS = """
    repair clean wash wear sell photograph hide read sign check peel eat drink pack open lose forget
    iron plant correct print fill pay use tidy translate throw turn put
"""
# what one goes somewhere for, and what one may leave undone;
ERRANDS = """
    buy visit meet pick help thank repair sell celebrate order eat drink learn clean show take
    apologise congratulate pass work study swim dance play train sing read rent
"""
OMISSIONS = """
    thank ask pay say wait greet call congratulate visit help invite understand buy eat drink
"""
# what happens to people rather than being done by them.
INVOLUNTARY = """
    get catch fall lose steal break miss arrive cry recover complain see hear understand find wake
    dream laugh know apply remember
"""
