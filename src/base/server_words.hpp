#pragma once

#include <exception>
#include <string>

namespace rowlock::base {

/// The message of a failure with what the server said, for an operator: our text, then the server's
/// on the same line, then SQLSTATE and error number. Nothing is said twice. No credentials: drivers
/// drop a server's text that repeats the password.
[[nodiscard]] std::string with_server_words(const std::exception& failure);

}  // namespace rowlock::base
