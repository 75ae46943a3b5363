"""Everything but nouns and verbs: adjectives, adverbs, names, numbers, times and places."""

# ``english: german (comparative if it is not regular) codes``. A code is a sort of noun (see
# SORTS); a capital X means that the word has no comparative.
ADJECTIVES = """
    young: jung jünger ha; old: alt älter hatpwyj; friendly: freundlich h; polite: höflich h;
    nice: nett h; clever: klug klüger ha; lazy: faul ha; hard-working: fleißig h; brave: mutig h;
    happy: glücklich h; sad: traurig hx; tired: müde h; ill: krank hX; healthy: gesund h;
    famous: berühmt hpxj; rich: reich h; poor: arm ärmer h; strong: stark stärker ha;
    shy: schüchtern h; curious: neugierig ha; honest: ehrlich h; patient: geduldig h;
    funny: lustig hx; strict: streng h; quiet: ruhig hp; angry: wütend h; proud: stolz h;
    hungry: hungrig ha; thirsty: durstig ha; careful: vorsichtig h; serious: ernst h;
    wild: wild aX; tall: groß größer h; slim: schlank h; lonely: einsam h; nervous: nervös h;
    successful: erfolgreich h; talented: begabt h; generous: großzügig h; modest: bescheiden h;
    modern: modern tp; new: neu twpXmyj; big: groß größer sap; small: klein sap;
    beautiful: schön twplgj; ugly: hässlich twpj; expensive: teuer twyj; cheap: billig tw;
    heavy: schwer t; light: leicht t; useful: nützlich tm; broken: kaputt Xi;
    strange: seltsam txmjX; practical: praktisch tw; valuable: wertvoll tj; clean: sauber twp;
    dirty: schmutzig twpa; dark: dunkel r; bright: hell r; warm: warm wärmer wr;
    cold: kalt kälter dr; hot: heiß df; fresh: frisch bd; sweet: süß bu; sour: sauer uX;
    delicious: lecker bfd; ripe: reif uX; empty: leer rX; long: lang länger xo;
    short: kurz kürzer xo; interesting: interessant xohmj; boring: langweilig xo;
    exciting: spannend xo; important: wichtig xomy; difficult: schwierig m; easy: einfach m;
    wonderful: wunderbar lo; terrible: schrecklich om; good: gut besser xbfuom;
    bad: schlecht schlechter xfom; thick: dick wk; thin: dünn wk; elegant: elegant w;
    colourful: bunt wg; soft: weich w; wide: breit l; red: rot Xcwg; blue: blau Xcw;
    green: grün Xcw; yellow: gelb Xcwg; black: schwarz Xcwai; white: weiß Xcwagi;
    brown: braun Xcwa; grey: grau Xcwa; wet: nass wX; dry: trocken wX; comfortable: bequem qw;
    fast: schnell v; slow: langsam v; loud: laut vi; electric: elektrisch iX;
    reliable: zuverlässig vih; narrow: schmal l; valid: gültig yX
"""

# The codes of the adjectives that suit the nouns of a class; the empty class has none.
SORTS = {
    "person": "h", "relative": "h", "animal": "as", "fruit": "u", "vegetable": "sb", "dish": "f",
    "pastry": "b", "food": "b", "drink": "d", "dishware": "tsc", "vehicle": "tscv",
    "transport": "sv",
    "furniture": "tscq", "room": "rs", "building": "ps", "landscape": "l", "writing": "x",
    "document": "xtk", "paper": "y", "device": "tsi", "tool": "tsc", "clothes": "w",
    "instrument": "ts", "plant": "gs", "toy": "tsc", "picture": "sj", "goods": "tsc",
    "opening": "s", "event": "o", "topic": "m", "body": "", "part": "", "weather": "", "span": "",
}  # fmt: skip

FEMALE_NAMES = "Anna Maria Lena Julia Laura Sarah Lisa Emma Nina Eva Sophie Clara Petra Sabine Ida"
MALE_NAMES = "Peter Paul Martin Stefan Michael Jan Tom Tim Daniel David Simon Oliver Robert Georg"
SURNAMES = "Müller Schneider Fischer Weber Wagner Becker Hoffmann Koch Richter Klein Neumann Braun"
CITIES = """
    Berlin: Berlin; Hamburg: Hamburg; Munich: München; Cologne: Köln; Vienna: Wien;
    Zurich: Zürich; Leipzig: Leipzig; Dresden: Dresden; Bremen: Bremen; Hanover: Hannover;
    Stuttgart: Stuttgart; Nuremberg: Nürnberg; Heidelberg: Heidelberg; Bonn: Bonn;
    Salzburg: Salzburg; Rome: Rom; Prague: Prag; Warsaw: Warschau; London: London;
    Copenhagen: Kopenhagen
"""
COUNTRIES = """
    France: Frankreich; Italy: Italien; Spain: Spanien; Poland: Polen; Denmark: Dänemark;
    Sweden: Schweden; Austria: Österreich; Norway: Norwegen; Greece: Griechenland;
    Belgium: Belgien
"""

