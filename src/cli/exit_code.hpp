#pragma once

#include <rowlock/error.hpp>

#include <exception>
#include <string>

/// The command line tool.
namespace rowlock::cli {

/// Every exit code of the tool, in the spirit of sysexits.h. exit_code.cpp holds the table that
/// --help prints.
enum exit_code : int {
    success = 0,
    answer_is_no = 1,
    usage = 64,
    unreachable = 69,
    lease_lost = 70,
    system_failure = 71,
    output_failed = 74,
    busy = 75,
    refused = 76,
    no_permission = 77,
    misconfigured = 78,
    not_executable = 126,
    not_found = 127,
    signal_base = 128,
};

/// The table of exit codes, for --help.
[[nodiscard]] std::string exit_code_help();

[[nodiscard]] int exit_code_of(errc kind) noexcept;

/// Our message for a failure and what the server said, on one line.
[[nodiscard]] std::string message_of(const error& failure);

/// The word for an exit code under --json.
[[nodiscard]] const char* kind_of(int code) noexcept;

/// Ends the tool with a code and one line on standard error; an empty message prints nothing.
class failure : public std::exception {
public:
    failure(int code, std::string message) : failure{code, std::move(message), kind_of(code)} {}
    /// @param kind where the caller chose the code
    failure(int code, std::string message, const char* kind)
        : code_{code}, message_{std::move(message)}, kind_{kind} {}
    [[nodiscard]] int code() const noexcept { return code_; }
    [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }
    [[nodiscard]] const char* kind() const noexcept { return kind_; }

private:
    int code_;
    std::string message_;
    const char* kind_;
};

/// The lock is held, and the wait is over.
[[nodiscard]] failure busy_failure(const std::string& name, int code,
                                   const std::string& holder = {});

/// A failed system call: "WHAT: reason".
[[nodiscard]] failure system_call_failed(const std::string& what, int error_number);

}  // namespace rowlock::cli
