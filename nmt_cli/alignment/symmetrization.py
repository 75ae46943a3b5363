"""One alignment from those of both directions (Koehn, Och and Marcu 2003; Moses)."""

from collections.abc import Callable, Collection

Link = tuple[int, int]  # source word, target word
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def _grow_diag_final_and(forward: Collection[Link], backward: Collection[Link]) -> set[Link]:
    """Return the links of both, grown by neighbours of one, and by links of unaligned words."""
    either = sorted({*forward, *backward})
    links = {*forward} & {*backward}
    sources, targets = {source for source, _ in links}, {target for _, target in links}

    def add(link: Link) -> None:
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])

    candidates, has_grown = set(either) - links, True
    while has_grown and candidates:
        has_grown = False
        for source, target in either:
            if (source, target) not in links:
                continue
            for down, right in NEIGHBOURS:
                link = source + down, target + right
                if link in candidates and (link[0] not in sources or link[1] not in targets):
                    add(link)
                    candidates.remove(link)
                    has_grown = True
    for direction in (forward, backward):
        for source, target in sorted(direction):
            if source not in sources and target not in targets:
                add((source, target))
    return links


Symmetrization = Callable[[Collection[Link], Collection[Link]], Collection[Link]]

# ``forward`` has a source word for each target word, ``backward`` a target word for each source
# word; a word may have none.
SYMMETRIZATIONS: dict[str, Symmetrization] = {
    "grow-diag-final-and": _grow_diag_final_and,
    "intersection": lambda forward, backward: {*forward} & {*backward},
    "union": lambda forward, backward: {*forward, *backward},
    "forward": lambda forward, backward: forward,
    "backward": lambda forward, backward: backward,
}
