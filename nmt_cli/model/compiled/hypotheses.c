/* Keeps the hypotheses of a search from step to step: their tokens and scores, as ``Beams`` does in
   numpy, and which entries of a cache are in the past of each, as ``GrowingPast`` does.

   Legend: S slots, K beam, C candidates of a slot (best first), L positions of a hypothesis, E
   entries of a slot, B some of the slots, R rows of logits (K for each busy slot), V vocabulary. */

#include "logits.h"
#include "vectors.h"

/* the fields of ``Beams`` */
typedef struct {
    int64_t *numbers, *lengths, *longest, *beam_sizes, *ends_needed, *num_ended; /* S; number -1: free */
    double *alphas, *to_beat;                                               /* S */
    float *scores;             /* S K */
    float *totals;             /* S K L, the scores after each token; NULL: they are not kept */
    int64_t *tokens, *parents; /* S K */
    int32_t *prefixes;         /* S K L */
    int32_t *scratch;          /* K L */
    long S, K, L;
    int64_t eos;
} Beams;

/* the best candidates [B, C] of some slots */
typedef struct {
    int64_t *slots;
    float *scores;
    int64_t *parents, *tokens;
    long B, C;
} Candidates;

/* the ancestry that ``CompiledPast`` keeps: which entries are in the past of each hypothesis */
typedef struct {
    const uint8_t *is_past; /* S K E, before a step */
    uint8_t *is_used;       /* E + K, overwritten */
    int64_t *places;        /* S K, of the new entries */
    int64_t *ends;          /* S, behind all entries of a slot */
    long S, K, E;
} Past;

/* the candidates that end with </s> and are among the best of their slot, as b * C + c; returns
   their number, or -1 if one continues no hypothesis of a beam */
long EXPORTED(find_ends)(const Beams *beams, const Candidates *given, int64_t *ends) {
    long number = 0;
    for (long b = 0; b < given->B; b++) {
        long slot = given->slots[b], most = beams->beam_sizes[slot];
        if (beams->numbers[slot] < 0) continue;
        for (long c = 0; c < given->C; c++) {
            long place = b * given->C + c;
            if (given->parents[place] < 0 || given->parents[place] >= beams->K) return -1;
            if (c < most && given->tokens[place] == beams->eos && given->scores[place] > -INFINITY)
                ends[number++] = place;
        }
    }
    return number;
}

/* replaces what is kept of each token of a slot's hypotheses [S, K, L], 4 bytes, by that of their
   parents */
static void reorder(const Beams *beams, long slot, int32_t *of_slots) {
    long K = beams->K, L = beams->L, length = beams->lengths[slot];
    const int64_t *parents = beams->parents + slot * K;
    int32_t *own = of_slots + slot * K * L;
    for (long k = 0; k < K; k++)
        memcpy(beams->scratch + k * L, own + parents[k] * L, length * sizeof *own);
    for (long k = 0; k < K; k++) memcpy(own + k * L, beams->scratch + k * L, length * sizeof *own);
}

/* makes the best candidates that do not end the new beam of their slot */
static void replace(const Beams *beams, const Candidates *given, long b) {
    long K = beams->K, L = beams->L, C = given->C, slot = given->slots[b];
    long length = beams->lengths[slot], k = 0;
    for (int is_rest = 0; is_rest < 2; is_rest++) /* the rest fills a beam without enough others */
        for (long c = 0; c < C && k < K; c++) {
            long place = b * C + c, own = slot * K + k;
            int lives = given->scores[place] > -INFINITY && given->tokens[place] != beams->eos;
            if (lives == is_rest) continue;
            beams->parents[own] = given->parents[place], beams->tokens[own] = given->tokens[place];
            beams->scores[own] = lives && k < beams->beam_sizes[slot] ? given->scores[place] : -INFINITY;
            k++;
        }
    reorder(beams, slot, beams->prefixes);
    if (beams->totals) reorder(beams, slot, (int32_t *)beams->totals);
    for (k = 0; k < K; k++) {
        beams->prefixes[(slot * K + k) * L + length] = beams->tokens[slot * K + k];
        if (beams->totals) beams->totals[(slot * K + k) * L + length] = beams->scores[slot * K + k];
    }
    beams->lengths[slot] = length + 1;
}

static int is_done(const Beams *beams, long slot) {
    double best = -INFINITY, to_beat = beams->to_beat[slot];
    for (long k = 0; k < beams->K; k++)
        best = beams->scores[slot * beams->K + k] > best ? beams->scores[slot * beams->K + k] : best;
    if (best == -INFINITY) return 1;
    if (to_beat == -INFINITY) return 0; /* nothing has ended */
    double now = pow((5. + beams->lengths[slot]) / 6., beams->alphas[slot]);
    double at_end = pow((6. + beams->longest[slot]) / 6., beams->alphas[slot]);
    if (best / at_end <= to_beat) return 1;
    return beams->num_ended[slot] >= beams->ends_needed[slot] && best / now <= to_beat;
}

/* continues the beams of some slots, K <= C, and writes which of all slots are done; returns their
   number */
long EXPORTED(advance_beams)(const Beams *beams, const Candidates *given, int64_t *done) {
    long number = 0;
    for (long b = 0; b < given->B; b++)
        if (beams->numbers[given->slots[b]] >= 0) replace(beams, given, b);
    for (long slot = 0; slot < beams->S; slot++)
        if (beams->numbers[slot] >= 0 && is_done(beams, slot)) done[number++] = slot;
    return number;
}

/* forbids the start mark, unless it is negative, in the logits [B*K, V] of B slots, and everything but
   </s> after the longest output, as ``NeverStart`` and ``LongestOutput`` do */
