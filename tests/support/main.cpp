#include "support/servers.hpp"
#include <rowlock/error.hpp>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <string>

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
    return status == 0 && support::missed_a_server() ? skipped : status;
}
