# SPDX-License-Identifier: Apache-2.0
# Matrix products. The inner parts of TX's own are compiled once for each instruction set; oneDNN is the one library.
target_sources(tx_objects PRIVATE gemm.c gemm_own.c)

set(levels portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    target_compile_definitions(tx_objects PRIVATE TX_X86_LEVELS)
    list(APPEND levels avx2 avx512)
    set(avx2_flags -march=x86-64-v3)
    set(avx512_flags -march=x86-64-v4 -mprefer-vector-width=512)
endif()
foreach(level ${levels})
    set(source ${CMAKE_CURRENT_BINARY_DIR}/gemm_tile_${level}.c)
    file(CONFIGURE OUTPUT ${source} CONTENT "#define TX_TILE ${level}\n#include \"backends/cpu/gemm_tile.c\"\n")
    target_sources(tx_objects PRIVATE ${source})
    # Multiply-adds are fused where the instruction set can; -O3 unrolls the register tile.
    set_source_files_properties(${source} TARGET_DIRECTORY tx_objects PROPERTIES
        COMPILE_OPTIONS "$<$<NOT:$<BOOL:${TX_SANITIZE}>>:-O3>;-fopenmp-simd;-ffp-contract=fast;${${level}_flags}")
endforeach()

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
