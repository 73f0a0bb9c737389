# SPDX-License-Identifier: Apache-2.0
# Settings of cpack, which makes a Debian package of the programs, the library and their documentation.
#   cmake --build build && cpack --config build/CPackConfig.cmake -G DEB
set(CPACK_PACKAGE_NAME tx)
set(CPACK_PACKAGE_VENDOR TX)
set(CPACK_PACKAGE_CONTACT "The TX maintainers <maintainers@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trainer of transformers for CPUs and OpenCL devices")
set(CPACK_PACKAGE_DESCRIPTION
    "TX trains and fine-tunes transformers in C, on the CPU and on any GPU that has an
OpenCL driver. It reads and writes the files of Hugging Face. The package has the library with
its headers, and the programs
 txtrain (training), txgen (generation and perplexity), txserve (HTTP server),
 txlaunch (jobs of many ranks), txsearch (hyperparameter search), txtok (tokenizers), txconvert (GGUF files),
 txmem (memory forecast), txplot (curves), txtopo (topology of devices),
 txcheck (checks of files and devices), txtune (autotuner) and txbench (benchmarks).")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
if(TX_OPENCL)
    set(CPACK_DEBIAN_PACKAGE_RECOMMENDS pocl-opencl-icd) # an OpenCL device for systems without another one
endif()
# The package with the launcher of the MPI library that TX is built with.
if(TX_MPI)
    file(REAL_PATH ${MPIEXEC_EXECUTABLE} launcher)
    execute_process(COMMAND dpkg -S ${launcher} OUTPUT_VARIABLE owner ERROR_QUIET)
    if(owner MATCHES "^([a-z0-9.+-]+)[,:]")
        set(CPACK_DEBIAN_PACKAGE_DEPENDS ${CMAKE_MATCH_1})
    endif()
endif()
set(CPACK_DEBIAN_PACKAGE_SUGGESTS bash-completion)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/package_check.cmake)

install(FILES README.md CHANGELOG.md ARCHITECTURE.md BENCHMARKS.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN *.md PATTERN *.svg PATTERN *.yaml)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
if(TX_BUNDLE)
    string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" system)
    set(CPACK_PACKAGE_FILE_NAME tx-${PROJECT_VERSION}-${system})
    set(CPACK_PACKAGING_INSTALL_PREFIX /)
    set(CPACK_GENERATOR TXZ)
    tx_bundle(${TX_PROGRAMS})
endif()
include(CPack)
