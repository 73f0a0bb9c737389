/* SPDX-License-Identifier: Apache-2.0
 * The part of a weight that an adapter takes over from the base model. The methods are PiSSA (Meng et al., 2024),
 * OLoRA (Buyukakyuz, 2024) and LoftQ (Li et al., 2023). peft changes the base whenever it loads such an adapter. Called
 * by lora_init.c and lora_merge.c. */
#include "models/lora/lora.h"

#include "api/packed/nf4.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Eigenvalues number il..iu of a symmetric matrix, in ascending order, with vectors (LAPACK; matrices by columns). */
extern void dsyevr_(const char *jobz, const char *range, const char *uplo, const int *n, double *a, const int *lda,
                    const double *vl, const double *vu, const int *il, const int *iu, const double *abstol, int *m,
                    double *w, double *z, const int *ldz, int *isuppz, double *work, const int *lwork, int *iwork,
                    const int *liwork, int *info);
/* C = A A^T (BLAS). */
extern void dsyrk_(const char *uplo, const char *trans, const int *n, const int *k, const double *alpha,
                   const double *a, const int *lda, const double *beta, double *c, const int *ldc);

/* A matrix in double precision, by rows. */
typedef struct matrix {
    int64_t rows, columns;
    double *data;
} matrix;

/* W [out, in] in double precision. */
static tx_status copy_weight(const tx_lora_weight *w, matrix *copy)
{
    *copy = (matrix){w->out, w->in, malloc((size_t)(w->out * w->in) * sizeof *copy->data)};
    if (!copy->data)
        return tx_fail(TX_MEMORY, "no memory for a weight in double precision");
    for (int64_t o = 0; o < w->out; o++)
        for (int64_t i = 0; i < w->in; i++)
            copy->data[o * w->in + i] = (double)w->data[w->inputs_first ? i * w->out + o : o * w->in + i];
    return TX_OK;
}

/* ---- PiSSA: the greatest singular values and their vectors -------------------------------------------------- */

/* Eigenvectors of the `rank` greatest eigenvalues of a symmetric matrix [n, n], which it destroys. */
static tx_status greatest_vectors(double *gram, int n, int rank, double *values, double *vectors)
{
    const int lowest = n - rank + 1, work_size = 32 * n, whole_size = 12 * n;
    const double zero = 0;
    int found = 0, failed = 0;
    double *work = malloc((size_t)work_size * sizeof *work), *all = malloc((size_t)n * sizeof *all);
    int *wholes = malloc((size_t)(whole_size + 2 * n) * sizeof *wholes);
    tx_status status = work && all && wholes ? TX_OK : tx_fail(TX_MEMORY, "no memory for eigenvectors");
    if (!status) {
        dsyevr_("V", "I", "U", &n, gram, &n, &zero, &zero, &lowest, &n, &zero, &found, all, vectors, &n,
                wholes + whole_size, work, &work_size, wholes, &whole_size, &failed);
        if (failed || found != rank)
            status = tx_fail(TX_INTERNAL, "the singular vectors of a weight were not found (LAPACK: %d)", failed);
        else
            memcpy(values, all, (size_t)rank * sizeof *values);
    }
    free(work);
    free(all);
    free(wholes);
    return status;
}

/* Fills A and B: with the singular value s and vectors u, v of column k, A[k] = sqrt(s) v and B[.., k] = sqrt(s) u.
 * `vectors` are those of the smaller side, in ascending order. */
static void fill_factors(const matrix *w, int64_t rank, double scale, const double *values, const double *vectors,
                         float *a, float *b)
{
    const bool by_inputs = w->columns <= w->rows;
    const int64_t n = by_inputs ? w->columns : w->rows;
    for (int64_t k = 0; k < rank; k++) {
        const double *own = vectors + (rank - 1 - k) * n, square = values[rank - 1 - k];
        const double s = square > 0 ? sqrt(square) : 0, root = sqrt(s / scale), rest = s > 0 ? root / s : 0;
        for (int64_t i = 0; i < w->columns; i++) {
            double sum = by_inputs ? own[i] : 0;
            for (int64_t o = 0; !by_inputs && o < n; o++)
                sum += own[o] * w->data[o * w->columns + i];
            a[k * w->columns + i] = (float)(sum * (by_inputs ? root : rest));
        }
        for (int64_t o = 0; o < w->rows; o++) {
            double sum = by_inputs ? 0 : own[o];
            for (int64_t i = 0; by_inputs && i < n; i++)
                sum += w->data[o * w->columns + i] * own[i];
            b[o * rank + k] = (float)(sum * (by_inputs ? rest : root));
        }
    }
}

static tx_status pissa(const matrix *w, int64_t rank, double scale, float *a, float *b)
{
    const bool by_inputs = w->columns <= w->rows;
    const int n = (int)(by_inputs ? w->columns : w->rows), other = (int)(by_inputs ? w->rows : w->columns),
              stride = (int)w->columns;
    const double one = 1, zero = 0;
    double *gram = malloc((size_t)n * (size_t)n * sizeof *gram), *values = malloc((size_t)rank * sizeof *values),
           *vectors = malloc((size_t)rank * (size_t)n * sizeof *vectors);
    tx_status status = gram && values && vectors ? TX_OK : tx_fail(TX_MEMORY, "no memory for singular vectors");
    if (!status) /* by columns, the rows of W are its transpose [columns, rows] */
        dsyrk_("U", by_inputs ? "N" : "T", &n, &other, &one, w->data, &stride, &zero, gram, &n);
    TX_THEN(status, greatest_vectors(gram, n, (int)rank, values, vectors));
    if (!status)
        fill_factors(w, rank, scale, values, vectors, a, b);
    free(gram);
    free(values);
    free(vectors);
    return status;
}

