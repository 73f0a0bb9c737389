/* SPDX-License-Identifier: Apache-2.0
 * A program outside TX that fine-tunes a model: consumer_train MODEL TEXT OUTPUT_DIR */
#include <stdio.h>
#include <tx_train.h>

static void show(void *context, const tx_run_step *step)
{
    (void)context;
    printf("step %d of %d: loss %.3f\n", (int)step->step, (int)step->steps, step->loss);
}

int main(int argc, char **argv)
{
    const char *const options[][2] = {{"model_name_or_path", argc == 4 ? argv[1] : ""},
                                      {"train_file", argc == 4 ? argv[2] : ""},
                                      {"output_dir", argc == 4 ? argv[3] : ""},
                                      {"learning_rate", "1e-3"},
                                      {"max_steps", "4"}};
    tx_job *job = NULL;
    double loss = 0.0;
    tx_status status = tx_job_create(&job);
    for (int i = 0; i < 5 && !status; i++)
        status = tx_job_set(job, options[i][0], options[i][1]);
    if (!status)
        status = tx_job_listen(job, &(tx_job_listener){.size = sizeof(tx_job_listener), .step = show});
    if (!status)
        status = tx_job_run(job);
    if (!status)
        status = tx_job_result(job, "train_loss", &loss);
    if (status)
        fprintf(stderr, "consumer_train: %s\n", tx_error());
    else
        printf("train_loss %.6f\n", loss);
    tx_job_free(job);
    return status != 0;
}
