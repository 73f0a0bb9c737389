# SPDX-License-Identifier: Apache-2.0
# Extensions are not needed to train GPT-2 on one device. Each has folders of its name in api/ and backends/. The core
# calls them through hooks of a model and through rows of tables, such as ops.def and passes.def. A build with
# -DTX_CORE=ON has only the core: the compiler has TX_CORE, and the tables do not have these rows. A public function of
# an extension then returns TX_UNSUPPORTED (api/left_out.c).
set(TX_EXTENSIONS amx checkpointing experts facts fusion generation matrix optimizers packed parallel residency
    scan shipped tune watching)
if(TX_CORE)
    target_compile_definitions(tx_objects PUBLIC TX_CORE)
endif()

# Adds sources of extensions to the library.
function(tx_extensions)
    if(NOT TX_CORE)
        target_sources(tx_objects PRIVATE ${ARGN})
    endif()
endfunction()
