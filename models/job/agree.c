/* SPDX-License-Identifier: Apache-2.0
 * Checks that all ranks have the same program, options, inputs and run. The first difference ends the run with a
 * message. Without the check, ranks could deadlock in different collectives or train different models. */
#include "models/job/ranks.h"

#include "api/base/build_id.h"
#include "api/base/hash.h"
#include "models/files/checkpoint.h"
#include "models/files/digest.h"
#include "models/files/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED = 1 }; /* exit status of a process that has no memory for its options */

typedef struct fact {
    char name[48], value[80];
} fact;

/* Makes the fact of a JSON value. A long value is replaced by its beginning and a hash. */
static tx_status make_fact(const char *name, const tx_json *value, fact *result)
{
    const char *string;
    char *text = tx_json_text(value, TX_JSON_SORTED);
    if (!text)
        return tx_fail(TX_MEMORY, "no memory to compare the ranks");
    const char *shown = tx_json_as_string(value, name, &string) ? text : string;
    memset(result, 0, sizeof *result);
    snprintf(result->name, sizeof result->name, "%s", name);
    if (strlen(shown) < sizeof result->value)
        snprintf(result->value, sizeof result->value, "%s", shown);
    else
        snprintf(result->value, sizeof result->value, "%.40s... (%016" PRIx64 ")", shown,
                 tx_hash(TX_HASH_START, shown, strlen(shown)));
    free(text);
    return TX_OK;
}

/* Every rank must have the facts of rank 0. The first difference is reported. */
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

/* Compares the members of an object, except `left_out`, which may be NULL. The number of members is compared first,
 * since another version of TX may have another number. */
static tx_status agree(tx_comm *comm, const tx_json *json, const char *left_out)
{
    fact counted = {.name = "number of facts"}, *facts = calloc(tx_json_size(json) + 1, sizeof *facts);
    int32_t count = 0;
    tx_status status = facts ? TX_OK : tx_fail(TX_MEMORY, "no memory to compare the ranks");
    for (void *i = tx_json_first(json); i && !status; i = tx_json_next(json, i))
        if (!left_out || strcmp(left_out, tx_json_key(i)) != 0)
            status = make_fact(tx_json_key(i), tx_json_value(i), &facts[count++]);
    snprintf(counted.value, sizeof counted.value, "%" PRId32, count);
    TX_THEN(status, compare(comm, &counted, 1));
    TX_THEN(status, compare(comm, facts, count));
    free(facts);
    return status;
}

/* ---- Options --------------------------------------------------------------------------------------------------- */

/* The exit status of a process that ends after it has read its options, and the error that it reported; TX_JOB_RUNS of
 * one that does not end. */
typedef struct ending {
    int32_t status;
    char reason[300];
} ending;

static tx_status compare_exits(tx_comm *comm, int exit_status)
{
    ending mine = {.status = (int32_t)exit_status};
    snprintf(mine.reason, sizeof mine.reason, "%s", exit_status > 0 ? tx_error() : "");
    tx_status status;
    ending *all = tx_comm_gather(comm, &mine, sizeof mine, &status);
    for (int32_t r = 0; r < comm->size && !status; r++)
        if (all[r].status != TX_JOB_RUNS)
            status =
                tx_fail(TX_INVALID, "rank %" PRId32 " on %s ends with status %" PRId32 " after reading its options: %s",
                        r, comm->ranks[r].name, all[r].status,
                        *all[r].reason ? all[r].reason : "start all ranks with the same options");
    free(all);
    return status;
}

tx_status tx_job_agree_on_options(tx_job *j, int exit_status)
{
    char build[TX_BUILD_ID];
    tx_build_id(build);
    tx_json *options = tx_job_arguments(&j->set, 0, TX_RANK), *program = tx_json_object();
    const bool result =
        options && !tx_json_set_string(program, "TX", TX_VERSION) && !tx_json_set_string(program, "TX build", build);
    tx_status status = compare_exits(j->comm, result ? exit_status : FAILED);
    TX_THEN(status, agree(j->comm, program, NULL));
    TX_THEN(status, agree(j->comm, options, NULL));
    tx_json_free(program);
    tx_json_free(options);
    return status;
}

/* ---- Inputs ----------------------------------------------------------------------------------------------------- */

/* The checkpoint to resume from: its name, its step, and its manifest, which holds the digests of all its files. */
static tx_status add_checkpoint(tx_json *facts, const tx_job_inputs *in)
{
    char digest[TX_DIGEST_TEXT] = "none";
    const char *name = in->checkpoint ? in->checkpoint : "none", *slash = strrchr(name, '/');
    tx_status status = TX_OK;
    if (in->checkpoint) {
        char *data = NULL;
        size_t size = 0;
        status = tx_file_read(TX_PATH(name, TX_CHECKPOINT_MANIFEST), TX_CHECKPOINT_MANIFEST_LIMIT, &data, &size);
        TX_THEN(status, tx_digest_data(data, size, digest));
        free(data);
    }
    TX_THEN(status, tx_json_set_string(facts, "checkpoint", slash ? slash + 1 : name));
    TX_THEN(status, tx_json_set_int(facts, "the checkpoint's step", in->state.step));
    TX_THEN(status, tx_json_set_string(facts, "the checkpoint's manifest", digest));
    return status;
}

tx_status tx_job_agree_on_inputs(tx_job *j)
{
    const tx_job_inputs *in = &j->inputs;
    const struct {
        const char *name, *digest;
    } digests[] = {{"tokenizer", in->tokenizer ? tx_tokenizer_digest(in->tokenizer) : "none"},
                   {"data", in->train.count ? in->train.digest : "none"},
                   {"validation data", in->validation.count ? in->validation.digest : "none"},
                   {"test data", in->test.count ? in->test.digest : "none"}};
    tx_json *facts = tx_json_object(), *config = NULL;
    tx_status status = add_checkpoint(facts, in);
    for (size_t i = 0; i < sizeof digests / sizeof digests[0]; i++)
        TX_THEN(status, tx_json_set_string(facts, digests[i].name, digests[i].digest));
    TX_THEN(status, tx_config_json(in->config, &config));
    TX_THEN(status, agree(j->comm, facts, NULL));
    TX_THEN(status, agree(j->comm, config, NULL));
    tx_json_free(config);
    tx_json_free(facts);
    return status;
}

tx_status tx_job_agree_on_run(tx_job *j, const tx_json *description)
{
    return agree(j->comm, description, "device");
}
