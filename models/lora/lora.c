/* SPDX-License-Identifier: Apache-2.0
 * Selects the modules that an adapter adapts or saves, and checks their names. */
#include "models/lora/lora.h"

#include "models/names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT ".weight"
#define BIAS ".bias"
/* peft ties only embeddings of this name. */
#define EMBEDDING_NAME "embed_tokens"

/* ---- The adapter ----------------------------------------------------------------------------------------- */

tx_status tx_lora_copy(const tx_lora *lora, tx_lora **copy)
{
    tx_lora *created = malloc(sizeof *created);
    if (!created)
        return tx_fail(TX_MEMORY, "no memory for an adapter");
    *created = *lora;
    created->targets = created->saved = created->base = created->init = created->tokens = created->parameters = NULL;
    created->rules = NULL;
    tx_status status = tx_copy_text(lora->targets, &created->targets);
    TX_THEN(status, tx_copy_text(lora->parameters, &created->parameters));
    TX_THEN(status, tx_copy_text(lora->saved, &created->saved));
    TX_THEN(status, tx_copy_text(lora->base, &created->base));
    TX_THEN(status, tx_copy_text(lora->init, &created->init));
    TX_THEN(status, tx_copy_text(lora->tokens, &created->tokens));
    if (!status && lora->rules && !(created->rules = tx_json_copy(lora->rules)))
        status = tx_fail(TX_MEMORY, "no memory for an adapter");
    return TX_RETURN(status, created, copy, tx_lora_free);
}

void tx_lora_free(tx_lora *lora)
{
    if (!lora)
        return;
    free(lora->targets);
    free(lora->parameters);
    free(lora->saved);
    free(lora->base);
    free(lora->init);
    free(lora->tokens);
    tx_json_free(lora->rules);
    free(lora);
}

double tx_lora_scale(const tx_lora *lora)
{
    return lora->alpha / (lora->rank_stabilised ? sqrt((double)lora->rank) : (double)lora->rank);
}

/* ---- Names of modules ------------------------------------------------------------------------------------ */

/* Returns true if one or more adjacent components of the module's name equal the word. */
static bool has_component(const char *module, const char *word, size_t length)
{
    for (const char *part = module; part; part = strchr(part, '.') ? strchr(part, '.') + 1 : NULL)
        if (strncmp(part, word, length) == 0 && (part[length] == '.' || part[length] == '\0'))
            return true;
    return false;
}

static bool is_suffix(const char *module, const char *word, size_t length)
{
    const size_t all = strlen(module);
    return all >= length && strncmp(module + all - length, word, length) == 0;
}

/* Returns true if the name of the module or of an ancestor ends with the word, as peft finds modules to save. */
static bool ancestor_ends_with(const char *module, const char *word, size_t length)
{
    for (const char *end = module; *end; end += *end == '.') {
        end += strcspn(end, ".");
        if ((size_t)(end - module) >= length && strncmp(end - length, word, length) == 0)
            return true;
    }
    return false;
}

/* The modules of a parameter: one for each section that has its own name, else one. */
static int32_t modules_in(const char *param, const tx_param_spec *spec, tx_weights_piece piece[TX_MAX_SECTIONS])
{
    const int32_t count = tx_weights_pieces(param, spec, 0, TX_MAX_SECTIONS, piece);
    for (int32_t i = 0; i < count; i++)
        *strrchr(piece[i].name, '.') = '\0';
    return count;
}

static bool is_saved(const tx_lora *lora, const char *module)
{
    return tx_lora_is_listed(lora->saved, module, ancestor_ends_with);
}

/* Returns true if parameter `index` is the weight of a linear layer. Embeddings and untied output heads are not: they
 * are outside the blocks and have no bias. */
static bool is_linear(const tx_config *config, int32_t index, const char *name, const tx_param_spec *spec)
{
    char next[TX_ARCH_NAME];
    tx_param_spec ignored;
    const size_t module = strlen(name) - strlen(WEIGHT);
    if (spec->shape.rank != 2 || strcmp(name + module, WEIGHT) != 0)
        return false;
    return !spec->table || (index + 1 < config->architecture->params(config) &&
                            !config->architecture->param(config, index + 1, next, &ignored) &&
                            strncmp(next, name, module) == 0 && strcmp(next + module, BIAS) == 0);
}

