# SPDX-License-Identifier: Apache-2.0
# Read by cpack before it makes a package: what a Debian package depends on is found by dpkg-shlibdeps alone.
if(CPACK_GENERATOR STREQUAL "DEB")
    find_program(dpkg_shlibdeps dpkg-shlibdeps)
    if(NOT dpkg_shlibdeps)
        message(FATAL_ERROR "dpkg-shlibdeps is missing: apt install dpkg-dev")
    endif()
endif()
