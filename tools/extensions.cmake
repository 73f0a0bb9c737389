# SPDX-License-Identifier: Apache-2.0
# Extensions are not needed to train GPT-2 on one device. Each has folders of its name in api/ and backends/. The core
# calls them through hooks of a model and through rows of tables, such as ops.def, passes.def and work.def. A build
# without the extension does not have these rows. api/left_out.c defines the few other functions if the extension is
# left out.
#
#   -DTX_WITHOUT="optimizers;..."   leaves these out; "all" leaves all out
#
# TX_LEFT_OUT lists the extensions that are left out. TX_HAS_NAME is true for the others; the compiler has
# TX_WITHOUT_NAME for those that are left out. A public function of an extension that is left out returns TX_UNSUPPORTED
# (api/left_out.c).
set(TX_EXTENSIONS amx checkpointing experts facts fusion generation matrix optimizers packed parallel residency tune
    watching)
set(TX_WITHOUT "" CACHE STRING "Extensions to leave out: all, or some of ${TX_EXTENSIONS}")

foreach(name IN LISTS TX_WITHOUT)
    if(NOT name IN_LIST TX_EXTENSIONS AND NOT name STREQUAL "all")
        message(FATAL_ERROR "TX_WITHOUT: ${name} is not an extension (extensions: all, ${TX_EXTENSIONS})")
    endif()
endforeach()
set(TX_LEFT_OUT ${TX_WITHOUT})
if("all" IN_LIST TX_WITHOUT)
    set(TX_LEFT_OUT ${TX_EXTENSIONS})
endif()
# Extensions that need another one.
if("residency" IN_LIST TX_LEFT_OUT)
    list(APPEND TX_LEFT_OUT parallel) # parallel gathers weights by the transfers of residency
endif()
foreach(name IN LISTS TX_EXTENSIONS)
    string(TOUPPER "${name}" upper)
    if(name IN_LIST TX_LEFT_OUT)
        target_compile_definitions(tx_objects PUBLIC TX_WITHOUT_${upper})
    else()
        set(TX_HAS_${upper} TRUE)
    endif()
endforeach()

# Adds sources to the library unless extension `name` is left out.
function(tx_extension name)
    string(TOUPPER "${name}" upper)
    if(TX_HAS_${upper})
        target_sources(tx_objects PRIVATE ${ARGN})
    endif()
endfunction()
