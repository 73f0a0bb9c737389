# SPDX-License-Identifier: Apache-2.0
# cpack reads this before it makes a package. Only dpkg-shlibdeps can find the dependencies of a Debian package.
if(CPACK_GENERATOR STREQUAL "DEB")
    find_program(dpkg_shlibdeps dpkg-shlibdeps)
    if(NOT dpkg_shlibdeps)
        message(FATAL_ERROR "dpkg-shlibdeps is missing: apt install dpkg-dev")
    endif()
endif()
