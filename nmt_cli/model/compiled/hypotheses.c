/* The hypotheses of a search between its steps: their tokens and scores, and which entries of a
   cache are in the past of which. ``Beams`` and ``GrowingPast`` have the same rules in numpy.

   Legend: S slots, K beam, C candidates of a slot (best first), L positions of a hypothesis, E
   entries of a slot, B some of the slots. */

#include "vectors.h"

/* the fields of ``Beams`` */
typedef struct {
    int64_t *numbers, *lengths, *longest, *beam_sizes, *enough, *num_ended; /* S; number -1: free */
    double *alphas, *to_beat;                                               /* S */
    float *scores, *totals;    /* S K; S K L, or NULL */
    int64_t *tokens, *parents; /* S K */
    int32_t *prefixes;         /* S K L */
    int32_t *one_slot;         /* K L, overwritten */
    long S, K, L;
    int64_t eos;
} beams;

/* the best candidates [B, C] of some slots */
typedef struct {
    const int64_t *slots;
    const float *scores;
    const int64_t *parents, *tokens;
    long B, C;
} candidates;

/* the candidates that end with </s> and are among the best of their slot, as b * C + c; returns
   their number */
long find_ends(const beams *all, const candidates *of, int64_t *ends) {
    long number = 0;
    for (long b = 0; b < of->B; b++) {
        long slot = of->slots[b], most = all->beam_sizes[slot];
        if (all->numbers[slot] < 0) continue;
        for (long c = 0; c < of->C && c < most; c++) {
            long place = b * of->C + c;
            if (of->tokens[place] == all->eos && of->scores[place] > -INFINITY)
                ends[number++] = place;
        }
    }
    return number;
}

/* puts first the prefixes, or sums of scores, of the parents of a slot's hypotheses */
static void reorder(const beams *all, long slot, int32_t *of_slots) {
    long K = all->K, L = all->L, length = all->lengths[slot];
    const int64_t *parents = all->parents + slot * K;
    int32_t *own = of_slots + slot * K * L;
    for (long k = 0; k < K; k++)
        memcpy(all->one_slot + k * L, own + parents[k] * L, length * sizeof *own);
    for (long k = 0; k < K; k++) memcpy(own + k * L, all->one_slot + k * L, length * sizeof *own);
}

/* makes the best candidates that do not end the new beam of their slot */
static void replace(const beams *all, const candidates *of, long b) {
    long K = all->K, L = all->L, C = of->C, slot = of->slots[b], length = all->lengths[slot], k = 0;
    for (int is_rest = 0; is_rest < 2; is_rest++) /* the rest fills a beam without enough others */
        for (long c = 0; c < C && k < K; c++) {
            long place = b * C + c, own = slot * K + k;
            int lives = of->scores[place] > -INFINITY && of->tokens[place] != all->eos;
            if (lives == is_rest) continue;
            all->parents[own] = of->parents[place], all->tokens[own] = of->tokens[place];
            all->scores[own] = lives && k < all->beam_sizes[slot] ? of->scores[place] : -INFINITY;
            k++;
        }
    reorder(all, slot, all->prefixes);
    if (all->totals) reorder(all, slot, (int32_t *)all->totals);
    for (k = 0; k < K; k++) {
        all->prefixes[(slot * K + k) * L + length] = all->tokens[slot * K + k];
        if (all->totals) all->totals[(slot * K + k) * L + length] = all->scores[slot * K + k];
    }
    all->lengths[slot] = length + 1;
}

static int is_done(const beams *all, long slot) {
    double best = -INFINITY, to_beat = all->to_beat[slot];
    for (long k = 0; k < all->K; k++)
        best = all->scores[slot * all->K + k] > best ? all->scores[slot * all->K + k] : best;
    if (best == -INFINITY) return 1;
    if (to_beat == -INFINITY) return 0;
    double now = pow((5. + all->lengths[slot]) / 6., all->alphas[slot]);
    double at_end = pow((6. + all->longest[slot]) / 6., all->alphas[slot]);
    if (best / at_end <= to_beat) return 1;
    return all->num_ended[slot] >= all->enough[slot] && best / now <= to_beat;
}

/* continues the beams of some slots, K <= C, and writes which of all slots are done; returns their
   number */
long advance_beams(const beams *all, const candidates *of, int64_t *done) {
    long number = 0;
    for (long b = 0; b < of->B; b++)
        if (all->numbers[of->slots[b]] >= 0) replace(all, of, b);
    for (long slot = 0; slot < all->S; slot++)
        if (all->numbers[slot] >= 0 && is_done(all, slot)) done[number++] = slot;
    return number;
}

/* finds for each hypothesis of S slots a place [S, K] in which no parent's past has an entry, and
   behind these places and the past the end [S] of each slot; a free slot has no past. ``is_used``
   [E + K] is overwritten. */
void find_places(const uint8_t *is_past, const int64_t *parents, const uint8_t *is_free, long S,
                 long K, long E, uint8_t *is_used, int64_t *places, int64_t *ends) {
    for (long s = 0; s < S; s++, is_past += K * E, parents += K, places += K) {
        memset(is_used, 0, E + K);
        long last = 0, found = 0;
        for (long k = 0; !is_free[s] && k < K; k++)
            for (long e = 0; e < E; e++) is_used[e] |= is_past[parents[k] * E + e];
        for (long e = 0; e < E; e++) last = is_used[e] ? e + 1 : last;
        for (long e = 0; found < K; e++)
            if (!is_used[e]) places[found++] = e;
        ends[s] = places[K - 1] + 1 > last ? places[K - 1] + 1 : last;
    }
}

/* writes into ``inherited`` [S, K, room] the past of each hypothesis: that of its parent and its own
   place; nothing behind ``room`` is past */
void inherit(const uint8_t *is_past, const int64_t *parents, const uint8_t *is_free,
             const int64_t *places, long S, long K, long E, long room, uint8_t *inherited) {
    long kept = E < room ? E : room;
    memset(inherited, 0, S * K * room);
    for (long sk = 0; sk < S * K; sk++, inherited += room) {
        const uint8_t *past = is_past + (sk / K * K + parents[sk]) * E;
        if (!is_free[sk / K]) memcpy(inherited, past, kept);
        inherited[places[sk]] = 1;
    }
}
