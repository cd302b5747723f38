# MySQL Connector/C++ 1.1, the `cppconn` API. Debian ships no package config for it.
#
# Defines the target MySQLConnectorCpp::MySQLConnectorCpp and MySQLConnectorCpp_VERSION.
find_path(MySQLConnectorCpp_INCLUDE_DIR mysql_driver.h)
find_library(MySQLConnectorCpp_LIBRARY mysqlcppconn)
mark_as_advanced(MySQLConnectorCpp_INCLUDE_DIR MySQLConnectorCpp_LIBRARY)

if(MySQLConnectorCpp_INCLUDE_DIR AND EXISTS ${MySQLConnectorCpp_INCLUDE_DIR}/cppconn/version_info.h)
    file(STRINGS ${MySQLConnectorCpp_INCLUDE_DIR}/cppconn/version_info.h version_line
         REGEX "MYCPPCONN_DM_VERSION ")
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" MySQLConnectorCpp_VERSION "${version_line}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(MySQLConnectorCpp
    REQUIRED_VARS MySQLConnectorCpp_LIBRARY MySQLConnectorCpp_INCLUDE_DIR
    VERSION_VAR MySQLConnectorCpp_VERSION
    REASON_FAILURE_MESSAGE "install libmysqlcppconn-dev, or configure with -DROWLOCK_MYSQL=OFF")

if(MySQLConnectorCpp_FOUND AND NOT TARGET MySQLConnectorCpp::MySQLConnectorCpp)
    add_library(MySQLConnectorCpp::MySQLConnectorCpp UNKNOWN IMPORTED)
    set_target_properties(MySQLConnectorCpp::MySQLConnectorCpp PROPERTIES
        IMPORTED_LOCATION ${MySQLConnectorCpp_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${MySQLConnectorCpp_INCLUDE_DIR})
endif()
