/* SPDX-License-Identifier: Apache-2.0
 * Finds the note with the linker's build id in memory. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "api/base/build_id.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct search {
    uintptr_t code; /* an address in the program or library */
    char *text;
} search;

static size_t padded(size_t size)
{
    return (size + 3) & ~(size_t)3;
}

/* Reads the notes of a segment: name size, data size, type, name, data. */
static void read_notes(const unsigned char *at, size_t size, char *text)
{
    ElfW(Nhdr) note;
    while (size >= sizeof note) {
        memcpy(&note, at, sizeof note);
        const size_t data = sizeof note + padded(note.n_namesz), whole = data + padded(note.n_descsz);
        if (whole > size)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at + sizeof note, "GNU", 4) == 0)
            for (size_t i = 0; i < note.n_descsz && 2 * i + 2 < TX_BUILD_ID; i++)
                snprintf(text + 2 * i, 3, "%02x", at[data + i]);
        at += whole;
        size -= whole;
    }
}

static int visit_module(struct dl_phdr_info *module, size_t size, void *context)
{
    const search *s = context;
    bool here = false;
    (void)size;
    for (int i = 0; i < module->dlpi_phnum && !here; i++) {
        const ElfW(Phdr) *segment = &module->dlpi_phdr[i];
        here = segment->p_type == PT_LOAD && s->code - (module->dlpi_addr + segment->p_vaddr) < segment->p_memsz;
    }
    for (int i = 0; i < module->dlpi_phnum && here; i++) {
        const ElfW(Phdr) *segment = &module->dlpi_phdr[i];
        if (segment->p_type == PT_NOTE)
            read_notes((const unsigned char *)(module->dlpi_addr + segment->p_vaddr), segment->p_memsz, s->text);
    }
    return here;
}

void tx_build_id(char text[TX_BUILD_ID])
{
    search s = {(uintptr_t)&visit_module, text};
    snprintf(text, TX_BUILD_ID, "unknown");
    dl_iterate_phdr(visit_module, &s);
}
