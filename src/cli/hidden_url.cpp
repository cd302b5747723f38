#include "cli/hidden_url.hpp"

#include "cli/exit_code.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::cli {
namespace {

constexpr const char* url_variable = "ROWLOCK_URL";

void wipe(char* text) noexcept {
    // Keeps the scheme, if it is one: a connection string has words with = before its colon.
    std::size_t scheme = std::strspn(text, "abcdefghijklmnopqrstuvwxyz+0123456789");
    scheme = text[scheme] == ':' ? scheme + 1 : 0;
    std::memset(text + scheme, '*', std::strlen(text + scheme));
}

void wipe_arguments(int argc, char** argv) noexcept {
    for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
        if (std::strcmp(argv[i], "--url") == 0 && i + 1 < argc) wipe(argv[i + 1]);
        if (std::strncmp(argv[i], "--url=", 6) == 0) wipe(argv[i] + 6);
    }
}

/// The values that the process was started with: a variable may be there twice.
std::vector<char*> initial_values() {
    const std::string begin = std::string{url_variable} + '=';
    std::vector<char*> found;
    for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
        if (std::string_view{*each}.starts_with(begin)) found.push_back(*each + begin.size());
    }
    return found;
}

void wipe_environment() {
    const auto values = initial_values();
    if (values.empty()) return;
    // setenv() copies it, and getenv() finds the copy.
    if (setenv(url_variable, values.front(), 1) != 0) {
        throw system_call_failed("ROWLOCK_URL cannot be copied", errno);
    }
    for (char* const each : values) wipe(each);
}

}  // namespace

void hide_urls(int argc, char** argv) {
    wipe_arguments(argc, argv);
    wipe_environment();
}

void hide_memory() noexcept {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

}  // namespace rowlock::cli
