#include "support/servers.hpp"
#include <rowlock/error.hpp>

#define DOCTEST_CONFIG_IMPLEMENT
#include "support/progress.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

/// An error that a test did not expect is printed with what the server said.
REGISTER_EXCEPTION_TRANSLATOR(const rowlock::error& failure) {
    std::string text = failure.what();
    if (!failure.server_message().empty()) {
        text +=
            " [" + std::to_string(failure.native_code()) + ": " + failure.server_message() + "]";
    }
    return {text.c_str()};
}

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
