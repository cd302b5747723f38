# Compile settings of every target of this project.

if(ROWLOCK_SANITIZE)
    add_compile_options(-fsanitize=${ROWLOCK_SANITIZE} -fno-sanitize-recover=all
                        -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${ROWLOCK_SANITIZE})
endif()

if(ROWLOCK_ABLATION)
    add_compile_definitions(ROWLOCK_ABLATION)
endif()

# rowlock_require(<package> OPTION <option> DEBIAN <packages> [ARGUMENTS <for find_package>…])
#
# A macro, because find_package sets variables for its caller. If an option is ON and its package is
# missing, the configuration stops and says what to do.
macro(rowlock_require package)
    cmake_parse_arguments(require "" "OPTION;DEBIAN" "ARGUMENTS" ${ARGN})
    set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # for those who link our static archives
    find_package(${package} ${require_ARGUMENTS} QUIET)
    unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
    if(NOT ${package}_FOUND)
        message(FATAL_ERROR "${require_OPTION} is ON, but ${package} was not found. Install it "
                "(Debian, Ubuntu: apt-get install ${require_DEBIAN}), or configure with "
                "-D${require_OPTION}=OFF.")
    endif()
endmacro()

# rowlock_compile(<target>): language level and warnings.
function(rowlock_compile target)
    target_compile_features(${target} PUBLIC cxx_std_20)
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
    target_compile_options(${target} PRIVATE
        -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast
        -Wnon-virtual-dtor -Woverloaded-virtual $<$<BOOL:${ROWLOCK_WERROR}>:-Werror>)
    # g++ 12 sees overlapping copies in `"x" + std::to_string(n)` once it has inlined std::string
    # (https://gcc.gnu.org/PR105329, fixed in 13): only with -O3, which no other configuration has.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
        target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Wno-restrict>)
    endif()
endfunction()

# rowlock_unity(<target>): with ROWLOCK_UNITY, sources of one folder are compiled up to sixteen at a time,
# as one file: for sixteen a fifth of the time. So names in anonymous namespaces differ within a folder. The presets
# tidy and packages compile each file by itself, and so find a missing #include.
function(rowlock_unity target)
    if(NOT ROWLOCK_UNITY)
        return()
    endif()
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources EXCLUDE REGEX "/embedded_|[$]<")  # texts, which change more often
    foreach(source IN LISTS sources)
        cmake_path(GET source PARENT_PATH folder)
        string(MAKE_C_IDENTIFIER "in_${folder}" folder)
        list(APPEND ${folder} ${source})
        list(LENGTH ${folder} count)
        math(EXPR part "(${count} - 1) / 16")
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${part})
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    # g++ would warn of classes that a .cpp keeps for itself, for it takes that file for a header, and of
    # local names that another file has for itself.
    target_compile_options(${target} PRIVATE
        $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;-Wno-shadow;-Wshadow=local>)
endfunction()

# rowlock_component(<name> SOURCES … HEADERS …): the library rowlock_<name>, known as
# rowlock::<name> here and after find_package. Headers are named relative to include/.
function(rowlock_component name)
    cmake_parse_arguments(arg "" "" "SOURCES;HEADERS" ${ARGN})
    set(target rowlock_${name})
    add_library(${target} ${arg_SOURCES})
    add_library(rowlock::${name} ALIAS ${target})
    set_target_properties(${target} PROPERTIES
        EXPORT_NAME ${name} VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
        VERIFY_INTERFACE_HEADER_SETS ON)
    list(TRANSFORM arg_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/)
    target_sources(${target} PUBLIC FILE_SET HEADERS
        BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${arg_HEADERS})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    rowlock_compile(${target})
    rowlock_unity(${target})
    if(ROWLOCK_SIM_ATOMICS)
        target_compile_options(${target} PRIVATE -fsanitize=thread -Wno-tsan)
    endif()
    set_property(GLOBAL APPEND PROPERTY ROWLOCK_COMPONENTS ${name})
endfunction()
