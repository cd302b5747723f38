# An overlay port that builds the tree it stands in:
#   vcpkg install rowlock --overlay-ports=packaging/vcpkg
# vcpkg's mysql-connector-cpp lacks the API that the driver for MySQL uses, so there is no such feature.
cmake_path(SET SOURCE_PATH NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../..")

vcpkg_check_features(OUT_FEATURE_OPTIONS features
    FEATURES
        postgresql ROWLOCK_POSTGRESQL
        sqlite ROWLOCK_SQLITE
        soci ROWLOCK_SOCI
        tool ROWLOCK_TOOL)
vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS ${features} -DROWLOCK_TOOL_MODULES=OFF -DROWLOCK_SERVE=OFF -DROWLOCK_MYSQL=OFF -DROWLOCK_TESTS=OFF -DROWLOCK_EXAMPLES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/rowlock)
vcpkg_fixup_pkgconfig()
if("tool" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES rowlock AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