/* ---- OLoRA: W = Q R ------------------------------------------------------------------------------------------- */

/* Subtracts from column k of Q [rows, rank] its parts along the columns before it. */
static void orthogonalise(double *q, int64_t rows, int64_t rank, int64_t k)
{
    for (int64_t j = 0; j < k; j++) {
        double dot = 0;
        for (int64_t o = 0; o < rows; o++)
            dot += q[o * rank + j] * q[o * rank + k];
        for (int64_t o = 0; o < rows; o++)
            q[o * rank + k] -= dot * q[o * rank + j];
    }
}

/* The first columns of Q depend only on those of W (Gram-Schmidt, twice for precision); R = Q^T W. Signs of columns
 * cancel in Q R. */
static tx_status olora(const matrix *w, int64_t rank, float *a, float *b)
{
    double *q = malloc((size_t)(w->rows * rank) * sizeof *q);
    tx_status status = q ? TX_OK : tx_fail(TX_MEMORY, "no memory for an orthogonal matrix");
    for (int64_t k = 0; k < rank && !status; k++) {
        double before = 0, norm = 0;
        for (int64_t o = 0; o < w->rows; o++) {
            q[o * rank + k] = w->data[o * w->columns + k];
            before += q[o * rank + k] * q[o * rank + k];
        }
        orthogonalise(q, w->rows, rank, k);
        orthogonalise(q, w->rows, rank, k);
        for (int64_t o = 0; o < w->rows; o++)
            norm += q[o * rank + k] * q[o * rank + k];
        if (!(norm > 1e-24 * before))
            status = tx_fail(TX_UNSUPPORTED, "olora: the first columns of the weight are linearly dependent");
        for (int64_t o = 0; o < w->rows && !status; o++)
            q[o * rank + k] /= sqrt(norm);
    }
    for (int64_t k = 0; k < rank && !status; k++)
        for (int64_t i = 0; i < w->columns; i++) {
            double sum = 0;
            for (int64_t o = 0; o < w->rows; o++)
                sum += q[o * rank + k] * w->data[o * w->columns + i];
            a[k * w->columns + i] = (float)sum;
        }
    for (int64_t i = 0; i < w->rows * rank && !status; i++)
        b[i] = (float)q[i];
    free(q);
    return status;
}

/* ---- LoftQ: the base rounded to NF4; the adapter begins as PiSSA of the error --------------------------------- */

void tx_lora_round(float *weight, int64_t count)
{
    for (int64_t first = 0; first < count; first += TX_NF4_BLOCK) {
        const int64_t end = first + TX_NF4_BLOCK < count ? first + TX_NF4_BLOCK : count;
        float largest = 1e-38f;
        for (int64_t i = first; i < end; i++)
            largest = fmaxf(largest, fabsf(weight[i]));
        const float inverse = 1.0f / largest;
        for (int64_t i = first; i < end; i++)
            weight[i] = tx_nf4_value[tx_nf4_code(weight[i] * inverse)] * largest;
    }
}

static tx_status loftq(matrix *w, int64_t rank, float *a, float *b)
{
    const int64_t count = w->rows * w->columns;
    float *rounded = malloc((size_t)count * sizeof *rounded);
    if (!rounded)
        return tx_fail(TX_MEMORY, "no memory for a weight");
    for (int64_t i = 0; i < count; i++)
        rounded[i] = (float)w->data[i];
    tx_lora_round(rounded, count);
    for (int64_t i = 0; i < count; i++)
        w->data[i] -= rounded[i];
    free(rounded);
    return pissa(w, rank, 1, a, b);
}

static bool begins_as(const tx_lora *lora, const char *init)
{
    return lora->init && strcmp(lora->init, init) == 0;
}

bool tx_lora_rounds(const tx_lora *lora)
{
    return begins_as(lora, TX_LORA_LOFTQ);
}

bool tx_lora_takes_principal(const tx_lora *lora)
{
    return begins_as(lora, TX_LORA_PISSA) || begins_as(lora, TX_LORA_OLORA) || tx_lora_rounds(lora);
}

tx_status tx_lora_principal(const tx_lora *lora, const tx_lora_weight *weight, int64_t rank, double scale, float *a,
                            float *b)
{
    const int64_t least = weight->in < weight->out ? weight->in : weight->out;
    matrix w;
    if (rank > least || weight->in > INT32_MAX / 32 || weight->out > INT32_MAX / 32 || !(scale > 0))
        return tx_fail(TX_UNSUPPORTED,
                       "init_lora_weights: \"%s\" needs a rank of at most %lld here, and a positive lora_alpha",
                       lora->init, (long long)least);
    if (!begins_as(lora, TX_LORA_PISSA) && weight->inputs_first)
        return tx_fail(TX_UNSUPPORTED,
                       "init_lora_weights: \"%s\" of weights [inputs, outputs], as in GPT-2, is not "
                       "implemented, nor in peft",
                       lora->init);
    TX_TRY(copy_weight(weight, &w));
    const tx_status status = begins_as(lora, TX_LORA_PISSA) ? pissa(&w, rank, scale, a, b)
                             : tx_lora_rounds(lora)         ? loftq(&w, rank, a, b)
                                                            : olora(&w, rank, a, b);
    free(w.data);
    return status;
}