/* Kinds of modules. LINEAR ones are those that peft's "all-linear" selects. */
typedef enum module_kind { OTHER, LINEAR, HEAD, EMBEDDING } module_kind;

static module_kind kind_of(const tx_config *config, int32_t index, const char *name, const tx_param_spec *spec)
{
    if (is_linear(config, index, name, spec))
        return tx_lora_is_router(config, index, name) ? OTHER : LINEAR;
    if (spec->shape.rank != 2 || spec->logical.rank != 2)
        return OTHER;
    return spec->block == 0 ? EMBEDDING : HEAD;
}

static tx_status is_target(const tx_lora *lora, module_kind kind, const char *module, bool *target)
{
    *target = kind == LINEAR && strcmp(lora->targets, TX_LORA_ALL) == 0;
    if (tx_lora_is_pattern(lora->targets))
        TX_TRY(tx_lora_fits_pattern(lora, module, target));
    *target = kind != OTHER && (*target || tx_lora_is_listed(lora->targets, module, tx_lora_ends_with));
    return *target ? tx_lora_rules_allow(lora, module, target) : TX_OK;
}

static bool is_bias(const char *name)
{
    const size_t length = strlen(name);
    return length > strlen(BIAS) && strcmp(name + length - strlen(BIAS), BIAS) == 0;
}

bool tx_lora_biases(const tx_lora *lora, const char *piece)
{
    char module[TX_WEIGHTS_NAME];
    bool target;
    if (!is_bias(piece))
        return false;
    snprintf(module, sizeof module, "%.*s", (int)(strlen(piece) - strlen(BIAS)), piece);
    return !is_target(lora, LINEAR, module, &target) && target && !is_saved(lora, module);
}

/* Whether a rule trains a bias. A parameter of several modules is trained if one of them is adapted. */
static bool is_trained_bias(const tx_lora *lora, const char *name)
{
    const char *rule = tx_lora_bias(lora);
    tx_weights_piece piece[TX_MAX_SECTIONS];
    bool trained = false;
    if (!is_bias(name) || strcmp(rule, "lora_only") != 0)
        return is_bias(name) && strcmp(rule, "all") == 0;
    tx_param_spec spec = {.shape = TX_SHAPE(1), .sections = {.count = 1}};
    for (const char *bar = name; (bar = strchr(bar, '|')) && spec.sections.count < TX_MAX_SECTIONS; bar++)
        spec.sections.count++;
    const int32_t count = tx_weights_pieces(name, &spec, 0, TX_MAX_SECTIONS, piece);
    for (int32_t i = 0; i < count && !trained; i++)
        trained = tx_lora_biases(lora, piece[i].name);
    return trained;
}

bool tx_lora_saves(const tx_lora *lora, const char *name)
{
    char module[TX_WEIGHTS_NAME];
    snprintf(module, sizeof module, "%.*s", (int)(strrchr(name, '.') - name), name);
    return !tx_weights_of_teacher(name) && (is_saved(lora, module) || is_trained_bias(lora, name));
}

bool tx_lora_may_lack(const tx_lora *lora, const char *piece)
{
    char module[TX_WEIGHTS_NAME];
    snprintf(module, sizeof module, "%.*s", (int)(strrchr(piece, '.') - piece), piece);
    return is_bias(piece) && strcmp(tx_lora_bias(lora), "lora_only") == 0 && !is_saved(lora, module);
}

bool tx_lora_leaves(const tx_lora *lora, const char *piece)
{
    return tx_lora_may_lack(lora, piece) && !tx_lora_biases(lora, piece);
}

bool tx_lora_adds(const char *param)
{
    return strstr(param, ".lora_") != NULL || strstr(param, TX_LORA_TOKENS_DELTA) != NULL;
}

