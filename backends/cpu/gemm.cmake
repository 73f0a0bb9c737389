# SPDX-License-Identifier: Apache-2.0
# Matrix products; oneDNN is the one library.
target_sources(tx_objects PRIVATE gemm.c gemm_own.c)
if(TX_ONEDNN)
    find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
    find_library(DNNL_LIBRARY dnnl)
    if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
        message(FATAL_ERROR "oneDNN is not found: install libdnnl-dev, or configure with -DTX_ONEDNN=OFF")
    endif()
    target_sources(tx_objects PRIVATE gemm_dnnl.c)
    target_compile_definitions(tx_objects PRIVATE TX_ONEDNN)
    target_include_directories(tx_objects SYSTEM PRIVATE ${DNNL_INCLUDE_DIR})
    target_link_libraries(tx_objects PUBLIC ${DNNL_LIBRARY})
endif()
