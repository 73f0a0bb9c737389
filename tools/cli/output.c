/* SPDX-License-Identifier: Apache-2.0
 * Checks of an output folder before a long run, and pages of HTML. */
#include "tools/cli/output.h"

#include "api/base/file.h"
#include "models/files/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool tx_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

tx_status tx_output_check(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT)
        return TX_OK;
    if (!dir)
        return tx_fail(TX_IO, "%s: cannot look into it: %s", folder, strerror(errno));
    bool empty = true, resumable = false;
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        bool ours = strcmp(entry->d_name, ".lock") == 0 || strcmp(entry->d_name, "cache") == 0;
        empty = empty && (ours || strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
        resumable = resumable || strncmp(entry->d_name, TX_CHECKPOINT_PREFIX, strlen(TX_CHECKPOINT_PREFIX)) == 0;
    }
    closedir(dir);
    if (empty)
        return TX_OK;
    return tx_fail(TX_INVALID, "%s: is not empty; give another output_dir, or --overwrite_output_dir%s", folder,
                   resumable ? ", or go on with --resume_from_checkpoint" : "");
}

tx_status tx_output_prepare(const char *folder)
{
    tx_status status = tx_folder_create(folder);
    if (!status && access(folder, W_OK))
        status = tx_fail(TX_IO, "%s: cannot write there: %s", folder, strerror(errno));
    return status;
}

/* The page with the data in its place. In a script < must not stand in a string, for </script> ends it. */
static void fill_page(FILE *to, const char *page, const char *json)
{
    const char *place = strstr(page, "@DATA@");
    fwrite(page, 1, (size_t)(place - page), to);
    for (; *json; json++)
        if (*json == '<')
            fputs("\\u003c", to);
        else
            fputc(*json, to);
    fputs(place + strlen("@DATA@"), to);
}

tx_status tx_page_write(const char *path, const unsigned char *page, const tx_json *data)
{
    char *json = tx_json_text(data, TX_JSON_LINE), *text = NULL;
    size_t size = 0;
    FILE *to = json ? open_memstream(&text, &size) : NULL;
    if (to)
        fill_page(to, (const char *)page, json);
    bool whole = to && !ferror(to);
    if (to && fclose(to))
        whole = false;
    tx_status status = whole ? TX_OK : tx_fail(TX_MEMORY, "%s: no memory for the page", path);
    if (!status && strcmp(path, "-") == 0) {
        fwrite(text, 1, size, stdout);
        if (fflush(stdout) || ferror(stdout))
            status = tx_fail(TX_IO, "standard output: cannot write");
    } else if (!status) {
        status = tx_file_write(path, text, size);
    }
    free(text);
    free(json);
    return status;
}