void tx_lora_freeze(const tx_lora *lora, const char *name, tx_param_spec *spec)
{
    if (spec->frozen) /* a buffer keeps its precision */
        return;
    spec->frozen = !tx_lora_saves(lora, name);
    if (spec->frozen && spec->shape.rank >= 2)
        spec->dtype = lora->stored;
    if (!spec->frozen && spec->shape.rank == 1)
        spec->rate = lora->rate_of_b;
}

tx_status tx_lora_modules_of(const tx_lora *lora, const tx_config *config, int32_t index, tx_lora_modules *modules)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_weights_piece piece[TX_MAX_SECTIONS];
    TX_TRY(config->architecture->param(config, index, name, &spec));
    *modules = (tx_lora_modules){0};
    const module_kind kind = kind_of(config, index, name, &spec);
    if (kind == OTHER)
        return TX_OK;
    const int32_t pieces = modules_in(name, &spec, piece);
    modules->divided = pieces > 1;
    modules->embedding = kind == EMBEDDING;
    for (int32_t i = 0; i < pieces; i++) {
        const char *module = piece[i].name;
        const int32_t n = modules->count;
        bool target;
        TX_TRY(is_target(lora, kind, module, &target));
        if (is_saved(lora, module) || !target)
            continue;
        TX_TRY(tx_lora_rank_of(lora, module, &modules->rank[n], &modules->scale[n]));
        memcpy(modules->name[n], module, TX_WEIGHTS_NAME);
        modules->section[modules->count++] = i;
    }
    return TX_OK;
}

/* ---- Checks ---------------------------------------------------------------------------------------------- */

/* Adds the last part of a module's name to a list that lacks it. */
static void add_name(char *list, size_t size, const char *module)
{
    const char *dot = strrchr(module, '.'), *last = dot ? dot + 1 : module;
    if (!tx_lora_is_listed(list, last, tx_lora_ends_with))
        tx_list_add(list, size, ", ", "%s", last);
}

/* The modules of a model that match a word. */
typedef struct found {
    bool has_target; /* one can be adapted */
    bool exists;     /* there is one of any kind */
    char list[512];
} found;

static tx_status find_module(const tx_config *config, const char *word, size_t length, bool saves, found *f)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_weights_piece piece[TX_MAX_SECTIONS];
    *f = (found){0};
    for (int32_t p = 0; p < config->architecture->params(config); p++) {
        TX_TRY(config->architecture->param(config, p, name, &spec));
        const bool target = kind_of(config, p, name, &spec) != OTHER;
        const int32_t pieces = modules_in(name, &spec, piece);
        int32_t fitting = 0;
        for (int32_t i = 0; i < pieces; i++) {
            if (saves || target)
                add_name(f->list, sizeof f->list, piece[i].name);
            fitting += (saves ? ancestor_ends_with : tx_lora_ends_with)(piece[i].name, word, length);
        }
        f->exists = f->exists || fitting;
        f->has_target = f->has_target || (fitting && target);
        if (saves && fitting && fitting < pieces)
            return tx_fail(TX_UNSUPPORTED,
                           "module to save %.*s: TX stores it in one parameter, %s: save all modules of that parameter",
                           (int)length, word, name);
    }
    return TX_OK;
}

/* Finds the module whose matrix is both embedding and output head, or "". */
static tx_status find_tied(const tx_config *config, char tied[TX_ARCH_NAME])
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    int32_t count = 0;
    *tied = '\0';
    for (int32_t p = 0; p < config->architecture->params(config); p++) {
        TX_TRY(config->architecture->param(config, p, name, &spec));
        if (spec.shape.rank == 2 && spec.logical.rank == 2) {
            snprintf(tied, TX_ARCH_NAME, "%.*s", (int)(strrchr(name, '.') - name), name);
            count++;
        }
    }
    if (count != 1 || tx_arch_classifies(config))
        *tied = '\0';
    return TX_OK;
}

