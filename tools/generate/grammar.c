/* SPDX-License-Identifier: Apache-2.0
 * Constraints of the texts: --json_schema, --grammar and --regex. */
#include "tools/generate/txgen.h"

#include <stdlib.h>
#include <string.h>

/* Copies a value that is a text if it contains `mark`, and else the path of a file. */
static tx_status read_value(const char *value, const char *mark, char **text, size_t *size)
{
    if (!strstr(value, mark))
        return txgen_read_file(value, text, size);
    *size = strlen(value);
    *text = strdup(value);
    return *text ? TX_OK : tx_fail(TX_MEMORY, "out of memory");
}

static tx_status create(tx_grammar_part part, const char *option, txgen_grammar *g)
{
    return tx_fail_in(tx_grammar_create(&part, 1, g->vocabulary, &g->grammar), "%s", option);
}

static tx_status create_schema(const char *value, txgen_grammar *g)
{
    char *text = NULL;
    size_t size = 0;
    tx_json *schema = NULL;
    tx_status status = read_value(value, "{", &text, &size);
    TX_THEN(status, tx_json_parse(text, size, "JSON", &schema));
    status = tx_fail_in(status, "--json_schema");
    TX_THEN(status, create((tx_grammar_part){.kind = TX_GRAMMAR_SCHEMA, .json = schema}, "--json_schema", g));
    tx_json_free(schema);
    free(text);
    return status;
}

static tx_status create_gbnf(const char *value, txgen_grammar *g)
{
    char *text = NULL;
    size_t size = 0;
    tx_status status = tx_fail_in(read_value(value, "::=", &text, &size), "--grammar");
    TX_THEN(status, create((tx_grammar_part){.kind = TX_GRAMMAR_GBNF, .text = text}, "--grammar", g));
    free(text);
    return status;
}

tx_status txgen_open_grammar(const txgen_settings *set, tx_lm *lm, txgen_grammar *g)
{
    const tx_tokenizer *tokenizer;
    if (!set->json_schema && !set->grammar && !set->regex)
        return TX_OK;
    TX_TRY(tx_lm_tokenizer(lm, &tokenizer));
    TX_TRY(tx_vocabulary_create(tokenizer, &g->vocabulary));
    if (set->json_schema)
        return create_schema(set->json_schema, g);
    if (set->grammar)
        return create_gbnf(set->grammar, g);
    return create((tx_grammar_part){.kind = TX_GRAMMAR_REGEX, .text = set->regex}, "--regex", g);
}

void txgen_close_grammar(txgen_grammar *g)
{
    tx_grammar_free(g->grammar);
    tx_vocabulary_free(g->vocabulary);
}
