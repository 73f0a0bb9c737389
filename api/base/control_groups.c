/* SPDX-License-Identifier: Apache-2.0
 * Reads control groups from the files of Linux. */
#include "api/base/control_groups.h"
#include "api/base/number.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || !at[length]))
            return true;
    return false;
}

/* Visits a group and its parents. Version 1 has a folder for each set of controllers. */
static void visit_path(const char *root, const char *controllers, char *group, tx_control_group *visit, void *context)
{
    char folder[PATH_MAX];
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        const int length =
            snprintf(folder, sizeof folder, "%s%s%s%s", root, *controllers ? "/" : "", controllers, group);
        if (length < (int)sizeof folder)
            visit(context, folder, *group ? group : "/", !*controllers);
    }
}

void tx_control_groups(const char *list, const char *root, const char *controller, tx_control_group *visit,
                       void *context)
{
    char line[PATH_MAX + 256];
    FILE *file = fopen(list, "re");
    while (file && fgets(line, sizeof line, file)) { /* "4:cpu,cpuacct:/path", or "0::/path" in version 2 */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        if (!*controllers || has_word(controllers, controller))
            visit_path(root, controllers, group, visit, context);
    }
    if (file)
        fclose(file);
}

bool tx_read_numbers(const char *folder, const char *file, const char *key, int count, double *number)
{
    char path[PATH_MAX], line[256];
    int found = 0;
    FILE *from = snprintf(path, sizeof path, "%s/%s", folder, file) < (int)sizeof path ? fopen(path, "re") : NULL;
    while (from && found < count && fgets(line, sizeof line, from)) {
        char *at = line + strlen(key), *end;
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        for (found = 0; found < count; found++, at = end) {
            number[found] = tx_number_read(at, &end);
            if (end == at)
                break;
        }
    }
    if (from)
        fclose(from);
    return found == count;
}