static tx_status check_word(const tx_config *config, const char *word, size_t length, bool saves)
{
    found f;
    TX_TRY(find_module(config, word, length, saves, &f));
    if ((saves ? f.exists : f.has_target) || tx_lora_is_tied_head(config, word, length))
        return TX_OK;
    if (f.exists)
        return tx_fail(TX_UNSUPPORTED,
                       "target module %.*s: TX adapts linear layers and embeddings of tokens: %s; modules to save are "
                       "trained fully",
                       (int)length, word, f.list);
    return tx_fail(TX_INVALID, "%s %.*s: %s has no such module; its modules are %s",
                   saves ? "module to save" : "target module", (int)length, word, config->architecture->type, f.list);
}

static tx_status check_names(const tx_config *config, const char *names, bool saves)
{
    for (size_t length; names && (length = tx_lora_first_name(&names)) > 0; names += length)
        TX_TRY(check_word(config, names, length, saves));
    return TX_OK;
}

/* An adapter must have at least one module; peft requires it, too. */
static tx_status check_some(const tx_lora *lora, const tx_config *config)
{
    tx_lora_modules modules = {0};
    bool experts;
    TX_TRY(tx_lora_check_experts(lora, config, &experts));
    for (int32_t p = 0; p < config->architecture->params(config) && !modules.count && !experts; p++)
        TX_TRY(tx_lora_modules_of(lora, config, p, &modules));
    return modules.count || experts
               ? TX_OK
               : tx_fail(TX_INVALID, "target modules %s%s%s: no module matches", lora->targets,
                         lora->saved ? " without modules to save " : "", lora->saved ? lora->saved : "");
}

/* The number of modules to save that contain the module, including itself. */
static int32_t saved_levels(const tx_lora *lora, const char *module)
{
    int32_t levels = 0;
    for (const char *end = module; *end;) {
        char outer[TX_WEIGHTS_NAME];
        end += *end == '.';
        end += strcspn(end, ".");
        snprintf(outer, sizeof outer, "%.*s", (int)(end - module), module);
        levels += tx_lora_is_listed(lora->saved, outer, is_suffix);
    }
    return levels;
}

/* peft cannot load a module to save that is inside another one or has an adapter. */
static tx_status check_overlap(const tx_lora *lora, const tx_config *config)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    tx_weights_piece piece[TX_MAX_SECTIONS];
    for (int32_t p = 0; p < config->architecture->params(config) && lora->saved; p++) {
        TX_TRY(config->architecture->param(config, p, name, &spec));
        const module_kind kind = kind_of(config, p, name, &spec);
        const int32_t pieces = modules_in(name, &spec, piece);
        for (int32_t i = 0; i < pieces; i++) {
            const char *module = piece[i].name;
            bool target;
            TX_TRY(is_target(lora, kind, module, &target));
            if (saved_levels(lora, module) > 1)
                return tx_fail(TX_UNSUPPORTED,
                               "modules to save %s: %s is in two of them, one inside the other: give their full names",
                               lora->saved, module);
            if (target && is_saved(lora, module) && !tx_lora_is_listed(lora->saved, module, has_component))
                return tx_fail(
                    TX_UNSUPPORTED,
                    "modules to save %s: %s is a target module with the same ending: give the full names of modules "
                    "to save",
                    lora->saved, module);
        }
    }
    return TX_OK;
}

/* A matrix has trained rows, or is adapted or saved as a whole. */
static tx_status check_tokens(const tx_lora *lora, const tx_config *config)
{
    TX_TRY(tx_lora_check_tokens(lora, config));
    for (int32_t p = 0; p < config->architecture->params(config) && lora->tokens; p++) {
        tx_lora_tokens tokens;
        bool target;
        TX_TRY(tx_lora_tokens_of(lora, config, p, &tokens));
        const bool some = tokens.count > 0;
        tx_lora_free_tokens(&tokens);
        TX_TRY(is_target(lora, EMBEDDING, tokens.module, &target));
        if (some && (target || is_saved(lora, tokens.module)))
            return tx_fail(TX_INVALID, TX_LORA_TOKEN_INDICES ": %s is also a %s: choose one", tokens.module,
                           target ? "target module" : "module to save");
    }
    return TX_OK;
}

