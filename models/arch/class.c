/* SPDX-License-Identifier: Apache-2.0
 * Selects an architecture by model_type and by the class in architectures, as config.json names them. */
#include "models/arch/arch.h"

#include "models/names.h"

#include <string.h>

/* The class that the file names; NULL if there is none. */
static const char *named_class(const tx_json *json)
{
    tx_json *list;
    const char *name;
    return tx_json_get(json, "architectures", TX_JSON_ARRAY, &list) || tx_json_as_string(tx_json_at(list, 0), "", &name)
               ? NULL
               : name;
}

bool tx_class_has_no_head(const tx_json *json, const tx_architecture *architecture)
{
    const char *name = named_class(json);
    return architecture->is_of_head && architecture->head != TX_HEAD_STATES && name && tx_ends_with(name, "Model");
}

/* The kinds of heads: nouns, and how transformers' classes that are trained for one task end. */
static const struct {
    const char *noun, *suffix;
} heads[TX_HEAD_COUNT] = {[TX_HEAD_CAUSAL_LM] = {"causal language models", NULL},
                          [TX_HEAD_MASKED_LM] = {"masked language models", NULL},
                          [TX_HEAD_SEQUENCE_CLASSIFICATION] = {"classifiers", "ForSequenceClassification"},
                          [TX_HEAD_TOKEN_CLASSIFICATION] = {"token classifiers", "ForTokenClassification"},
                          [TX_HEAD_MULTIPLE_CHOICE] = {"models for multiple choice", "ForMultipleChoice"},
                          [TX_HEAD_QUESTION_ANSWERING] = {"models for question answering", "ForQuestionAnswering"},
                          [TX_HEAD_STATES] = {"encoders without a head", NULL},
                          [TX_HEAD_SEQ2SEQ] = {"encoders with a decoder", NULL}};

static tx_status fail_head(const char *class_name, int head, const char *type)
{
    char types[512] = "";
    for (const tx_architecture *const *a = tx_architectures; *a; a++)
        if ((int)(*a)->head == head)
            tx_list_add(types, sizeof types, ", ", "%s", (*a)->type);
    return tx_fail(TX_UNSUPPORTED, "%.80s: TX has no %s of model type %s, only of %s", class_name, heads[head].noun,
                   type, types);
}

/* Selects the row of the type whose class the file names, else keeps the first. A base encoder also keeps it: most
 * tasks add a head, which a base decoder does not have in transformers. */
static tx_status choose_head(const tx_json *json, const tx_architecture **architecture)
{
    const char *type = (*architecture)->type, *name = named_class(json);
    for (const tx_architecture *const *a = tx_architectures; name && *a; a++)
        if (strcmp((*a)->type, type) == 0 && strcmp((*a)->class_name, name) == 0) {
            *architecture = (*a)->head == TX_HEAD_STATES && !(*a)->decodes ? *architecture : *a;
            return TX_OK;
        }
    for (int head = 0; name && head < TX_HEAD_COUNT; head++)
        if (heads[head].suffix && tx_ends_with(name, heads[head].suffix))
            return fail_head(name, head, type);
    return TX_OK;
}

/* The bytes of a class that name its family: those of Llama in LlamaForCausalLM and LlamaModel. */
static size_t family_size(const char *class_name)
{
    static const char *const ends[] = {"For", "LMHeadModel", "Model"};
    const char *end = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && !end; i++)
        end = strstr(class_name, ends[i]);
    return end ? (size_t)(end - class_name) : strlen(class_name);
}

/* Without model_type, the class names the family. A file without either is that of an early GPT-2. */
static tx_status choose_by_class(const tx_json *json, const tx_architecture **architecture)
{
    const char *name = named_class(json);
    const size_t size = name ? family_size(name) : 0;
    if (!name)
        return tx_json_find(json, "intermediate_size") || tx_json_find(json, "d_model")
                   ? tx_fail(TX_FORMAT, "model_type is missing")
                   : TX_OK;
    for (const tx_architecture *const *a = tx_architectures; *a; a++)
        if (family_size((*a)->class_name) == size && strncmp((*a)->class_name, name, size) == 0) {
            *architecture = *a;
            return TX_OK;
        }
    return tx_fail(TX_UNSUPPORTED, "model_type is missing, and TX does not know the class %.80s in architectures",
                   name);
}

tx_status tx_class_choose(const tx_json *json, const tx_architecture **architecture)
{
    const char *type;
    *architecture = tx_architectures[0];
    if (tx_json_type_of(json) != TX_JSON_OBJECT)
        return tx_fail(TX_FORMAT, "not a JSON object");
    if (!tx_json_find(json, "model_type")) {
        TX_TRY(choose_by_class(json, architecture));
    } else {
        TX_TRY(tx_json_get_string(json, "model_type", &type));
        TX_TRY(tx_architecture_find(type, architecture));
    }
    return choose_head(json, architecture);
}

/* The class that the file names, else the class of the architecture. */
static const char *class_of(const tx_config *config)
{
    const char *name = config->source ? named_class(config->source) : NULL;
    return name ? name : config->architecture->class_name;
}

tx_status tx_config_set_head(tx_config *config, tx_head head)
{
    const tx_architecture *has = config->architecture;
    for (const tx_architecture *const *a = tx_architectures; *a; a++)
        if ((*a)->head == head && strcmp((*a)->type, has->type) == 0) {
            config->new_head = config->new_head || *a != has;
            config->architecture = *a;
            return TX_OK;
        }
    return fail_head(class_of(config), (int)head, has->type);
}
