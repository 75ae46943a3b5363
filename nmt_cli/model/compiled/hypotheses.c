/* Keeps the hypotheses of a search from step to step: their tokens and scores, as ``Beams`` does in numpy; and makes
   steps of hypotheses that no rule restricts.

   Legend: S slots, K beam, C candidates of a slot (best first), L positions of a hypothesis, B some of the slots, R
   rows of logits (K for each slot that takes part), V vocabulary. */

#include <math.h>
#include <string.h>

#include "layers.h"
#include "vectors.h"

/* the fields of ``_Beams`` in compiled_logits.py */
typedef struct {
    int64_t *numbers, *lengths, *longest, *n_best, *beam_sizes, *ends_needed, *num_ended; /* S; number -1: free */
    double *alphas, *to_beat;                                                            /* S */
    float *scores;             /* S K */
    float *totals;             /* S K L, the scores after each token; NULL: they are not kept */
    int64_t *tokens, *parents; /* S K */
    int32_t *prefixes;         /* S K L */
    double *ended_scores;      /* S K; of the n best that have ended, the best first, and what follows */
    float *ended_log_probabilities;
    int64_t *ended_lengths;
    float *ended_totals; /* S K L */
    int32_t *ended_prefixes;
    int32_t *scratch; /* K L */
    long S, K, L;
    int64_t eos;
} Beams;

/* the best candidates [B, C] of some slots; the fields of ``_Candidates`` there */
typedef struct {
    int64_t *slots;
    float *scores;
    int64_t *parents, *tokens;
    long B, C;
} Candidates;

/* sets a hypothesis aside that ends after this parent, unless n better ones have ended */
static void end(const Beams *beams, long slot, long parent, float log_probability) {
    long K = beams->K, L = beams->L, length = beams->lengths[slot], n = beams->n_best[slot];
    double score = log_probability / pow((5. + (length + 1)) / 6., beams->alphas[slot]);
    long kept = beams->num_ended[slot] < n ? beams->num_ended[slot] : n, place = kept;
    beams->num_ended[slot]++;
    if (score <= beams->to_beat[slot]) return;
    double *scores = beams->ended_scores + slot * K;
    while (place > 0 && scores[place - 1] < score) place--;
    kept = kept < n ? kept + 1 : n;
    for (long to = kept - 1; to >= place; to--) {
        long own = slot * K + to, other = to > place ? own - 1 : slot * K + parent;
        int is_new = to == place;
        scores[to] = is_new ? score : scores[to - 1];
        beams->ended_lengths[own] = is_new ? length : beams->ended_lengths[other];
        beams->ended_log_probabilities[own] = is_new ? log_probability : beams->ended_log_probabilities[other];
        const int32_t *prefixes = (is_new ? beams->prefixes : beams->ended_prefixes) + other * L;
        const float *totals = (is_new ? beams->totals : beams->ended_totals) + other * L;
        memcpy(beams->ended_prefixes + own * L, prefixes, beams->ended_lengths[own] * sizeof *prefixes);
        if (beams->totals) memcpy(beams->ended_totals + own * L, totals, beams->ended_lengths[own] * sizeof *totals);
    }
    if (kept == n) beams->to_beat[slot] = scores[n - 1];
}

