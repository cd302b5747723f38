#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace support {

/// Runs `body` in a forked child. Returns its exit code; -1 if the child hangs for 20 s, or
/// ends otherwise, as by an exception.
[[nodiscard]] inline int exit_of_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(20);
        try {
            ::_exit(body());
        } catch (...) {
            ::_exit(255);
        }
    }
    int status = -1;
    if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

/// Whether `body` returns true in a forked child.
[[nodiscard]] inline bool is_true_in_child(const std::function<bool()>& body) {
    return exit_of_child([&] { return body() ? 0 : 1; }) == 0;
}

}  // namespace support
