/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the compiler of JSON schemas. */
#ifndef TX_GRAMMAR_SCHEMA_H
#define TX_GRAMMAR_SCHEMA_H

#include "models/grammar/grammar.h"

/* The most schemas that $ref names, and that are made for allOf. */
enum { TX_SCHEMA_TARGETS = 1024, TX_SCHEMA_MERGED = 256 };

/* Types of values. */
enum {
    TX_SCHEMA_NULL = 1,
    TX_SCHEMA_BOOLEAN = 2,
    TX_SCHEMA_INTEGER = 4,
    TX_SCHEMA_NUMBER = 8,
    TX_SCHEMA_STRING = 16,
    TX_SCHEMA_ARRAY = 32,
    TX_SCHEMA_OBJECT = 64,
    TX_SCHEMA_ANY = 127
};

typedef struct tx_schema_compiler tx_schema_compiler;

struct tx_schema_compiler {
    tx_grammar *g;
    /* Compiles a schema (schema.c). */
    tx_status (*compile)(tx_schema_compiler *c, const tx_json *schema, uint32_t *e);
    tx_json_rules json;
    const tx_json *root;
    char path[256]; /* of the schema, as in $ref */
    struct {
        const tx_json *schema;
        const char *ref;
        uint32_t rule;
    } target[TX_SCHEMA_TARGETS];
    size_t targets;
    tx_json *merged[TX_SCHEMA_MERGED]; /* schemas of allOf, which the grammar's expressions do not need */
    size_t merges;
};

/* ---- schema_keywords.c ---------------------------------------------------------------------------------- */

tx_status tx_schema_complain(const tx_schema_compiler *c, tx_status status, const char *keyword, const char *what);
/* Returns true if a keyword only describes. */
bool tx_schema_describes(const char *keyword);
/* Fails if a schema has a keyword that TX cannot enforce. Sets the types that its other keywords limit. */
tx_status tx_schema_check_keywords(const tx_schema_compiler *c, const tx_json *schema, int *limited);
/* Fails if a schema with `keyword` has others than `also` that limit the value. */
tx_status tx_schema_check_alone(const tx_schema_compiler *c, const tx_json *schema, const char *keyword,
                                const char *also);

/* ---- schema_combine.c ----------------------------------------------------------------------------------- */

/* Compiles a part of a schema, whose path has one or two more names. */
tx_status tx_schema_compile_part(tx_schema_compiler *c, const char *keyword, const char *name, const tx_json *part,
                                 uint32_t *e);
/* Compile schemas with $ref, with anyOf or oneOf, and with allOf. */
tx_status tx_schema_compile_ref(tx_schema_compiler *c, const tx_json *schema, uint32_t *e);
tx_status tx_schema_compile_any(tx_schema_compiler *c, const tx_json *schema, const char *keyword, uint32_t *e);
tx_status tx_schema_compile_all(tx_schema_compiler *c, const tx_json *schema, uint32_t *e);

#endif
