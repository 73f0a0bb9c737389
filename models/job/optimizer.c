/* SPDX-License-Identifier: Apache-2.0
 * Reads the optimizer of a run from --optim, its common options, and --optim_args, whose form is the Trainer's:
 * "momentum=0.9, nesterov=True". */
#include "models/job/settings.h"

#include "api/base/needs.h"
#include "api/base/number.h"
#include "models/tx_train.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const char tx_optimizer_words[] =
#define TX_OPTIMIZER_WORD(word, NAME) "|" #word
#include "api/optimizers.def"
    ;

static const struct {
    const char *word;
    tx_optimizer_kind kind;
} words[] = {
#define TX_OPTIMIZER_WORD(word, NAME) {#word, TX_##NAME},
#include "api/optimizers.def"
};

const char *tx_optimizer_word(int32_t place, tx_optimizer_kind *kind)
{
    TX_NEEDS(kind, NULL);
    if (place < 0 || place >= (int32_t)(sizeof words / sizeof words[0]))
        return NULL;
    *kind = words[place].kind;
    return words[place].word;
}

typedef enum setting_kind { NUMBER, AMOUNT, COUNT, TRUTH, DTYPE, ADJUST, SCALE, RANDOM, STD } setting_kind;

/* The words of kinds that have some. The second one sets the member to true, or to bf16. */
static const char *const choices[][2] = {
    [TRUTH] = {"true", "false"},     [DTYPE] = {"float32", "bfloat16"}, [ADJUST] = {"original", "match_rms_adamw"},
    [SCALE] = {"channel", "tensor"}, [RANDOM] = {"random", NULL},       [STD] = {"std", NULL}};

#define OF(kind) (1u << TX_##kind)
#define ADAMS                                                                                           \
    (OF(ADAMW) | OF(ADAMW_8BIT) | OF(ADAMW_ANYPRECISION) | OF(MUON) | OF(ADEMAMIX) | OF(STABLE_ADAMW) | \
     OF(SCHEDULE_FREE_ADAMW) | OF(APOLLO))
#define LIONS (OF(LION) | OF(LION_8BIT))
#define AT(member) offsetof(tx_optimizer_options, member)

/* Settings of --optim_args, named as in torch, transformers and torchdistx. One of which only one value is supported
 * has no member. */
