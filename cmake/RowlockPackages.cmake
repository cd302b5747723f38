# Debian packages, made by cpack from the components of RowlockInstall.cmake: scripts/packages. A library
# with an ABI has its version in the package's name, so that two ABIs can be installed side by side.
if(NOT BUILD_SHARED_LIBS OR NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr" OR NOT ROWLOCK_TOOL_MODULES OR NOT ROWLOCK_TOOL)
    message(FATAL_ERROR "ROWLOCK_PACKAGES needs the tool with its modules, -DBUILD_SHARED_LIBS=ON and "
            "-DCMAKE_INSTALL_PREFIX=/usr: run scripts/packages")
endif()

set(packaging ${PROJECT_SOURCE_DIR}/packaging/debian)
set(abi ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(package_version ${PROJECT_VERSION}-1)
set(CPACK_COMPONENTS_ALL "")

# rowlock_package(<component> SECTION <section> SUMMARY <line> DESCRIPTION <text> [NAME <name>]
#                 [DEPENDS <component>…] [SUGGESTS <name>…] [CONTROL <file>…])
#
# DEPENDS: of the same version, beside what dpkg-shlibdeps finds. CONTROL: maintainer scripts and triggers.
function(rowlock_package component)
    cmake_parse_arguments(arg "" "NAME;SECTION;SUMMARY;DESCRIPTION" "DEPENDS;SUGGESTS;CONTROL" ${ARGN})
    if(NOT arg_NAME)
        set(arg_NAME ${component})
    endif()
    set_property(GLOBAL PROPERTY ROWLOCK_PACKAGE_${component} ${arg_NAME})
    set(depends "")
    foreach(each IN LISTS arg_DEPENDS)
        get_property(name GLOBAL PROPERTY ROWLOCK_PACKAGE_${each})
        list(APPEND depends "${name} (= ${package_version})")
    endforeach()
    list(JOIN depends ", " depends)
    list(JOIN arg_SUGGESTS ", " suggests)
    string(TOUPPER ${component} upper)
    foreach(setting IN ITEMS
            "PACKAGE_NAME|${arg_NAME}" "PACKAGE_SECTION|${arg_SECTION}" "PACKAGE_DEPENDS|${depends}"
            "PACKAGE_SUGGESTS|${suggests}" "PACKAGE_CONTROL_EXTRA|${arg_CONTROL}"
            "FILE_NAME|${arg_NAME}_${package_version}_${CPACK_DEBIAN_PACKAGE_ARCHITECTURE}.deb")
        string(REGEX MATCH "^[^|]*" key "${setting}")
        string(REGEX REPLACE "^[^|]*[|]" "" value "${setting}")
        set(CPACK_DEBIAN_${upper}_${key} "${value}" PARENT_SCOPE)
    endforeach()
    set(CPACK_DEBIAN_${upper}_DESCRIPTION "${arg_SUMMARY}\n${arg_DESCRIPTION}" PARENT_SCOPE)
    list(APPEND CPACK_COMPONENTS_ALL ${component})
    set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} PARENT_SCOPE)

    set(doc ${CMAKE_INSTALL_DATADIR}/doc/${arg_NAME})
    install(FILES ${packaging}/copyright DESTINATION ${doc} COMPONENT ${component})
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/changelog.Debian.gz DESTINATION ${doc} COMPONENT ${component})
endfunction()

# --- the changelog, the same for all -----------------------------------------------------------------
set(ENV{LC_ALL} C.UTF-8)
string(TIMESTAMP package_date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH, if it is set
configure_file(${packaging}/changelog.in changelog.Debian @ONLY)
execute_process(COMMAND gzip -9nkf changelog.Debian
    WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR} COMMAND_ERROR_IS_FATAL ANY)

