"""The nouns: ``english: article Singular, Plural``, by what one can do with them.

``*`` marks German nouns that add -n or -en in every case but the nominative (der Student, den
Studenten); ``/`` gives an English plural that is not regular; a noun without a plural is a mass.
"""

NOUNS = {
    "person": """
        teacher: der Lehrer, Lehrer; doctor: der Arzt, Ärzte;
        nurse: die Krankenschwester, Krankenschwestern; student: der Student*, Studenten;
        pupil: der Schüler, Schüler; neighbour: der Nachbar*, Nachbarn;
        boss/bosses: der Chef, Chefs; baker: der Bäcker, Bäcker;
        colleague: der Kollege*, Kollegen; customer: der Kunde*, Kunden; guest: der Gast, Gäste;
        child/children: das Kind, Kinder; boy: der Junge*, Jungen; girl: das Mädchen, Mädchen;
        man/men: der Mann, Männer; woman/women: die Frau, Frauen; cook: der Koch, Köche;
        gardener: der Gärtner, Gärtner; postman/postmen: der Briefträger, Briefträger;
        policeman/policemen: der Polizist*, Polizisten; farmer: der Bauer*, Bauern;
        journalist: der Journalist*, Journalisten; artist: der Künstler, Künstler;
        lawyer: der Anwalt, Anwälte; hairdresser: der Friseur, Friseure;
        judge: der Richter, Richter; waiter: der Kellner, Kellner;
        mechanic: der Mechaniker, Mechaniker; pilot: der Pilot*, Piloten;
        tourist: der Tourist*, Touristen; engineer: der Ingenieur, Ingenieure;
        actor: der Schauspieler, Schauspieler; actress: die Schauspielerin, Schauspielerinnen;
        singer: der Sänger, Sänger; dentist: der Zahnarzt, Zahnärzte;
        seller: der Verkäufer, Verkäufer; photographer: der Fotograf*, Fotografen;
        musician: der Musiker, Musiker; lady: die Dame, Damen;
        gentleman/gentlemen: der Herr*Herrn, Herren; coach: der Trainer, Trainer;
        driver: der Fahrer, Fahrer; secretary: die Sekretärin, Sekretärinnen
    """,
    "relative": """
        mother: die Mutter, Mütter; father: der Vater, Väter; brother: der Bruder, Brüder;
        sister: die Schwester, Schwestern; son: der Sohn, Söhne; daughter: die Tochter, Töchter;
        uncle: der Onkel, Onkel; aunt: die Tante, Tanten; cousin: der Cousin, Cousins;
        grandmother: die Großmutter, Großmütter; grandfather: der Großvater, Großväter;
        friend: der Freund, Freunde; nephew: der Neffe*, Neffen; niece: die Nichte, Nichten
    """,
    "animal": """
        dog: der Hund, Hunde; cat: die Katze, Katzen; horse: das Pferd, Pferde;
        bird: der Vogel, Vögel; cow: die Kuh, Kühe; pig: das Schwein, Schweine;
        mouse/mice: die Maus, Mäuse; rabbit: das Kaninchen, Kaninchen; duck: die Ente, Enten;
        bear: der Bär*, Bären; lion: der Löwe*, Löwen; monkey: der Affe*, Affen;
        elephant: der Elefant*, Elefanten; goat: die Ziege, Ziegen; donkey: der Esel, Esel;
        hen: das Huhn, Hühner
    """,
    "fruit": """
        apple: der Apfel, Äpfel; pear: die Birne, Birnen; banana: die Banane, Bananen;
        orange: die Orange, Orangen; lemon: die Zitrone, Zitronen
    """,
    "vegetable": """
        potato/potatoes: die Kartoffel, Kartoffeln; onion: die Zwiebel, Zwiebeln;
        carrot: die Karotte, Karotten; tomato/tomatoes: die Tomate, Tomaten
    """,
    "dish": """
        soup: die Suppe, Suppen; salad: der Salat, Salate; pizza: die Pizza, Pizzas;
        sausage: die Wurst, Würste; pancake: der Pfannkuchen, Pfannkuchen; egg: das Ei, Eier;
        chicken: das Hähnchen, Hähnchen
    """,
    "pastry": """
        cake: der Kuchen, Kuchen; roll: das Brötchen, Brötchen; biscuit: der Keks, Kekse;
        waffle: die Waffel, Waffeln
    """,
    "food": """
        bread: das Brot; butter: die Butter; cheese: der Käse; rice: der Reis; meat: das Fleisch;
        ham: der Schinken; chocolate: die Schokolade; honey: der Honig; jam: die Marmelade;
        fruit: das Obst; ice cream: das Eis
    """,
    "drink": """
        water: das Wasser; milk: die Milch; coffee: der Kaffee; tea: der Tee; beer: das Bier;
        wine: der Wein; juice: der Saft; lemonade: die Limonade
    """,
    "dishware": """
        cup: die Tasse, Tassen; glass: das Glas, Gläser; plate: der Teller, Teller;
        bowl: die Schüssel, Schüsseln; vase: die Vase, Vasen; bottle: die Flasche, Flaschen;
        jug: der Krug, Krüge
    """,
    "vehicle": """
        car: das Auto, Autos; bus: der Bus, Busse; bicycle: das Fahrrad, Fahrräder;
        lorry: der Lastwagen, Lastwagen; taxi: das Taxi, Taxis; boat: das Boot, Boote;
        motorbike: das Motorrad, Motorräder; tractor: der Traktor, Traktoren
    """,
    "transport": """
        train: der Zug, Züge; plane: das Flugzeug, Flugzeuge; ship: das Schiff, Schiffe;
        tram: die Straßenbahn, Straßenbahnen; ferry: die Fähre, Fähren
    """,
    "furniture": """
        table: der Tisch, Tische; chair: der Stuhl, Stühle; bed: das Bett, Betten;
        sofa: das Sofa, Sofas; armchair: der Sessel, Sessel;
        desk: der Schreibtisch, Schreibtische; bench: die Bank, Bänke;
        cupboard: der Schrank, Schränke; shelf/shelves: das Regal, Regale; lamp: die Lampe, Lampen
    """,
    "room": """
        kitchen: die Küche, Küchen; bathroom: das Badezimmer, Badezimmer;
        bedroom: das Schlafzimmer, Schlafzimmer; living room: das Wohnzimmer, Wohnzimmer;
        cellar: der Keller, Keller; garage: die Garage, Garagen; office: das Büro, Büros;
        garden: der Garten, Gärten; flat: die Wohnung, Wohnungen;
        dining room: das Esszimmer, Esszimmer
    """,
    "building": """
        station: der Bahnhof, Bahnhöfe; school: die Schule, Schulen; museum: das Museum, Museen;
        church: die Kirche, Kirchen; hospital: das Krankenhaus, Krankenhäuser;
        hotel: das Hotel, Hotels; restaurant: das Restaurant, Restaurants;
        cinema: das Kino, Kinos; theatre: das Theater, Theater;
        library: die Bibliothek, Bibliotheken; supermarket: der Supermarkt, Supermärkte;
        pharmacy: die Apotheke, Apotheken; post office: das Postamt, Postämter;
        airport: der Flughafen, Flughäfen; university: die Universität, Universitäten;
        factory: die Fabrik, Fabriken; castle: das Schloss, Schlösser;
        town hall: das Rathaus, Rathäuser; swimming pool: das Schwimmbad, Schwimmbäder;
        stadium/stadiums: das Stadion, Stadien; house: das Haus, Häuser; café: das Café, Cafés;
        shop: der Laden, Läden; bakery: die Bäckerei, Bäckereien
    """,
    "landscape": """
        mountain: der Berg, Berge; lake: der See, Seen; forest: der Wald, Wälder;
        river: der Fluss, Flüsse; beach: der Strand, Strände; island: die Insel, Inseln;
        village: das Dorf, Dörfer; town: die Stadt, Städte; park: der Park, Parks;
        bridge: die Brücke, Brücken; street: die Straße, Straßen; valley: das Tal, Täler;
        square: der Platz, Plätze
    """,
    "writing": """
        letter: der Brief, Briefe; report: der Bericht, Berichte; novel: der Roman, Romane;
        poem: das Gedicht, Gedichte; story: die Geschichte, Geschichten;
        article: der Artikel, Artikel; e-mail: die E-Mail, E-Mails;
        message: die Nachricht, Nachrichten; text: der Text, Texte
    """,
    "document": """
        book: das Buch, Bücher; newspaper: die Zeitung, Zeitungen;
        magazine: die Zeitschrift, Zeitschriften; dictionary: das Wörterbuch, Wörterbücher;
        notebook: das Heft, Hefte
    """,
    "paper": """
        contract: der Vertrag, Verträge; form: das Formular, Formulare;
        bill: die Rechnung, Rechnungen; ticket: die Fahrkarte, Fahrkarten;
        passport: der Pass, Pässe
    """,
    "device": """
        computer: der Computer, Computer; phone: das Telefon, Telefone; radio: das Radio, Radios;
        television: der Fernseher, Fernseher; camera: die Kamera, Kameras;
        washing machine: die Waschmaschine, Waschmaschinen; fridge: der Kühlschrank, Kühlschränke;
        printer: der Drucker, Drucker; clock: die Uhr, Uhren; heater: die Heizung, Heizungen;
        oven: der Ofen, Öfen
    """,
    "tool": """
        hammer: der Hammer, Hämmer; saw: die Säge, Sägen; knife/knives: das Messer, Messer;
        fork: die Gabel, Gabeln; spoon: der Löffel, Löffel; pan: die Pfanne, Pfannen;
        pot: der Topf, Töpfe; key: der Schlüssel, Schlüssel;
        umbrella: der Regenschirm, Regenschirme; ladder: die Leiter, Leitern;
        broom: der Besen, Besen; bucket: der Eimer, Eimer; rope: das Seil, Seile;
        pencil: der Bleistift, Bleistifte
    """,
    "clothes": """
        coat: der Mantel, Mäntel; jacket: die Jacke, Jacken; shirt: das Hemd, Hemden;
        dress: das Kleid, Kleider; hat: der Hut, Hüte; skirt: der Rock, Röcke;
        jumper: der Pullover, Pullover; shoe: der Schuh, Schuhe; boot: der Stiefel, Stiefel;
        scarf/scarves: der Schal, Schals; glove: der Handschuh, Handschuhe;
        cap: die Mütze, Mützen; tie: die Krawatte, Krawatten; belt: der Gürtel, Gürtel;
        sock: die Socke, Socken; suit: der Anzug, Anzüge; blouse: die Bluse, Blusen
    """,
    "instrument": """
        piano: das Klavier, Klaviere; guitar: die Gitarre, Gitarren; violin: die Geige, Geigen;
        flute: die Flöte, Flöten; trumpet: die Trompete, Trompeten; cello: das Cello, Cellos;
        drum: die Trommel, Trommeln
    """,
    "plant": """
        tree: der Baum, Bäume; flower: die Blume, Blumen; rose: die Rose, Rosen;
        tulip: die Tulpe, Tulpen; bush: der Busch, Büsche;
        sunflower: die Sonnenblume, Sonnenblumen
    """,
    "toy": """
        ball: der Ball, Bälle; doll: die Puppe, Puppen; teddy bear: der Teddybär*, Teddybären;
        kite: der Drachen, Drachen; balloon: der Luftballon, Luftballons
    """,
    "picture": """
        picture: das Bild, Bilder; photo: das Foto, Fotos; poster: das Plakat, Plakate;
        mirror: der Spiegel, Spiegel; calendar: der Kalender, Kalender;
        map: die Landkarte, Landkarten
    """,
    "goods": """
        parcel: das Paket, Pakete; suitcase: der Koffer, Koffer; bag: die Tasche, Taschen;
        rucksack: der Rucksack, Rucksäcke; box: die Kiste, Kisten; basket: der Korb, Körbe;
        present: das Geschenk, Geschenke
    """,
    "opening": """
        door: die Tür, Türen; window: das Fenster, Fenster; gate: das Tor, Tore;
        drawer: die Schublade, Schubladen
    """,
    "event": """
        party: die Party, Partys; concert: das Konzert, Konzerte; meeting: die Sitzung, Sitzungen;
        wedding: die Hochzeit, Hochzeiten; exam: die Prüfung, Prüfungen;
        journey: die Reise, Reisen; course: der Kurs, Kurse; game: das Spiel, Spiele;
        trip: der Ausflug, Ausflüge; exhibition: die Ausstellung, Ausstellungen;
        conference: die Konferenz, Konferenzen; festival: das Festival, Festivals;
        meal: das Essen, Essen
    """,
    "topic": """
        problem: das Problem, Probleme; question: die Frage, Fragen; idea: die Idee, Ideen;
        plan: der Plan, Pläne; answer: die Antwort, Antworten; mistake: der Fehler, Fehler;
        solution: die Lösung, Lösungen; rule: die Regel, Regeln; task: die Aufgabe, Aufgaben;
        suggestion: der Vorschlag, Vorschläge; decision: die Entscheidung, Entscheidungen
    """,
    "body": """
        hand: die Hand, Hände; foot/feet: der Fuß, Füße; head: der Kopf, Köpfe;
        arm: der Arm, Arme; leg: das Bein, Beine; eye: das Auge, Augen; ear: das Ohr, Ohren;
        tooth/teeth: der Zahn, Zähne; back: der Rücken, Rücken; finger: der Finger, Finger;
        knee: das Knie, Knie; shoulder: die Schulter, Schultern; neck: der Hals, Hälse
    """,
    "part": """
        roof: das Dach, Dächer; entrance: der Eingang, Eingänge; wall: die Wand, Wände;
        floor: der Boden, Böden; owner: der Besitzer, Besitzer; number: die Nummer, Nummern;
        price: der Preis, Preise; colour: die Farbe, Farben; size: die Größe, Größen;
        age: das Alter; title: der Titel, Titel; beginning: der Anfang, Anfänge;
        end: das Ende, Enden; author: der Autor, Autoren; page: die Seite, Seiten
    """,
    "weather": """
        rain: der Regen; snow: der Schnee; storm: der Sturm, Stürme; fog: der Nebel;
        wind: der Wind, Winde; cold: die Kälte; heat: die Hitze; noise: der Lärm;
        traffic: der Verkehr; strike: der Streik, Streiks; illness: die Krankheit, Krankheiten;
        thunderstorm: das Gewitter, Gewitter
    """,
    "span": """
        day: der Tag, Tage; week: die Woche, Wochen; month: der Monat, Monate;
        year: das Jahr, Jahre; hour: die Stunde, Stunden; minute: die Minute, Minuten
    """,
}

