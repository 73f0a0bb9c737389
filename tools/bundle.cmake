# SPDX-License-Identifier: Apache-2.0
# A bundle that runs anywhere: programs beside the libraries that they need, but for the C library's and OpenCL drivers.
#   cmake --workflow --preset bundle        # build-bundle/tx-VERSION-linux-PROCESSOR.tar.xz
#
# DT_RPATH, unlike DT_RUNPATH, is also where the libraries' own libraries are looked for. The compiler's libraries come from the
# system where that has them: OpenCL drivers of newer systems need newer ones, and of each a process has one. A system with the
# C library that these programs need has new enough ones.
set(CMAKE_INSTALL_LIBDIR lib)
set(tx_compiler "/lib(stdc\\+\\+|gcc_s|gomp|omp)\\.so")
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib;/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE};/usr/lib64;/usr/lib;$ORIGIN/../lib/gcc")
list(JOIN CMAKE_INSTALL_RPATH ":" tx_rpath)
add_link_options(LINKER:--disable-new-dtags)

# What belongs to the system: the C library, which fits its kernel's loader, and what drivers bring themselves.
set(tx_system "/(ld-linux[^/]*|lib(c|m|dl|pthread|rt|resolv|util|nss_[a-z]+|anl|BrokenLocale))\\.so")

# tx_bundle(program...): to be called behind all other rules of installation.
function(tx_bundle)
    set(launcher "")
    if(TX_MPI)
        # Hydra, which looks for its proxy beside itself.
        find_program(TX_PATCHELF patchelf REQUIRED)
        cmake_path(GET MPIEXEC_EXECUTABLE PARENT_PATH folder)
        cmake_path(GET MPIEXEC_EXECUTABLE FILENAME name)
        file(REAL_PATH ${MPIEXEC_EXECUTABLE} launcher)
        install(PROGRAMS ${launcher} DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME ${name})
        install(PROGRAMS ${folder}/hydra_pmi_proxy DESTINATION ${CMAKE_INSTALL_BINDIR})
    endif()
    install(CODE "
        set(bin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
        set(executables ${ARGN})
        list(TRANSFORM executables PREPEND \"\${bin}/\")
        foreach(helper ${name} hydra_pmi_proxy)
            if(EXISTS \"\${bin}/\${helper}\")
                execute_process(COMMAND ${TX_PATCHELF} --force-rpath --set-rpath [[${tx_rpath}]] \"\${bin}/\${helper}\"
                    COMMAND_ERROR_IS_FATAL ANY)
                list(APPEND executables \"\${bin}/\${helper}\")
            endif()
        endforeach()
        file(GET_RUNTIME_DEPENDENCIES EXECUTABLES \${executables} RESOLVED_DEPENDENCIES_VAR found
            POST_EXCLUDE_REGEXES [[${tx_system}]])
        foreach(library IN LISTS found)
            set(folder lib)
            if(library MATCHES [[${tx_compiler}]])
                set(folder lib/gcc)
            endif()
            file(INSTALL \"\${library}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/\${folder}\" FOLLOW_SYMLINK_CHAIN)
        endforeach()")
endfunction()
