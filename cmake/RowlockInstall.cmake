# Install rules. Each component has its own export set, so that find_package(rowlock COMPONENTS sqlite)
# needs only SQLite. `cmake --install … --component` accepts rowlock_runtime (the tool, shared libraries,
# migrations) and rowlock_development.
include(CMakePackageConfigHelpers)

get_property(components GLOBAL PROPERTY ROWLOCK_COMPONENTS)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/rowlock)

foreach(component IN LISTS components)
    install(TARGETS rowlock_${component} EXPORT rowlock-${component}
        RUNTIME COMPONENT rowlock_runtime
        LIBRARY COMPONENT rowlock_runtime NAMELINK_COMPONENT rowlock_development
        ARCHIVE COMPONENT rowlock_development
        FILE_SET HEADERS COMPONENT rowlock_development)
    set_target_properties(rowlock_${component} PROPERTIES INSTALL_RPATH "$ORIGIN")
    install(EXPORT rowlock-${component} FILE rowlock-${component}.cmake NAMESPACE rowlock::
        DESTINATION ${package_folder} COMPONENT rowlock_development)
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
    DESTINATION ${package_folder} COMPONENT rowlock_development)

# --- rowlock.pc: all built libraries, in link order -------------------------------------------------
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

set(pc_libraries "")
set(pc_dependencies "")
foreach(component IN LISTS components)
    list(PREPEND pc_libraries -lrowlock_${component})
    get_target_property(linked rowlock_${component} LINK_LIBRARIES)
    rowlock_pc_flags(pc_dependencies ${linked})
endforeach()
list(REMOVE_DUPLICATES pc_dependencies)
set(pc_requires_private "")
if(BUILD_SHARED_LIBS)
    set(pc_libraries_private ${pc_dependencies})
else()
    list(APPEND pc_libraries ${pc_dependencies} -pthread)
    set(pc_libraries_private "")
    if(ROWLOCK_POSTGRESQL)
        list(APPEND pc_requires_private libpq)
    endif()
    if(ROWLOCK_SQLITE)
        list(APPEND pc_requires_private sqlite3)
    endif()
endif()
foreach(list IN ITEMS pc_libraries pc_libraries_private pc_requires_private)
    list(JOIN ${list} " " ${list})
endforeach()
cmake_path(APPEND pc_libdir "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
cmake_path(APPEND pc_includedir "\${prefix}" ${CMAKE_INSTALL_INCLUDEDIR})
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
    BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/rowlock.pc.in rowlock.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rowlock.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT rowlock_development)

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
    install(TARGETS ${tool} RUNTIME COMPONENT rowlock_runtime)
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
            COMPONENT rowlock_runtime)
    endif()
    get_property(modules GLOBAL PROPERTY ROWLOCK_TOOL_MODULE_TARGETS)
    if(modules)
        # No run path: they are opened by descriptor, and $ORIGIN would be /proc/self/fd. The executable
        # has already loaded rowlock's libraries.
        set_target_properties(${modules} PROPERTIES INSTALL_RPATH "")
        install(TARGETS ${modules} LIBRARY
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/rowlock COMPONENT rowlock_runtime)
    endif()
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/migrations/
    DESTINATION ${CMAKE_INSTALL_DATADIR}/rowlock/migrations COMPONENT rowlock_runtime
    FILES_MATCHING PATTERN "*.sql")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE
    DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT rowlock_runtime)