static const struct {
    const char *name;
    unsigned optimizers;
    setting_kind kind;
    size_t offset;
} settings[] = {
    {"beta1", ADAMS | LIONS, NUMBER, AT(beta1)},
    {"beta2", ADAMS | LIONS, NUMBER, AT(beta2)},
    {"beta3", OF(ADEMAMIX), NUMBER, AT(beta3)},
    {"alpha", OF(ADEMAMIX), AMOUNT, AT(slow_weight)},
    {"t_alpha", OF(ADEMAMIX), AMOUNT, AT(slow_weight_steps)},
    {"t_beta3", OF(ADEMAMIX), AMOUNT, AT(beta3_steps)},
    {"eps", ADAMS, NUMBER, AT(eps)},
    {"weight_decay", ~0u, NUMBER, AT(weight_decay)},
    {"momentum", OF(SGD) | OF(MUON) | OF(SCHEDULE_FREE_SGD), NUMBER, AT(momentum)},
    {"nesterov", OF(SGD) | OF(MUON), TRUTH, AT(nesterov)},
    {"adjust_lr_fn", OF(MUON), ADJUST, AT(match_rms)},
    {"scale_parameter", OF(ADAFACTOR), TRUTH, AT(scale_parameter)},
    {"relative_step", OF(ADAFACTOR), TRUTH, AT(relative_step)},
    {"warmup_init", OF(ADAFACTOR), TRUTH, AT(warmup_init)},
    {"use_kahan_summation", OF(ADAMW_ANYPRECISION), TRUTH, AT(kahan)},
    {"momentum_dtype", OF(ADAMW_ANYPRECISION), DTYPE, AT(momentum_dtype)},
    {"variance_dtype", OF(ADAMW_ANYPRECISION), DTYPE, AT(variance_dtype)},
    {"compensation_buffer_dtype", OF(ADAMW_ANYPRECISION), DTYPE, AT(compensation_dtype)},
    {"rank", OF(APOLLO), COUNT, AT(rank)},
    {"proj", OF(APOLLO), RANDOM, 0},
    {"proj_type", OF(APOLLO), STD, 0},
    {"update_proj_gap", OF(APOLLO), COUNT, AT(update_proj_gap)},
    {"scale", OF(APOLLO), AMOUNT, AT(scale)},
    {"scale_type", OF(APOLLO), SCALE, AT(scale_by_tensor)},
    {"scale_front", OF(APOLLO), TRUTH, AT(scale_front)},
    {"disable_nl", OF(APOLLO), TRUTH, AT(disable_nl)},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

/* The index of a value among the words of its kind, or -1. */
static int choose(const char *value, setting_kind kind)
{
    const char *const *word = choices[kind];
    return kind == TRUTH                            ? tx_option_truth(value)
           : strcmp(value, word[0]) == 0            ? 0
           : word[1] && strcmp(value, word[1]) == 0 ? 1
                                                    : -1;
}

static tx_status store_number(int32_t index, const char *value, void *at)
{
    const bool counts = settings[index].kind == COUNT;
    const double least = counts ? 1.0 : 0.0, limit = settings[index].kind == NUMBER ? 1.0 : counts ? 1e6 : 1e9;
    char *end = NULL;
    const double number = tx_number_read(value, &end);
    if (end == value || *end || !(number >= least && number < limit) || (counts && floor(number) != number))
        return tx_fail(TX_INVALID, "%s=%s: must be %sin [%g, %g)", settings[index].name, value,
                       counts ? "a whole number " : "", least, limit);
    if (counts)
        *(int32_t *)at = (int32_t)number;
    else
        *(float *)at = (float)number;
    return TX_OK;
}

static tx_status store(int32_t index, const char *value, tx_optimizer_options *o)
{
    const setting_kind kind = settings[index].kind;
    void *at = (char *)o + settings[index].offset;
    if (kind <= COUNT)
        return store_number(index, value, at);
    const char *const *word = choices[kind];
    const int place = choose(value, kind);
    if (place < 0)
        return tx_fail(TX_INVALID, "%s=%s: must be %s%s%s", settings[index].name, value, word[0], word[1] ? " or " : "",
                       word[1] ? word[1] : "");
    if (kind == DTYPE)
        *(tx_dtype *)at = place ? TX_BF16 : TX_F32;
    else if (settings[index].offset)
        *(bool *)at = place == 1;
    return TX_OK;
}

/* One "name=value". */
static tx_status set_one(const char *text, tx_optimizer_options *o)
{
    char list[256] = "";
    const char *equals = strchr(text, '=');
    for (int32_t i = 0; i < SETTINGS; i++) {
        if (!(settings[i].optimizers >> o->kind & 1))
            continue;
        const size_t length = strlen(settings[i].name);
        if (equals && (size_t)(equals - text) == length && strncmp(text, settings[i].name, length) == 0)
            return store(i, equals + 1, o);
        tx_list_add(list, sizeof list, ", ", "%s", settings[i].name);
    }
    return tx_fail(TX_INVALID, "\"%.60s\": not a setting of this optimizer (NAME=VALUE); it has %s", text,
                   *list ? list : "none");
}

static tx_status set_all(const char *text, tx_optimizer_options *o)
{
    char part[128];
    tx_status status = TX_OK;
    while (*text && status == TX_OK) {
        size_t length = 0;
        for (; *text && *text != ','; text++)
            if (*text != ' ' && length + 1 < sizeof part)
                part[length++] = *text;
        part[length] = '\0';
        text += *text == ',';
        if (length > 0)
            status = set_one(part, o);
    }
    return status;
}

bool tx_job_schedule_free(const tx_job_settings *set)
{
    return words[set->optim].kind == TX_SCHEDULE_FREE_ADAMW || words[set->optim].kind == TX_SCHEDULE_FREE_SGD;
}

tx_optimizer_options tx_job_usual_optimizer(tx_optimizer_kind kind)
{
    tx_optimizer_options o = {sizeof o,
                              kind,
                              0.9f,
                              0.999f,
                              1e-8f,
                              .compensation_dtype = TX_BF16,
                              .beta3 = 0.9999f,
                              .slow_weight = 5,
                              .rank = 128,
                              .update_proj_gap = 200,
                              .scale = 1};
    if (o.kind == TX_MUON) { /* defaults of torch.optim.Muon */
        o.momentum = 0.95f;
        o.nesterov = true;
    }
    if (o.kind == TX_SCHEDULE_FREE_SGD) /* the default of schedulefree.SGDScheduleFree */
        o.momentum = 0.9f;
    return o;
}

tx_status tx_job_optimizer(const tx_job_settings *set, tx_optimizer_options *options)
{
    tx_optimizer_options o = tx_job_usual_optimizer(words[set->optim].kind);
    o.beta1 = (float)set->beta1;
    o.beta2 = (float)set->beta2;
    o.eps = (float)set->epsilon;
    o.weight_decay = (float)set->decay;
    o.keep_zeros = tx_job_prunes(set);
    tx_status status = set->optim_args ? set_all(set->optim_args, &o) : TX_OK;
    if (status == TX_OK && o.nesterov && !(o.momentum > 0))
        status = tx_fail(TX_INVALID, "nesterov=True needs a momentum above 0");
    if (status == TX_OK && o.relative_step && set->loraplus_ratio > 0)
        status = tx_fail(TX_INVALID, "relative_step=True computes one rate: leave --loraplus_lr_ratio out");
    if (status == TX_OK && !(o.scale > 0))
        status = tx_fail(TX_INVALID, "scale=0: must be above 0");
    if (status == TX_OK && o.warmup_init && !o.relative_step)
        status = tx_fail(TX_INVALID, "warmup_init=True needs relative_step=True");
    if (status == TX_OK && o.keep_zeros && tx_optimizer_needs_epsilon(o.kind) && !(o.eps > 0))
        status = tx_fail(TX_INVALID, "--sparsity needs an epsilon above 0, because it divides moments of 0");
    if (status == TX_OK)
        *options = o;
    return status;
}
