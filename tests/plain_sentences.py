"""Sentences of a few words in three languages, which make up text of any size."""

from itertools import product

GRAMMARS = {
    "en": (
        ("The old teacher", "My youngest sister", "Our neighbour", "Peter, the baker,"),
        ("has bought", "is looking for", "does not want", "will never forget"),
        ("this small house", "her new car", "another glass of water", "what you said yesterday"),
    ),
    "de": (
        ("Der alte Lehrer", "Meine jüngste Schwester", "Unser Nachbar", "Peter, der Bäcker,"),
        ("kauft sich heute", "sucht schon lange", "möchte natürlich", "zeigt uns gern"),
        ("dieses kleine Haus", "ihr neues Auto", "noch ein Glas Wasser", "die Straße am Fluß"),
    ),
    "fr": (
        ("Le vieux professeur", "Ma plus jeune sœur", "Notre voisin", "Pierre, le boulanger,"),
        ("a acheté", "cherche toujours", "voudrait bien avoir", "n'oubliera jamais"),
        ("cette petite maison", "sa nouvelle voiture", "encore un verre d'eau", "l'été passé"),
    ),
}


def sentences(language, end="."):
    """Return 64 sentences; those at the same places of two languages belong together."""
    return [f"{' '.join(parts)}{end}" for parts in product(*GRAMMARS[language])]


def tokenized(text):
    """Return text with spaces before its commas and its last character."""
    return f"{text[:-1].replace(',', ' ,')} {text[-1]}"