# --- the packages ------------------------------------------------------------------------------------
execute_process(COMMAND dpkg --print-architecture
    OUTPUT_VARIABLE CPACK_DEBIAN_PACKAGE_ARCHITECTURE OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(about "rowlock keeps locks between processes and machines in the SQL database that
an application already runs: PostgreSQL, MariaDB or MySQL, or a SQLite file.")
set(title_of_core "without drivers")
set(title_of_postgresql "driver for PostgreSQL")
set(title_of_mysql "driver for MySQL and MariaDB")
set(title_of_sqlite "driver for SQLite")
set(title_of_soci "driver for SOCI sessions")
set(title_of_drivers "all drivers")
set(title_of_serve "page and metrics server")
set(text_of_core "All locks, for a connection that a driver or the program provides.")
set(text_of_postgresql "It connects by libpq, and accepts the program's own PGconn.")
set(text_of_mysql "It connects by MySQL Connector/C++, and accepts the program's own connection.")
set(text_of_sqlite "It opens a file, and accepts the program's own sqlite3 handle.")
set(text_of_soci "It accepts the program's own soci::session.")
set(text_of_drivers "It chooses the driver by the URL, and so needs all of them.")

foreach(library IN LISTS components)
    get_target_property(linked rowlock_${library} LINK_LIBRARIES)
    list(FILTER linked INCLUDE REGEX "^rowlock_")
    list(TRANSFORM linked REPLACE "^rowlock_" "librowlock-")
    rowlock_package(librowlock-${library} NAME librowlock-${library}${abi}
        SECTION libs DEPENDS ${linked} CONTROL ${packaging}/triggers
        SUMMARY "distributed locks in SQL databases (${title_of_${library}})"
        DESCRIPTION "${about}\n.\nThis package has the shared library.\n${text_of_${library}}")
    rowlock_development_of(development ${library})
    set(headers "")
    foreach(each IN LISTS linked)
        string(REPLACE librowlock- "" each ${each})
        rowlock_development_of(each ${each})
        list(APPEND headers ${each})
    endforeach()
    rowlock_package(${development}
        SECTION libdevel DEPENDS librowlock-${library} ${headers}
        SUMMARY "distributed locks in SQL databases (development, ${title_of_${library}})"
        DESCRIPTION "${about}\n.\nThis package has C++ headers, and what CMake and pkg-config need.\n${text_of_${library}}")
endforeach()

get_property(modules GLOBAL PROPERTY ROWLOCK_TOOL_MODULE_TARGETS)
set(suggested "")
foreach(module IN LISTS modules)
    string(REPLACE rowlock_tool_ rowlock- package ${module})
    list(APPEND suggested ${package})
endforeach()
rowlock_package(rowlock
    SECTION database DEPENDS librowlock-core librowlock-sqlite SUGGESTS ${suggested}
    CONTROL ${packaging}/postinst ${packaging}/prerm ${packaging}/postrm
    SUMMARY "run commands under locks in SQL databases"
    DESCRIPTION "${about}
.
This package has the tool, which runs a command while it holds a lock, shows
who holds which lock, and sets up the database. It works with SQLite files, and
the packages of drivers add other databases. It starts nothing: a timer that
tidies the tables can be enabled.")
foreach(module IN LISTS modules)
    string(REPLACE rowlock_tool_ "" part ${module})
    rowlock_package(rowlock-${part}
        SECTION database DEPENDS rowlock librowlock-core
        SUMMARY "run commands under locks in SQL databases (${title_of_${part}})"
        DESCRIPTION "${about}\n.\nThis package has the tool's ${title_of_${part}}.")
endforeach()

# --- cpack ---------------------------------------------------------------------------------------------
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME rowlock)
set(CPACK_PACKAGE_VENDOR "The rowlock authors")
set(CPACK_PACKAGE_CONTACT "The rowlock authors <maintainers@rowlock.invalid>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_DEBIAN_PACKAGE_VERSION ${package_version})
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_DEBUGINFO_PACKAGE ON)  # which strips the others; CPACK_STRIP_FILES would leave it nothing
# DESTDIR, not another prefix: the tool contains the folder of its modules.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src ${PROJECT_BINARY_DIR}/src/driver)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
include(CPack)
