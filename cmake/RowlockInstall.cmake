# Install rules. Each library has its own export set, .pc file and pair of components, so that a program which
# uses one database needs the library of no other. The components are named like the Debian packages that
# RowlockPackages.cmake makes of them: `cmake --install … --component librowlock-postgresql-dev`.
include(CMakePackageConfigHelpers)

get_property(components GLOBAL PROPERTY ROWLOCK_COMPONENTS)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/rowlock)

# rowlock_development_of(<variable> <library>): the component with its headers. All drivers together are the
# package that most people want, so that one has the short name.
function(rowlock_development_of variable library)
    set(${variable} librowlock-${library}-dev PARENT_SCOPE)
    if(library STREQUAL "drivers")
        set(${variable} librowlock-dev PARENT_SCOPE)
    endif()
endfunction()

foreach(component IN LISTS components)
    rowlock_development_of(development ${component})
    install(TARGETS rowlock_${component} EXPORT rowlock-${component}
        RUNTIME COMPONENT librowlock-${component}
        LIBRARY COMPONENT librowlock-${component} NAMELINK_COMPONENT ${development}
        ARCHIVE COMPONENT ${development}
        FILE_SET HEADERS COMPONENT ${development})
    set_target_properties(rowlock_${component} PROPERTIES INSTALL_RPATH "$ORIGIN")
    install(EXPORT rowlock-${component} FILE rowlock-${component}.cmake NAMESPACE rowlock::
        DESTINATION ${package_folder} COMPONENT ${development})
endforeach()

set(drivers ${components})
list(REMOVE_ITEM drivers core drivers)
if(NOT BUILD_SHARED_LIBS)
    set(package_of_postgresql PostgreSQL)
    set(package_of_mysql MySQLConnectorCpp)
    set(package_of_sqlite SQLite3)
    set(package_of_soci SOCI)
endif()
configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/rowlockConfig.cmake.in rowlockConfig.cmake
    INSTALL_DESTINATION ${package_folder}
    NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(rowlockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
        ${CMAKE_CURRENT_BINARY_DIR}/rowlockConfig.cmake
        ${CMAKE_CURRENT_BINARY_DIR}/rowlockConfigVersion.cmake
        ${PROJECT_SOURCE_DIR}/cmake/FindMySQLConnectorCpp.cmake
        ${PROJECT_SOURCE_DIR}/cmake/FindSOCI.cmake
    DESTINATION ${package_folder} COMPONENT librowlock-core-dev)

# --- rowlock-<library>.pc, and rowlock.pc for all of them -------------------------------------------
# rowlock's static archives need the database libraries on every link line, so these are public there.
# Requires.private adds the needs of their own static forms (`pkg-config --static`).

# rowlock_pc_flags(<variable> <library or target>…): appends the linker's flags for foreign libraries.
function(rowlock_pc_flags variable)
    foreach(item IN LISTS ARGN)
        set(path "")
        if(TARGET ${item})
            get_target_property(imported ${item} IMPORTED)
            if(NOT imported OR item STREQUAL "Threads::Threads")
                continue()
            endif()
            get_target_property(path ${item} IMPORTED_LOCATION)
            get_target_property(further ${item} INTERFACE_LINK_LIBRARIES)
            if(further)
                rowlock_pc_flags(${variable} ${further})
            endif()
        elseif(IS_ABSOLUTE "${item}")
            set(path ${item})
        endif()
        if(path)
            cmake_path(GET path PARENT_PATH folder)
            cmake_path(GET path STEM name)
            string(REGEX REPLACE "^lib" "" name ${name})
            if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
                list(APPEND ${variable} -L${folder})
            endif()
            list(APPEND ${variable} -l${name})
        endif()
    endforeach()
    set(${variable} ${${variable}} PARENT_SCOPE)
endfunction()

cmake_path(APPEND pc_libdir "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
cmake_path(APPEND pc_includedir "\${prefix}" ${CMAKE_INSTALL_INCLUDEDIR})
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
    BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_prefix)

# rowlock_install_pc(<name> <component>): writes and installs <name>.pc from the variables pc_….
function(rowlock_install_pc name component)
    foreach(list IN ITEMS pc_libraries pc_libraries_private pc_requires_private)
        list(JOIN ${list} " " ${list})
    endforeach()
    list(JOIN pc_requires ", " pc_requires)
    set(pc_name ${name})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/rowlock.pc.in ${name}.pc @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${component})
endfunction()

set(static_pc_of_postgresql libpq)
set(static_pc_of_sqlite sqlite3)
foreach(component IN LISTS components)
    get_target_property(linked rowlock_${component} LINK_LIBRARIES)
    set(pc_requires ${linked})
    list(FILTER pc_requires INCLUDE REGEX "^rowlock_")
    list(REVERSE pc_requires)  # the core, which all of them need, is the last on the line of a linker
    list(TRANSFORM pc_requires REPLACE "^rowlock_(.*)$" "rowlock-\\1 = ${PROJECT_VERSION}")
    set(dependencies "")
    rowlock_pc_flags(dependencies ${linked})
    list(REMOVE_DUPLICATES dependencies)
    set(pc_libraries -lrowlock_${component})
    set(pc_libraries_private "")
    set(pc_requires_private "")
    if(BUILD_SHARED_LIBS)
        set(pc_libraries_private ${dependencies})
    else()
        list(APPEND pc_libraries ${dependencies} -pthread)
        set(pc_requires_private ${static_pc_of_${component}})
    endif()
    rowlock_development_of(development ${component})
    rowlock_install_pc(rowlock-${component} ${development})
