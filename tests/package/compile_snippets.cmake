# Compiles each ```cpp block of the documentation as it stands, a translation unit of its own.
#
#   cmake -DSOURCE=… -DCOMPILER=… -DINCLUDES=… -DWORK=… -P compile_snippets.cmake
file(GLOB pages ${SOURCE}/README.md ${SOURCE}/CONTRIBUTING.md ${SOURCE}/docs/*.md)
list(TRANSFORM INCLUDES PREPEND -I)
file(MAKE_DIRECTORY ${WORK})
set(count 0)
foreach(page IN LISTS pages)
    file(READ ${page} text)
    # What has a meaning in CMake's lists.
    string(REPLACE ";" "@SEMICOLON@" text "${text}")
    string(REPLACE "[" "@OPEN@" text "${text}")
    string(REPLACE "]" "@CLOSE@" text "${text}")
    string(REGEX MATCHALL "\n```cpp\n[^`]*```" snippets "${text}")
    foreach(snippet IN LISTS snippets)
        string(REGEX REPLACE "^\n```cpp\n|```$" "" snippet "${snippet}")
        string(REPLACE "@SEMICOLON@" ";" snippet "${snippet}")
        string(REPLACE "@OPEN@" "[" snippet "${snippet}")
        string(REPLACE "@CLOSE@" "]" snippet "${snippet}")
        math(EXPR count "${count} + 1")
        set(file ${WORK}/snippet_${count}.cpp)
        file(WRITE ${file} "${snippet}")
        execute_process(
            COMMAND ${COMPILER} -std=c++20 -Wall -Wextra -Werror -fsyntax-only ${INCLUDES} ${file}
            RESULT_VARIABLE failed ERROR_VARIABLE said)
        if(failed)
            message(FATAL_ERROR "a snippet of ${page} does not compile:\n${said}")
        endif()
    endforeach()
endforeach()
if(count LESS 2)
    message(FATAL_ERROR "only ${count} snippets were found")
endif()
message("${count} snippets compile")