static tx_status check_experts(const tx_lora *lora, const tx_config *config)
{
    char name[TX_ARCH_NAME];
    tx_param_spec spec;
    for (int32_t p = 0; p < config->architecture->params(config); p++) {
        TX_TRY(config->architecture->param(config, p, name, &spec));
        if (strchr(name, '*') && tx_lora_saves(lora, name))
            return tx_fail(TX_UNSUPPORTED,
                           "module to save: %s: experts cannot be trained fully together with an adapter", name);
    }
    return TX_OK;
}

/* Whether a list names a tied output head. */
static bool names_tied_head(const tx_config *config, const char *names)
{
    for (size_t length; names && (length = tx_lora_first_name(&names)) > 0; names += length)
        if (tx_lora_is_tied_head(config, names, length))
            return true;
    return false;
}

tx_status tx_lora_find_tied(const tx_lora *lora, const tx_config *config, char tied[TX_ARCH_NAME])
{
    bool target;
    TX_TRY(find_tied(config, tied));
    if (!*tied)
        return TX_OK;
    TX_TRY(is_target(lora, EMBEDDING, tied, &target));
    if ((tx_lora_ties(lora) && tx_lora_ends_with(tied, EMBEDDING_NAME, strlen(EMBEDDING_NAME))) ||
        !(target || is_saved(lora, tied) || names_tied_head(config, lora->targets) ||
          names_tied_head(config, lora->saved) || tx_lora_tokens_differ(lora, config)))
        *tied = '\0';
    return TX_OK;
}

static tx_status check_tied(const tx_lora *lora, const tx_config *config)
{
    char tied[TX_ARCH_NAME];
    TX_TRY(tx_lora_find_tied(lora, config, tied));
    return *tied ? tx_fail(TX_UNSUPPORTED,
                           "the adapter changes %s or the output head, which are one matrix in this model "
                           "(tie_word_embeddings): leave them out",
                           tied)
                 : TX_OK;
}

const char *tx_lora_task(const tx_config *config)
{
    static const char *const tasks[TX_HEAD_COUNT] = {[TX_HEAD_CAUSAL_LM] = TX_LORA_TEXTS,
                                                     [TX_HEAD_SEQUENCE_CLASSIFICATION] = TX_LORA_CLASSES,
                                                     [TX_HEAD_TOKEN_CLASSIFICATION] = TX_LORA_TOKENS,
                                                     [TX_HEAD_QUESTION_ANSWERING] = TX_LORA_ANSWERS,
                                                     [TX_HEAD_STATES] = TX_LORA_STATES};
    return tasks[config->architecture->head];
}

static tx_status check_task(const tx_lora *lora, const tx_config *config)
{
    const char *task = lora->task, *own = tx_lora_task(config);
    const bool texts = task && strcmp(task, TX_LORA_TEXTS) == 0;
    if (task && (texts ? tx_arch_classifies(config) : !own || strcmp(task, own) != 0))
        return tx_fail(TX_INVALID, "task_type: the adapter belongs to a %s, the model is a %s",
                       texts                                ? "language model"
                       : strcmp(task, TX_LORA_TOKENS) == 0  ? "token classifier"
                       : strcmp(task, TX_LORA_ANSWERS) == 0 ? "model for question answering"
                       : strcmp(task, TX_LORA_STATES) == 0  ? "feature extractor"
                                                            : "classifier",
                       config->architecture->class_name);
    return TX_OK;
}

tx_status tx_lora_check(const tx_lora *lora, const tx_config *config)
{
    TX_TRY(check_task(lora, config));
    if (strcmp(lora->targets, TX_LORA_ALL) != 0 && !tx_lora_is_pattern(lora->targets))
        TX_TRY(check_names(config, lora->targets, false));
    TX_TRY(check_names(config, lora->saved, true));
    TX_TRY(check_overlap(lora, config));
    TX_TRY(check_some(lora, config));
    TX_TRY(check_experts(lora, config));
    TX_TRY(check_tokens(lora, config));
    return check_tied(lora, config);
}
