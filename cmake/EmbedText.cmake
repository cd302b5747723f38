# Turns text files into C++ at build time.
#
# rowlock_embed_text(<target> NAME <function> ROOT <folder> FILES <relative paths>…)
#   adds a source to <target> that defines
#       namespace rowlock::embedded { std::span<const file> <function>() noexcept; }
#   (declared in src/base/embedded.hpp): each file's path below ROOT and its unchanged text.
function(rowlock_embed_text target)
    cmake_parse_arguments(arg "" "NAME;ROOT" "FILES" ${ARGN})
    set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_${arg_NAME}.cpp)
    list(TRANSFORM arg_FILES PREPEND ${arg_ROOT}/ OUTPUT_VARIABLE inputs)
    string(REPLACE ";" "|" file_list "${arg_FILES}")
    add_custom_command(
        OUTPUT ${output}
        COMMAND ${CMAKE_COMMAND} -DNAME=${arg_NAME} -DROOT=${arg_ROOT} "-DFILES=${file_list}"
                -DOUTPUT=${output} -P ${PROJECT_SOURCE_DIR}/cmake/WriteEmbeddedText.cmake
        DEPENDS ${inputs} ${PROJECT_SOURCE_DIR}/cmake/WriteEmbeddedText.cmake
        VERBATIM)
    target_sources(${target} PRIVATE ${output})
endfunction()
