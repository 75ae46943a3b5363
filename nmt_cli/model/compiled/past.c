/* The past of every hypothesis of a search: the entries of each slot, and who attends to which of them.

   Each step writes the K new entries of a slot into places that are free: those whose entry is in the past of no
   hypothesis. So a few more places are in use than one hypothesis has tokens. When hypotheses change places in the
   beam, the entries stay where they are; only ``is_past`` is reordered. If self-attention has a window, entries that
   it has left are in no past. Recurrent units have a state for each hypothesis, which is copied, in place of entries.

   A slot's places depend on its own sentence only, so that its sums have the same order whatever other slots hold.
   The places in use are the first ones, and its own sentence wrote all of them.

   Functions return -1 if there is no memory.

   Legend: N layers, D d_model, S slots, K beam, H heads, W width of a head's keys, X of its values, E entries. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers.h"

/* Entries by which the room of a slot grows, or by an eighth if that is more: with 16 a third of its memory would
   not be in use. */
#define ROOM_STEP 8

static long room_for(long entries) {
    long more = lrint(entries / 8. / ROOM_STEP) - 1;
    return ((entries + ROOM_STEP - 1) / ROOM_STEP + (more > 0 ? more : 0)) * ROOM_STEP;
}

static int is_recurrent(const Stack *stack) { return stack->layers->candidates.O > 0; }

/* the numbers in the entries of a slot, or in its states */
static long size_of(const Stack *stack, long K, long room) {
    return stack->N * (is_recurrent(stack) ? K * stack->D : stack->H * (stack->W + stack->X) * room);
}

/* copies all entries to the first places of those with more room */
static void copy_entries(const Stack *stack, const float *from, long E, float *to, long room) {
    long rows_of_keys = stack->H * stack->W, X = stack->X;
    for (long n = 0; n < stack->N; n++) {
        for (long row = 0; row < rows_of_keys; row++, from += E, to += room) memcpy(to, from, E * sizeof *to);
        for (long h = 0; h < stack->H; h++, from += E * X, to += room * X) memcpy(to, from, E * X * sizeof *to);
    }
}

static int make_room(const Stack *stack, Entries *entries, long room) {
    float *made = malloc(size_of(stack, 0, room) * sizeof *made);
    if (!made) return -1;
    copy_entries(stack, entries->of_layers, entries->E, made, room);
    free(entries->of_layers);
    entries->of_layers = made, entries->E = room;
    return 0;
}

static void free_arrays(Past *past) {
    free(past->entries), free(past->is_past), free(past->ends), free(past->places), free(past->positions);
}

/* makes room for S slots and E entries, without entries */
static int make_arrays(Past *past, long S, long K, long E) {
    *past = (Past){.S = S, .K = K, .E = E};
    S++; /* calloc may return NULL for no bytes */
    past->entries = calloc(S, sizeof *past->entries);
    past->is_past = calloc(S * K, E);
    past->ends = calloc(S, sizeof *past->ends);
    past->places = calloc(S * K, sizeof *past->places);
    past->positions = calloc(S * E, sizeof *past->positions);
    if (past->entries && past->is_past && past->ends && past->places && past->positions) return 0;
    free_arrays(past);
    return -1;
}

void EXPORTED(free_past)(Past *past) {
    for (long s = 0; s < past->S; s++) free(past->entries[s].of_layers);
    free_arrays(past);
    free(past);
}

/* an empty past, or NULL */
Past *EXPORTED(new_past)(long S, long K) {
    Past *past = malloc(sizeof *past);
    if (past && make_arrays(past, S, K, room_for(1 + K)) == 0) return past;
    free(past);
    return NULL;
}

/* copies what is kept of slot ``from``, beside its entries */
static void copy_slot(const Past *old, long from, Past *past, long to) {
    long K = old->K, kept = old->E < past->E ? old->E : past->E;
    for (long k = 0; k < K; k++)
        memcpy(past->is_past + (to * K + k) * past->E, old->is_past + (from * K + k) * old->E, kept);
    memcpy(past->positions + to * past->E, old->positions + from * old->E, kept * sizeof *past->positions);
    memcpy(past->places + to * K, old->places + from * K, K * sizeof *past->places);
    past->ends[to] = old->ends[from];
}

/* drops all slots but ``slots`` [B]; slots[b] becomes slot b, with a copy if it is repeated */
int EXPORTED(keep_past)(const Stack *stack, Past *past, const int64_t *slots, long B) {
    Past kept;
    if (make_arrays(&kept, B, past->K, past->E) < 0) return -1;
    for (long b = 0; b < B; b++) {
        Entries *old = past->entries + slots[b], *own = kept.entries + b;
        copy_slot(past, slots[b], &kept, b);
        *own = *old;
        old->of_layers = NULL; /* unless it is repeated, only this slot has them */
        for (long before = 0; before < b && !own->of_layers && own->E; before++) {
            if (slots[before] != slots[b]) continue;
            size_t size = size_of(stack, past->K, own->E) * sizeof(float);
            own->of_layers = malloc(size);
            if (own->of_layers) memcpy(own->of_layers, kept.entries[before].of_layers, size);
            break;
        }
        if (own->E && !own->of_layers) own->E = 0, B = -1; /* no memory: the search has failed */
    }
    for (long s = 0; s < past->S; s++) free(past->entries[s].of_layers);
    free_arrays(past);
    *past = kept;
    return B < 0 ? -1 : 0;
}