# A modifier joins every head of its line: kitchen + table is Küchen + tisch. A line that begins
# with a class puts the compounds there instead of in the class of the head (a toy car is a toy).
COMPOUNDS = """
    table chair cupboard shelf lamp: kitchen Küchen, garden Garten, office Büro, wooden Holz,
        living-room Wohnzimmer, children's Kinder, hotel Hotel
    door window key: house Haus, car Auto, kitchen Küchen, office Büro, cellar Keller,
        garage Garagen, bathroom Badezimmer, hotel Hotel
    jacket coat shoe hat glove: winter Winter, summer Sommer, leather Leder, children's Kinder,
        ladies' Damen, men's Herren
    shirt scarf dress blouse skirt: silk Seiden, cotton Baumwoll, woollen Woll, summer Sommer
    soup salad: tomato Tomaten, potato Kartoffel, onion Zwiebel, vegetable Gemüse, fish Fisch,
        noodle Nudel, bean Bohnen, carrot Karotten
    cake juice jam: apple Apfel, cherry Kirsch, plum Pflaumen, strawberry Erdbeer, pear Birnen,
        lemon Zitronen, orange Orangen
    tree: apple Apfel, cherry Kirsch, plum Pflaumen, lemon Zitronen, orange Orangen
    book magazine teacher course museum: music Musik, art Kunst, sports Sport, history Geschichts,
        dance Tanz
    driver: bus Bus, taxi Taxi, tram Straßenbahn, lorry Lastwagen
    ticket: bus Bus, train Zug, tram Straßenbahn
    glass bottle: wine Wein, beer Bier, water Wasser, juice Saft
    cup: coffee Kaffee, tea Tee
    church museum library square street: village Dorf, town Stadt
    school: music Musik, language Sprach, dance Tanz, art Kunst, sports Sport, village Dorf
    shop: flower Blumen, shoe Schuh, toy Spielzeug, furniture Möbel, music Musik, tea Tee
    course coach: tennis Tennis, football Fußball, chess Schach, swimming Schwimm
    game: football Fußball, tennis Tennis, card Karten
    party: birthday Geburtstags, summer Sommer, garden Garten, children's Kinder, office Büro
    exhibition: art Kunst, photo Foto, flower Blumen, book Buch
    festival: music Musik, film Film, art Kunst
    toy: car train plane boat bus lorry: toy Spielzeug
"""

# Who and which animals one may call mine, of whom one has only one, what comes in pairs,
OWN_PEOPLE = """
    teacher doctor neighbour boss colleague customer guest child gardener lawyer hairdresser dentist
    coach driver secretary mechanic cook
"""
OWN_ANIMALS = "dog cat horse bird cow pig rabbit duck goat donkey hen"
UNIQUE = "mother father grandmother grandfather boss"
IN_PAIRS = "shoe boot glove sock eye ear"
# and to whom one goes.
HOSTS = "relative person:doctor person:dentist person:hairdresser person:lawyer person:neighbour"
