/* What layers.c offers to other sources, and the structures of a model and of its search.

   Legend: N layers, R rows, I inputs, O outputs, D d_model, F d_ff, V vocabulary, S slots, K beam, H heads, W width
   of a head's queries and keys, X of its values, E entries, B some of the slots. */

#include "logits.h"

/* a weight matrix [O, I] in blocks of outputs, the last one filled up with 0: [O / BLOCK, I / numbers of a
   group, BLOCK] groups. ``bias`` [O] may be NULL.

   In int8 each output has a scale [O]; ``sums`` [O], of the EXCESS of an output's weights, are subtracted
   from the products. */
typedef struct {
    const char *blocks;
    const float *bias, *scales;
    const uint32_t *sums; /* modulo 2^32, as the sums of products are */
    long type, I, O;
} Matrix;

typedef struct {
    const float *weight, *bias; /* [D]; bias may be NULL; without a norm, weight is NULL */
    float epsilon;
} Norm;

/* a layer; that of an encoder has nothing for the memory. Where there are candidates, a recurrent unit takes the
   place of self-attention. */
typedef struct {
    Matrix queries_keys_values, self_attention_output;
    Matrix candidates, forget_gates;
    Matrix memory_queries, memory_output;
    Matrix inner, outer;
    Norm self_attention_norm, recurrence_norm, memory_attention_norm, feed_forward_norm;
} Layer;

enum activation { NONE, RELU, SWISH, GELU, GELU_TANH };

/* what the layers of a stack have in common */
typedef struct {
    const Layer *layers;
    Norm last; /* of the rows after all layers */
    long N, H, W, X, D, F;
    long is_pre_norm, activation;
    long window; /* how far away rows may be that a row attends to within its sentence; 0: as far as they are */
    long threads;
} Stack;

/* vectors [V, D] times ``scale``, plus those of positions; then a norm, unless its weight is NULL. If ``vectors``
   is NULL, they are the weights of the matrix ``shared``, in fp32 or bf16. */
typedef struct {
    const float *vectors, *positions;
    const Matrix *shared;
    Norm after;
    float scale;
    long D, starts_with_zeros; /* instead of the vector of the first token */
} Embedding;

/* what the rows of a sentence attend to, with room for E: for each layer the keys [H, W, E] and behind them the
   values [H, E, X] */
typedef struct {
    float *of_layers; /* [N, H * (W + X) * E] */
    long E;
} Entries;

/* the past of the hypotheses of all slots; see past.c */
typedef struct {
    Entries *entries;   /* [S]; of recurrent units, the states [K, N, D] with room 1 */
    uint8_t *is_past;   /* [S, K, E], which entries of its slot a hypothesis attends to */
    int64_t *ends;      /* [S], behind the last entry that one attends to */
    int64_t *places;    /* [S, K], of the newest entries */
    int64_t *positions; /* [S, E], of the tokens of the entries */
    long S, K, E;
} Past;

/* a step of the hypotheses of some slots */
typedef struct {
    const int64_t *slots;     /* [B], those that are computed; ascending */
    const int64_t *tokens;    /* [S, K], the newest ones */
    const int64_t *positions; /* [S], of these tokens */
    const Past *past;         /* which gets their entries */
    const Entries *memories;  /* [S] */
    long B;
} Step;

void EXPORTED(multiply)(const Matrix *matrix, const float *rows, long R, float *output, float *rounded, long threads);
void EXPORTED(multiply_lists)(const Matrix *matrix, const char *weights, const Shortlists *lists, const float *rows,
                    long S, long K, float *output, float *rounded, long threads);
void EXPORTED(make_step)(const Stack *stack, const Embedding *embedding, const Step *step, long E, float *rows,
               float *memory);
int EXPORTED(advance_past)(const Stack *stack, Past *past, const int64_t *parents, const int64_t *positions);
