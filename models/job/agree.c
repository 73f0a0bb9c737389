/* SPDX-License-Identifier: Apache-2.0
 * What all ranks must have in common before they train together: the first difference ends the run, and is named. Ranks
 * that differ would wait for each other in different places, or train different models. */
#include "models/job/ranks.h"

#include "api/base/build_id.h"
#include "api/base/file.h"
#include "api/base/hash.h"
#include "models/files/checkpoint.h"
#include "models/files/digest.h"
#include "models/files/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256 }; /* facts compared at a time */
enum { FAILED = 1 }; /* how a process ends that has no memory for its options */

typedef struct fact {
    char name[48], value[80];
} fact;

/* A text that is too long is told by its hash. */
static fact make_fact(const char *name, const char *value)
{
    fact made = {0};
    snprintf(made.name, sizeof made.name, "%s", name);
    if (strlen(value) < sizeof made.value)
        snprintf(made.value, sizeof made.value, "%s", value);
    else
        snprintf(made.value, sizeof made.value, "%.40s... (%016" PRIx64 ")", value,
                 tx_hash(TX_HASH_START, value, strlen(value)));
    return made;
}

static tx_status add_fact(fact *facts, int32_t *count, const char *name, const tx_json *value)
{
    if (*count == MOST)
        return tx_fail(TX_UNSUPPORTED, "more than %d facts to compare between the ranks", MOST);
    char *text = tx_json_text(value, TX_JSON_SORTED);
    if (!text)
        return tx_fail(TX_MEMORY, "no memory to compare the ranks");
    facts[(*count)++] = make_fact(name, text);
    free(text);
    return TX_OK;
}

/* What rank 0 has must be what every rank has; the first fact that differs is told. */
static tx_status compare(tx_comm *comm, const fact *facts, int32_t count)
{
    const size_t bytes = (size_t)count * sizeof *facts;
    tx_status status;
    fact *all = tx_comm_gather(comm, facts, bytes, &status);
    for (int32_t i = 0; i < count && !status; i++)
        for (int32_t r = 1; r < comm->size && !status; r++) {
            const fact *first = &all[i], *other = &all[r * count + i];
            if (strcmp(other->name, first->name) != 0 || strcmp(other->value, first->value) != 0)
                status =
                    tx_fail(TX_INVALID, "rank %" PRId32 " on %s has %s %s, rank 0 has %s %s: start all with the same",
                            r, comm->ranks[r].name, other->name, other->value, first->name, first->value);
        }
    free(all);
    return status;
}

/* Ranks of other versions may count otherwise: the facts are compared only where their number agrees. */
static tx_status compare_all(tx_comm *comm, const fact *facts, int32_t count)
{
    char number[16];
    snprintf(number, sizeof number, "%" PRId32, count);
    const fact counted = make_fact("number of facts", number);
    TX_TRY(compare(comm, &counted, 1));
    return compare(comm, facts, count);
}

/* Adds all members except `left_out`, which may be NULL. */
static tx_status add_members(fact *facts, int32_t *count, const tx_json *json, const char *left_out)
{
    for (void *i = tx_json_first(json); i; i = tx_json_next(json, i))
        if (!left_out || strcmp(left_out, tx_json_key(i)) != 0)
            TX_TRY(add_fact(facts, count, tx_json_key(i), tx_json_value(i)));
    return TX_OK;
}

/* ---- Options ------------------------------------------------------------------------------------------------------ */

static tx_status compare_endings(tx_comm *comm, int ending)
{
    const int32_t mine = (int32_t)ending;
    tx_status status;
    int32_t *all = tx_comm_gather(comm, &mine, sizeof mine, &status);
    for (int32_t r = 0; r < comm->size && !status; r++)
        if (all[r] != TX_JOB_RUNS)
            status = tx_fail(TX_INVALID,
                             "rank %" PRId32 " on %s ends with status %" PRId32
                             " when it has read its options: start all ranks with the same",
                             r, comm->ranks[r].name, all[r]);
    free(all);
    return status;
}

tx_status tx_job_agree_on_options(tx_job *j, int ending)
{
    char build[TX_BUILD_ID];
    tx_build_id(build);
    const fact builds[] = {make_fact("TX", TX_VERSION), make_fact("TX build", build)};
    fact *facts = calloc(MOST, sizeof *facts);
    int32_t count = 0;
    tx_json *options = tx_job_arguments(&j->set, 0, TX_RANK);
    tx_status status = compare_endings(j->comm, facts && options ? ending : FAILED);
    TX_THEN(status, compare(j->comm, builds, (int32_t)(sizeof builds / sizeof builds[0])));
    TX_THEN(status, add_members(facts, &count, options, NULL));
    TX_THEN(status, compare_all(j->comm, facts, count));
    tx_json_free(options);
    free(facts);
    return status;
}

/* ---- Inputs -------------------------------------------------------------------------------------------------------- */

/* The checkpoint to go on from: its name, its step, and its manifest, which holds the digests of all its files. */
static tx_status add_checkpoint(fact *facts, int32_t *count, const tx_job_inputs *in)
{
    char digest[TX_DIGEST_TEXT] = "none", step[24] = "none";
    const char *name = "none";
    tx_status status = TX_OK;
    if (in->checkpoint) {
        const char *path = TX_PATH(in->checkpoint, TX_CHECKPOINT_MANIFEST);
        char *data = NULL;
        size_t size = 0;
        status = tx_file_read(path, TX_CHECKPOINT_MANIFEST_LIMIT, &data, &size);
        TX_THEN(status, tx_digest_data(data, size, digest));
        free(data);
        name = strrchr(in->checkpoint, '/') ? strrchr(in->checkpoint, '/') + 1 : in->checkpoint;
        snprintf(step, sizeof step, "%" PRId64, in->state.step);
    }
    facts[(*count)++] = make_fact("checkpoint", name);
    facts[(*count)++] = make_fact("the checkpoint's step", step);
    facts[(*count)++] = make_fact("the checkpoint's manifest", digest);
    return status;
}

tx_status tx_job_agree_on_inputs(tx_job *j)
{
    const tx_job_inputs *in = &j->inputs;
    fact *facts = calloc(MOST, sizeof *facts);
    int32_t count = 0;
    tx_json *config = NULL;
    tx_status status = facts ? add_checkpoint(facts, &count, in) : tx_fail(TX_MEMORY, "no memory to compare the ranks");
    TX_THEN(status, tx_config_json(in->config, &config));
    TX_THEN(status, add_members(facts, &count, config, NULL));
    if (!status) {
        facts[count++] = make_fact("tokenizer", in->tokenizer ? tx_tokenizer_digest(in->tokenizer) : "none");
        facts[count++] = make_fact("data", in->train.count ? in->train.digest : "none");
        facts[count++] = make_fact("validation data", in->validation.count ? in->validation.digest : "none");
        facts[count++] = make_fact("test data", in->test.count ? in->test.digest : "none");
        status = compare_all(j->comm, facts, count);
    }
    tx_json_free(config);
    free(facts);
    return status;
}

tx_status tx_job_agree_on_run(tx_job *j, const tx_json *made)
{
    fact *facts = calloc(MOST, sizeof *facts);
    int32_t count = 0;
    tx_status status =
        facts ? add_members(facts, &count, made, "device") : tx_fail(TX_MEMORY, "no memory to compare the ranks");
    TX_THEN(status, compare_all(j->comm, facts, count));
    free(facts);
    return status;
}