static void forbid(const Beams *beams, const int64_t *slots, long B, long V, long start, float *logits) {
    for (long row = 0; row < B * beams->K; row++, logits += V) {
        long slot = slots[row / beams->K];
        float end = logits[beams->eos];
        if (start >= 0) logits[start] = -INFINITY;
        if (beams->lengths[slot] < beams->longest[slot]) continue;
        for (long v = 0; v < V; v++) logits[v] = -INFINITY;
        logits[beams->eos] = end;
    }
}

/* finds the best candidates of B of the slots that ``found`` names, from the b-th on, by the logits [B*K, V] of
   their next tokens, in which it forbids some (see ``forbid``). Returns 0, or -1 if a row of logits is not all
   numbers. ``scratch`` has room for 2 * B * K + C numbers. */
long EXPORTED(find_candidates)(const Beams *beams, Candidates *found, long b, long B, long V, long start,
                     float *logits, float *scratch) {
    long K = beams->K, R = B * K, C = found->C;
    const int64_t *slots = found->slots + b;
    float *normalizers = scratch, *scores = scratch + R;
    EXPORTED(log_sum_exponentials)(logits, R, V, normalizers);
    for (long row = 0; row < R; row++)
        if (isnan(normalizers[row])) return -1;
    for (long i = 0; i < B; i++) memcpy(scores + i * K, beams->scores + slots[i] * K, K * sizeof *scores);
    forbid(beams, slots, B, V, start, logits);
    EXPORTED(best_continuations)(logits, normalizers, scores, B, K, V, C, found->scores + b * C,
                       found->parents + b * C, found->tokens + b * C, scores + R);
    return 0;
}

/* as ``find_candidates``, of slots whose hypotheses only the tokens of their ``lists`` may follow, of which the
   start mark is none. For each slot, its logits [K, list] begin K times the longest list behind those of the slot
   before. ``scratch`` has room for 2 * K + C numbers. */
long EXPORTED(find_listed_candidates)(const Beams *beams, Candidates *found, const Shortlists *lists, float *logits,
                            float *scratch) {
    long K = beams->K, C = found->C;
    Beams of_list = *beams;
    for (long b = 0; b < found->B; b++, logits += K * lists->longest) {
        of_list.eos = lists->ends[b];
        if (EXPORTED(find_candidates)(&of_list, found, b, 1, lists->lengths[b], -1, logits, scratch) < 0) return -1;
        for (long c = b * C; c < (b + 1) * C; c++)
            if (found->scores[c] > -INFINITY) found->tokens[c] = lists->tokens[b][found->tokens[c]];
    }
    return 0;
}

/* writes the logits [S, K, V] of all tokens, of which those in no list are -inf, from those in lists, as
   ``find_listed_candidates`` has them, and the logarithms [S, K] of the sums of their exponentials */
void EXPORTED(spread_listed)(const Shortlists *lists, const float *listed, long S, long K, long V, float *logits,
                   float *normalizers) {
    for (long s = 0; s < S; s++, listed += K * lists->longest, normalizers += K) {
        long length = lists->lengths[s];
        EXPORTED(log_sum_exponentials)(listed, K, length, normalizers);
        for (long k = 0; k < K; k++, logits += V) {
            for (long v = 0; v < V; v++) logits[v] = -INFINITY;
            for (long n = 0; n < length; n++) logits[lists->tokens[s][n]] = listed[k * length + n];
        }
    }
}

/* the other way round, from logits [S, K, V] */
void EXPORTED(gather_listed)(const Shortlists *lists, const float *logits, long S, long K, long V, float *listed) {
    for (long s = 0; s < S; s++, listed += K * lists->longest)
        for (long k = 0; k < K; k++, logits += V)
            for (long n = 0; n < lists->lengths[s]; n++)
                listed[k * lists->lengths[s] + n] = logits[lists->tokens[s][n]];
}

/* writes a place for the new entry of each hypothesis, which is in the past of no parent [S, K], and the end
   of each slot; slots with ``rests`` [S] get no entries. Returns the last end. */
long EXPORTED(find_places)(const Past *past, const int64_t *parents, const uint8_t *rests) {
    long S = past->S, K = past->K, E = past->E;
    const uint8_t *is_past = past->is_past;
    int64_t *places = past->places;
    long end = 0;
    for (long s = 0; s < S; s++, is_past += K * E, parents += K, places += K) {
        memset(past->is_used, 0, E + K);
        long last = 0, found = 0;
        for (long k = 0; k < K; k++)
            for (long e = 0; e < E; e++) past->is_used[e] |= is_past[(rests[s] ? k : parents[k]) * E + e];
        for (long e = 0; e < E; e++) last = past->is_used[e] ? e + 1 : last;
        for (long e = 0; found < K; e++)
            if (!past->is_used[e]) places[found++] = e;
        if (!rests[s] && places[K - 1] + 1 > last) last = places[K - 1] + 1;
        past->ends[s] = last;
        end = last > end ? last : end;
    }
    return end;
}

/* writes into ``inherited`` [S, K, room] the past of each hypothesis: that of its parent, and its own
   place; that of slots with ``rests`` [S] stays as it is; no entry of it is behind ``room`` */
void EXPORTED(inherit)(const Past *past, const int64_t *parents, const uint8_t *rests, long room,
             uint8_t *inherited) {
    long K = past->K, E = past->E, kept = E < room ? E : room;
    memset(inherited, 0, past->S * K * room);
    for (long sk = 0; sk < past->S * K; sk++, inherited += room) {
        long parent = rests[sk / K] ? sk % K : parents[sk];
        memcpy(inherited, past->is_past + (sk / K * K + parent) * E, kept);
        if (!rests[sk / K]) inherited[past->places[sk]] = 1;
    }
}