/* sets the candidates of a slot aside that end with </s> and are among the best */
static void end_some(const Beams *beams, const Candidates *given, long b) {
    long slot = given->slots[b];
    for (long c = 0; c < given->C && c < beams->beam_sizes[slot]; c++) {
        long place = b * given->C + c;
        if (given->tokens[place] == beams->eos && given->scores[place] > -INFINITY)
            end(beams, slot, given->parents[place], given->scores[place]);
    }
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

/* continues the beams of some slots, K <= C, and writes which of them are done; returns their number, or -1 if a
   candidate continues no hypothesis of a beam */
long EXPORTED(advance_beams)(const Beams *beams, const Candidates *given, int64_t *done) {
    long number = 0;
    for (long place = 0; place < given->B * given->C; place++)
        if (given->parents[place] < 0 || given->parents[place] >= beams->K) return -1;
    for (long b = 0; b < given->B; b++) {
        long slot = given->slots[b];
        if (beams->numbers[slot] < 0) continue;
        end_some(beams, given, b); /* before their prefixes are overwritten */
        replace(beams, given, b);
        if (is_done(beams, slot)) done[number++] = slot;
    }
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

/* finds the best candidates of B of the slots, from the b-th on, by the logits [B*K, V] of their next tokens, in
   which it forbids some (see ``forbid``). Returns 0, or -1 if a row of logits is not all numbers. ``scratch`` has
   room for 2 * B * K + C numbers. */
static long find_candidates(const Beams *beams, Candidates *found, long b, long B, long V, long start, float *logits,
                            float *scratch) {
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

/* writes the logits [S, K, V] of all tokens, of which those in no list are -inf, from those in lists, as
   ``multiply_lists`` computes them, and the logarithms [S, K] of the sums of their exponentials */
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

/* what a search of one model reads and writes; the fields of ``_Search`` in layers.py */
typedef struct {
    const Stack *stack;
    const Embedding *embedding;
    const Matrix *output;
    const char *listed_weights; /* of the output, as ``unpack`` writes them */
    const Shortlists *lists;    /* of each slot [S]; NULL: all tokens may follow */
    const Beams *beams;
    Candidates *found; /* with room for all slots */
    Past *past;
    const Entries *memories; /* S */
    uint8_t *takes_part;     /* S; slots that are done no longer do */
    int64_t *positions;      /* S; overwritten, as what follows */
    int64_t *done;           /* S, the slots that are done */
    float *rows;             /* [R, D] after the last step */
    float *workspace, *logits, *rounded, *scratch;
    long start;        /* the start mark; negative: it may follow */
    long rows_at_once; /* whose logits are in memory together, a multiple of K */
    long E;            /* the most entries of any slot */
    long threads, num_done;
} Search;

/* as ``find_candidates``, of all slots whose hypotheses had a step, where any token may follow */
static long find_in_parts(const Search *own) {
    long K = own->beams->K, V = own->output->O, D = own->output->I, B = own->found->B, most = own->rows_at_once / K;
    for (long b = 0, count; b < B; b += count) {
        count = B - b < most ? B - b : most;
        EXPORTED(multiply)(own->output, own->rows + b * K * D, count * K, own->logits, own->rounded, own->threads);
        if (find_candidates(own->beams, own->found, b, count, V, own->start, own->logits, own->scratch) < 0) return -1;
    }
    return 0;
}

/* as ``find_in_parts``, where only the tokens of lists may follow, of which the start mark is none */
static long find_in_lists(const Search *own) {
    Candidates *found = own->found;
    long K = own->beams->K, B = found->B, C = found->C, longest = own->lists->longest;
    const int64_t *tokens[B];
    int64_t lengths[B], ends[B];
    for (long b = 0; b < B; b++) {
        long slot = found->slots[b];
        tokens[b] = own->lists->tokens[slot], lengths[b] = own->lists->lengths[slot], ends[b] = own->lists->ends[slot];
    }
    Shortlists lists = {tokens, lengths, ends, longest};
    EXPORTED(multiply_lists)(own->output, own->listed_weights, &lists, own->rows, B, K, own->logits, own->rounded,
                   own->threads);
    for (long b = 0; b < B; b++) {
        Beams of_list = *own->beams;
        of_list.eos = ends[b];
        float *logits = own->logits + b * K * longest;
        if (find_candidates(&of_list, found, b, 1, lengths[b], -1, logits, own->scratch) < 0) return -1;
        for (long c = b * C; c < (b + 1) * C; c++)
            if (found->scores[c] > -INFINITY) found->tokens[c] = tokens[b][found->tokens[c]];
    }
    return 0;
}

/* makes up to ``most`` steps of the hypotheses that take part, until ``enough`` slots are done. Returns 0, or -1 if
   there is no memory, or 1 if some logits are not numbers: then the last step has rows, but has not continued the
   hypotheses. */
long EXPORTED(make_steps)(Search *own, long most, long enough) {
    const Beams *beams = own->beams;
    own->num_done = 0;
    for (long made = 0; made < most && own->num_done < enough; made++) {
        long B = 0;
        for (long s = 0; s < beams->S; s++) {
            own->positions[s] = own->takes_part[s] ? beams->lengths[s] : 0;
            if (own->takes_part[s]) own->found->slots[B++] = s;
        }
        if (!(own->found->B = B)) break;
        if (EXPORTED(advance_past)(own->stack, own->past, beams->parents, own->positions) < 0) return -1;
        Step step = {own->found->slots, beams->tokens, own->positions, own->past, own->memories, B};
        EXPORTED(make_step)(own->stack, own->embedding, &step, own->E, own->rows, own->workspace);
        if ((own->lists ? find_in_lists(own) : find_in_parts(own)) < 0) return 1;
        long number = EXPORTED(advance_beams)(beams, own->found, own->done + own->num_done);
        for (long n = 0; n < number; n++) own->takes_part[own->done[own->num_done++]] = 0;
    }
    return 0;
}
