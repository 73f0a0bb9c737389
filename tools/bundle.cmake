# SPDX-License-Identifier: Apache-2.0
# Makes a bundle that runs on any system: the programs with all libraries that they need, except the C library and
# OpenCL drivers.
#   cmake --workflow --preset bundle        # build-bundle/tx-VERSION-linux-PROCESSOR.tar.xz
#
# DT_RPATH, unlike DT_RUNPATH, also applies to the libraries of libraries. The compiler's libraries are taken from the
# system if it has them, because OpenCL drivers of newer systems need newer ones, and a process can load each only once.
# A system whose C library is new enough for these programs has compiler libraries that are new enough.
set(CMAKE_INSTALL_LIBDIR lib)
set(tx_compiler "/lib(stdc\\+\\+|gcc_s|gomp|omp)\\.so")
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib;/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE};/usr/lib64;/usr/lib;$ORIGIN/../lib/gcc")
if(SKBUILD) # a wheel uses the C++ library of the system anyway
    set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../lib/gcc")
endif()
list(JOIN CMAKE_INSTALL_RPATH ":" tx_rpath)
add_link_options(LINKER:--disable-new-dtags)

# Libraries that are not bundled: the C library, which must match the system's loader, and libtx of a wheel, which is
# installed already.
set(tx_system "/(ld-linux[^/]*|lib(tx|c|m|dl|pthread|rt|resolv|util|nss_[a-z]+|anl|BrokenLocale))\\.so")

# tx_bundle(program...): adds the bundled libraries to the installation. Call it after all other installation rules.
function(tx_bundle)
    set(launcher "")
    if(TX_MPI)
        # Hydra finds its proxy in its own folder.
        find_program(TX_PATCHELF patchelf REQUIRED)
        cmake_path(GET MPIEXEC_EXECUTABLE PARENT_PATH folder)
        cmake_path(GET MPIEXEC_EXECUTABLE FILENAME name)
        file(REAL_PATH ${MPIEXEC_EXECUTABLE} launcher)
        install(PROGRAMS ${launcher} DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME ${name})
        install(PROGRAMS ${folder}/hydra_pmi_proxy DESTINATION ${CMAKE_INSTALL_BINDIR})
    endif()
    set(libraries "")
    if(SKBUILD)
        set(libraries libtx.so.0)
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
        set(libraries ${libraries})
        list(TRANSFORM libraries PREPEND \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/\")
        if(libraries)
            list(PREPEND libraries LIBRARIES)
        endif()
        file(GET_RUNTIME_DEPENDENCIES EXECUTABLES \${executables} \${libraries} RESOLVED_DEPENDENCIES_VAR found
            POST_EXCLUDE_REGEXES [[${tx_system}]])
        foreach(library IN LISTS found)
            set(folder lib)
            if(library MATCHES [[${tx_compiler}]])
                set(folder lib/gcc)
            endif()
            if(libraries) # a wheel has no links
                cmake_path(GET library FILENAME name)
                file(REAL_PATH \"\${library}\" library)
                file(INSTALL \"\${library}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/\${folder}\" RENAME \"\${name}\")
            else()
                file(INSTALL \"\${library}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/\${folder}\" FOLLOW_SYMLINK_CHAIN)
            endif()
        endforeach()")
endfunction()