/* lets each of the ``starts`` [B], one entry or the states of one hypothesis, be the past of all hypotheses in its
   slot */
int EXPORTED(start_past)(const Stack *stack, Past *past, const int64_t *slots, float *const *starts, long B) {
    long K = past->K, E = past->E, room = is_recurrent(stack) ? 1 : room_for(1 + K);
    for (long b = 0; b < B; b++) {
        long s = slots[b];
        Entries *own = past->entries + s;
        if (own->E != room) { /* the memory of a longer past is freed */
            free(own->of_layers);
            own->of_layers = malloc(size_of(stack, K, room) * sizeof(float));
            own->E = own->of_layers ? room : 0;
            if (!own->E) return -1;
        }
        memset(past->is_past + s * K * E, 0, K * E);
        for (long k = 0; k < K; k++) past->is_past[(s * K + k) * E] = 1;
        past->positions[s * E] = 0, past->ends[s] = 1;
        long of_one = stack->N * stack->D;
        if (!is_recurrent(stack)) copy_entries(stack, starts[b], 1, own->of_layers, room);
        else
            for (long k = 0; k < K; k++) memcpy(own->of_layers + k * of_one, starts[b], of_one * sizeof(float));
    }
    return 0;
}

/* replaces K parts of a size by those of their parents; ``copy`` has room for all */
static void inherit(void *parts, const int64_t *parents, long K, size_t size, size_t stride, void *copy) {
    char *to = parts, *kept = copy;
    for (long k = 0; k < K; k++) memcpy(kept + k * size, to + parents[k] * stride, size);
    for (long k = 0; k < K; k++) memcpy(to + k * stride, kept + k * size, size);
}

/* finds places for new entries of a slot in the past of its hypotheses, which is that of their parents already;
   returns the end of the entries */
static long find_places(Past *past, long s) {
    long K = past->K, E = past->E, last = 0, found = 0;
    const uint8_t *is_past = past->is_past + s * K * E;
    int64_t *places = past->places + s * K;
    for (long e = 0; e < past->ends[s]; e++) {
        int is_used = 0;
        for (long k = 0; k < K; k++) is_used |= is_past[k * E + e];
        if (is_used) last = e + 1;
        else if (found < K) places[found++] = e;
    }
    for (long e = past->ends[s]; found < K; e++) places[found++] = e;
    return places[K - 1] + 1 > last ? places[K - 1] + 1 : last;
}

/* finds places for an entry of each hypothesis of the slots whose ``positions`` [S] are above 0, where the entries
   are; it inherits the past of its parent [S, K]. In other slots the past stays as it is. */
int EXPORTED(advance_past)(const Stack *stack, Past *past, const int64_t *parents, const int64_t *positions) {
    long K = past->K;
    size_t of_state = stack->N * stack->D * sizeof(float);
    char *copy = malloc(K * (is_recurrent(stack) ? of_state : (size_t)past->E));
    if (!copy) return -1;
    for (long s = 0; s < past->S; s++, parents += K) {
        if (!positions[s]) continue;
        Entries *own = past->entries + s;
        if (is_recurrent(stack)) {
            inherit(own->of_layers, parents, K, of_state, of_state, copy);
            continue;
        }
        uint8_t *is_past = past->is_past + s * K * past->E;
        inherit(is_past, parents, K, past->ends[s], past->E, copy);
        for (long e = 0; stack->window && e < past->ends[s]; e++)
            if (past->positions[s * past->E + e] < positions[s] - stack->window)
                for (long k = 0; k < K; k++) is_past[k * past->E + e] = 0;
        long end = find_places(past, s);
        if (end > past->E) {
            Past grown;
            char *larger = realloc(copy, K * 2 * end);
            if (larger) copy = larger;
            if (!larger || make_arrays(&grown, past->S, K, 2 * end) < 0) {
                free(copy);
                return -1;
            }
            for (long each = 0; each < past->S; each++) copy_slot(past, each, &grown, each);
            memcpy(grown.entries, past->entries, past->S * sizeof *own);
            free_arrays(past);
            *past = grown;
            own = past->entries + s, is_past = past->is_past + s * K * past->E;
        }
        if (end > own->E && make_room(stack, own, room_for(end)) < 0) {
            free(copy);
            return -1;
        }
        for (long k = 0; k < K; k++) {
            long place = past->places[s * K + k];
            is_past[k * past->E + place] = 1;
            past->positions[s * past->E + place] = positions[s];
        }
        past->ends[s] = end;
    }
    free(copy);
    return 0;
}