endforeach()
set(pc_requires "rowlock-drivers = ${PROJECT_VERSION}")
set(pc_libraries "")
set(pc_libraries_private "")
set(pc_requires_private "")
rowlock_install_pc(rowlock librowlock-dev)

# --- the tool, the SQL, the licence -----------------------------------------------------------------
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR
    BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR} OUTPUT_VARIABLE lib_from_bin)
if(TARGET rowlock_tool)
    set(tool rowlock_tool)
    if(TARGET rowlock_installed_tool)
        set(tool rowlock_installed_tool)
    endif()
    if(BUILD_SHARED_LIBS)  # where a run path is not needed every library would be looked for there
        set_target_properties(${tool} PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
    endif()
    install(TARGETS ${tool} RUNTIME COMPONENT rowlock)
    if(TARGET rowlock_relocated_tool)
        # The executable contains the absolute folder of the modules. `cmake --install --prefix` changes
        # it, so the tool is linked again. DESTDIR, under which packages are made, changes nothing.
        set_target_properties(rowlock_relocated_tool PROPERTIES
            BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$<$<BOOL:${BUILD_SHARED_LIBS}>:$ORIGIN/${lib_from_bin}>")
        set(relocated ${PROJECT_BINARY_DIR}/src/cli/relocated)
        install(CODE "
            set(libdir \"${CMAKE_INSTALL_LIBDIR}\")
            cmake_path(ABSOLUTE_PATH libdir BASE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}\" NORMALIZE)
            if(NOT libdir STREQUAL \"${CMAKE_INSTALL_FULL_LIBDIR}\")
                set(module_folder \"\${libdir}/rowlock\")
                set(module_folder_in_build false)
                configure_file(\"${PROJECT_SOURCE_DIR}/src/cli/module_folder.cpp.in\"
                    \"${relocated}/module_folder.cpp\" @ONLY)
                execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${PROJECT_BINARY_DIR}\"
                        --config \"\${CMAKE_INSTALL_CONFIG_NAME}\" --target rowlock_relocated_tool
                    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
                set(bindir \"${CMAKE_INSTALL_BINDIR}\")
                cmake_path(ABSOLUTE_PATH bindir BASE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}\" NORMALIZE)
                file(INSTALL DESTINATION \"\${bindir}\" TYPE EXECUTABLE FILES \"${relocated}/rowlock\")
                if(CMAKE_INSTALL_DO_STRIP)
                    execute_process(COMMAND \"${CMAKE_STRIP}\" \"\$ENV{DESTDIR}\${bindir}/rowlock\")
                endif()
            endif()"
            COMPONENT rowlock)
    endif()
    get_property(modules GLOBAL PROPERTY ROWLOCK_TOOL_MODULE_TARGETS)
    if(modules)
        # No run path: they are opened by descriptor, and $ORIGIN would be /proc/self/fd. The executable
        # has already loaded rowlock's libraries.
        set_target_properties(${modules} PROPERTIES INSTALL_RPATH "")
        foreach(module IN LISTS modules)
            string(REPLACE rowlock_tool_ rowlock- package ${module})
            install(TARGETS ${module} LIBRARY
                DESTINATION ${CMAKE_INSTALL_LIBDIR}/rowlock COMPONENT ${package})
        endforeach()
    endif()
endif()
if(TARGET rowlock_reference)
    set(reference ${PROJECT_BINARY_DIR}/src/cli/reference)
    install(DIRECTORY ${reference}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT rowlock)
    set(zsh_folder site-functions)
    if(ROWLOCK_PACKAGES)
        set(zsh_folder vendor-completions)
    endif()
    set(share ${CMAKE_INSTALL_DATADIR})
    install(FILES ${reference}/completions/rowlock.bash RENAME rowlock
        DESTINATION ${share}/bash-completion/completions COMPONENT rowlock)
    install(FILES ${reference}/completions/rowlock.zsh RENAME _rowlock
        DESTINATION ${share}/zsh/${zsh_folder} COMPONENT rowlock)
    install(FILES ${reference}/completions/rowlock.fish
        DESTINATION ${share}/fish/vendor_completions.d COMPONENT rowlock)
endif()
if(TARGET rowlock_tool)
    # Below the prefix, also in packages: systemd looks in /usr and in /usr/local. The unit names the tool, so
    # `cmake --install --prefix` writes it anew.
    set(unit ${PROJECT_BINARY_DIR}/rowlock-reaper.service)
    install(CODE "
        set(bindir \"${CMAKE_INSTALL_BINDIR}\")
        cmake_path(ABSOLUTE_PATH bindir BASE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}\" NORMALIZE)
        configure_file(\"${PROJECT_SOURCE_DIR}/packaging/systemd/rowlock-reaper.service.in\" \"${unit}\" @ONLY)"
        COMPONENT rowlock)
    install(FILES ${unit}
            ${PROJECT_SOURCE_DIR}/packaging/systemd/rowlock-reaper.timer
        DESTINATION lib/systemd/system COMPONENT rowlock)
    install(FILES ${PROJECT_SOURCE_DIR}/packaging/systemd/billing.service
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT rowlock)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/migrations/
    DESTINATION ${CMAKE_INSTALL_DATADIR}/rowlock/migrations COMPONENT rowlock
    FILES_MATCHING PATTERN "*.sql")
if(NOT ROWLOCK_PACKAGES)  # which have it in the file copyright
    install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT rowlock)
endif()
