#include "support/servers.hpp"

#define DOCTEST_CONFIG_IMPLEMENT
#include "support/error_text.hpp"
#include "support/progress.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

int main(int argc, char** argv) {
    constexpr int skipped = 77;  // ctest's SKIP_RETURN_CODE
    const int status = doctest::Context{argc, argv}.run();
    const bool of_a_file = std::any_of(argv, argv + argc, [](std::string_view argument) {
        return argument.starts_with("--source-file=");
    });
    if (of_a_file && support::cases_begun == 0) {
        std::fprintf(stderr, "this program has no such file, or the file has no such case\n");
        return 1;
    }
    return status == 0 && support::missed_a_server() ? skipped : status;
}
