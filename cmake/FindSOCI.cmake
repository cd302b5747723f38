# SOCI 4.0 with its PostgreSQL, MySQL and SQLite backends, and the client libraries' headers that the
# backends' headers include. Debian's libsoci-dev ships no usable package config, and does not bring
# those headers.
#
# Defines SOCI_VERSION and the targets SOCI::SOCI (the core), SOCI::postgresql, SOCI::mysql and
# SOCI::sqlite3. Linked, a backend needs no search path at run time, which SOCI's loading by name does.
find_path(SOCI_INCLUDE_DIR soci/soci.h)
find_library(SOCI_LIBRARY soci_core)
foreach(backend IN ITEMS postgresql mysql sqlite3)
    find_library(SOCI_${backend}_LIBRARY soci_${backend})
endforeach()
find_path(SOCI_libpq_INCLUDE_DIR libpq-fe.h PATH_SUFFIXES postgresql)
find_library(SOCI_libpq_LIBRARY pq)
find_path(SOCI_mysql_client_INCLUDE_DIR mysql.h PATH_SUFFIXES mariadb mysql)
find_library(SOCI_mysql_client_LIBRARY NAMES mariadb mysqlclient)
find_path(SOCI_sqlite3_client_INCLUDE_DIR sqlite3.h)
find_library(SOCI_sqlite3_client_LIBRARY sqlite3)

set(SOCI_needed
    SOCI_LIBRARY SOCI_INCLUDE_DIR SOCI_postgresql_LIBRARY SOCI_mysql_LIBRARY SOCI_sqlite3_LIBRARY
    SOCI_libpq_INCLUDE_DIR SOCI_libpq_LIBRARY SOCI_mysql_client_INCLUDE_DIR
    SOCI_mysql_client_LIBRARY
    SOCI_sqlite3_client_INCLUDE_DIR SOCI_sqlite3_client_LIBRARY)
mark_as_advanced(${SOCI_needed})

if(SOCI_INCLUDE_DIR AND EXISTS ${SOCI_INCLUDE_DIR}/soci/version.h)
    file(STRINGS ${SOCI_INCLUDE_DIR}/soci/version.h version_line REGEX "SOCI_LIB_VERSION ")
    string(REGEX MATCH "[0-9]+_[0-9]+(_[0-9]+)?" SOCI_VERSION "${version_line}")
    string(REPLACE "_" "." SOCI_VERSION "${SOCI_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SOCI
    REQUIRED_VARS ${SOCI_needed}
    VERSION_VAR SOCI_VERSION
    REASON_FAILURE_MESSAGE
        "install libsoci-dev libpq-dev libmariadb-dev libsqlite3-dev, or configure with -DROWLOCK_SOCI=OFF")

if(SOCI_FOUND AND NOT TARGET SOCI::SOCI)
    add_library(SOCI::SOCI UNKNOWN IMPORTED)
    set_target_properties(SOCI::SOCI PROPERTIES
        IMPORTED_LOCATION ${SOCI_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${SOCI_INCLUDE_DIR})
    foreach(backend IN ITEMS postgresql mysql sqlite3)
        add_library(SOCI::${backend} UNKNOWN IMPORTED)
        set_target_properties(SOCI::${backend} PROPERTIES
            IMPORTED_LOCATION ${SOCI_${backend}_LIBRARY} INTERFACE_LINK_LIBRARIES SOCI::SOCI)
    endforeach()
    target_include_directories(SOCI::postgresql INTERFACE ${SOCI_libpq_INCLUDE_DIR})
    target_link_libraries(SOCI::postgresql INTERFACE ${SOCI_libpq_LIBRARY})
    target_include_directories(SOCI::mysql INTERFACE ${SOCI_mysql_client_INCLUDE_DIR})
    target_link_libraries(SOCI::mysql INTERFACE ${SOCI_mysql_client_LIBRARY})
    target_include_directories(SOCI::sqlite3 INTERFACE ${SOCI_sqlite3_client_INCLUDE_DIR})
    target_link_libraries(SOCI::sqlite3 INTERFACE ${SOCI_sqlite3_client_LIBRARY})
endif()
