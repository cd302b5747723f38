#pragma once

#include <rowlock/error.hpp>

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