# By the letters of verbs.py.
MANNERS = {
    "Q": "quickly: schnell; slowly: langsam",
    "V": "carefully: vorsichtig",
    "T": "thoroughly: gründlich",
    "P": "patiently: geduldig",
    "L": "loudly: laut; quietly: leise; cheerfully: fröhlich",
    "G": "well: gut; badly: schlecht",
    "A": "alone: allein",
}
FREQUENCIES = """
    often: oft; always: immer; sometimes: manchmal; rarely: selten; usually: meistens;
    regularly: regelmäßig
"""
PAST_TIMES = """
    yesterday: gestern; yesterday evening: gestern Abend; yesterday morning: gestern Morgen;
    the day before yesterday: vorgestern; last week: letzte Woche; last month: letzten Monat;
    last year: letztes Jahr; last summer: letzten Sommer; last Sunday: letzten Sonntag
"""
FUTURE_TIMES = """
    tomorrow: morgen; tomorrow evening: morgen Abend; tomorrow afternoon: morgen Nachmittag;
    the day after tomorrow: übermorgen; next week: nächste Woche; next month: nächsten Monat;
    next year: nächstes Jahr; soon: bald; next Friday: nächsten Freitag
"""
HABITUAL_TIMES = """
    every day: jeden Tag; every week: jede Woche; every morning: jeden Morgen;
    every evening: jeden Abend; every year: jedes Jahr; every Sunday: jeden Sonntag;
    at the weekend: am Wochenende; at night: nachts; in the morning: am Morgen;
    in the afternoon: am Nachmittag; in the evening: am Abend
"""
SOON = """
    tomorrow: morgen; tomorrow evening: morgen Abend; this evening: heute Abend; today: heute;
    the day after tomorrow: übermorgen; soon: bald; tomorrow afternoon: morgen Nachmittag
"""
ANY_TIMES = """
    today: heute; this morning: heute Morgen; this evening: heute Abend; this week: diese Woche;
    this year: dieses Jahr; at noon: mittags; at midnight: um Mitternacht
"""
WEEKDAYS = """
    Monday: Montag; Tuesday: Dienstag; Wednesday: Mittwoch; Thursday: Donnerstag; Friday: Freitag;
    Saturday: Samstag; Sunday: Sonntag
"""
DAYTIMES = "morning: morgen; afternoon: nachmittag; evening: abend"
MONTHS = """
    January: Januar; February: Februar; March: März; April: April; May: Mai; June: Juni;
    July: Juli; August: August; September: September; October: Oktober; November: November;
    December: Dezember
"""
SEASONS = "spring: Frühling; summer: Sommer; autumn: Herbst; winter: Winter"

# English base and past, German infinitive, present (ich, du, er, wir, sie) and preterite.
MODALS = """
    can could = können kann kannst kann können können konnte
    must had~to = müssen muss musst muss müssen müssen musste
    want~to wanted~to = wollen will willst will wollen wollen wollte
    be~allowed~to was~allowed~to = dürfen darf darfst darf dürfen dürfen durfte
    should - = sollen sollte solltest sollte sollten sollten -
    would~like~to - = mögen möchte möchtest möchte möchten möchten -
"""

WEATHER_VERBS = "raining: regnen; snowing: schneien; shining: scheinen; hailing: hageln"
WEATHER_ADJECTIVES = """
    cold: kalt; warm: warm; windy: windig; foggy: neblig; stormy: stürmisch; hot: heiß;
    dark: dunkel; late: spät; cloudy: bewölkt; icy: glatt
"""
MOODS = """
    tired: müde; ill: krank; hungry: hungrig; thirsty: durstig; happy: glücklich; sad: traurig;
    angry: wütend; nervous: nervös; young: jung; at home: zu Hause; rich: reich; alone: allein
"""
RESOURCES = "time: Zeit; money: Geld; work: Arbeit; holidays: Ferien; luck: Glück; help: Hilfe"
JUDGEMENTS = """
    important: wichtig; difficult: schwierig; easy: einfach; forbidden: verboten;
    possible: möglich; necessary: nötig; dangerous: gefährlich; pleasant: angenehm;
    useful: nützlich; boring: langweilig
"""
DEGREES = "very: sehr; too: zu; quite: ziemlich; really: wirklich"
PROFESSIONS = """
    teacher: Lehrer Lehrerin; doctor: Arzt Ärztin; gardener: Gärtner Gärtnerin; cook: Koch Köchin;
    baker: Bäcker Bäckerin; lawyer: Anwalt Anwältin; judge: Richter Richterin;
    journalist: Journalist Journalistin; artist: Künstler Künstlerin;
    engineer: Ingenieur Ingenieurin; pilot: Pilot Pilotin; dentist: Zahnarzt Zahnärztin;
    photographer: Fotograf Fotografin; musician: Musiker Musikerin; singer: Sänger Sängerin;
    mechanic: Mechaniker Mechanikerin
"""
