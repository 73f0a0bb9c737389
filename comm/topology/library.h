/* SPDX-License-Identifier: Apache-2.0
 *
 * Optional libraries, loaded at run time. If a symbol is missing, its pointer is NULL. */
#ifndef TX_COMM_TOPOLOGY_LIBRARY_H
#define TX_COMM_TOPOLOGY_LIBRARY_H

#include <dlfcn.h>
#include <string.h>

static inline void *tx_topo_library(const char *name)
{
    return dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

/* Sets the function pointer at `pointer`. */
static inline void tx_topo_symbol(void *library, const char *name, void *pointer)
{
    void *symbol = dlsym(library, name);
    memcpy(pointer, &symbol, sizeof symbol);
}

/* For a list F(FUNCTION, "symbol", (parameters)) of functions that return int: TX_TOPO_POINTER declares the
 * pointers of a struct, and TX_TOPO_LOAD sets those of `api` from `library`. */
#define TX_TOPO_POINTER(function, symbol, parameters) int(*function) parameters;
#define TX_TOPO_LOAD(function, symbol, parameters) tx_topo_symbol(library, symbol, &api->function);

#endif
